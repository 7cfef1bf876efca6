"""Perfetto files as the official descriptors write and read them."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from tests.support.kineto_files import BASE_NS

EVENT = proto.TrackEvent
NEEDS_STATE = proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
BOOT_NS = 5_000_000_000
"""Time of the clock of the timestamps at `BASE_NS`."""


class PerfettoRecorder:
    """Writer of a file as Perfetto's own library writes one."""

    def __init__(self) -> None:
        self.trace = proto.Trace()

    def packet(self, **fields: Any) -> Any:
        packet = self.trace.packet.add(trusted_packet_sequence_id=7)
        for name, value in fields.items():
            setattr(packet, name, value)
        return packet

    def event(self, at: int, kind: int, track: int, name: str = "", **fields: Any) -> Any:
        event = self.packet(timestamp=BOOT_NS + at).track_event
        event.type, event.track_uuid = kind, track
        if name:
            event.name = name
        for key, content in fields.items():
            setattr(event, key, content)
        return event

    def slice(self, start: int, end: int, track: int, name: str, category: str = "") -> Any:
        event = self.event(start, EVENT.TYPE_SLICE_BEGIN, track, name)
        if category:
            event.categories.append(category)
        self.event(end, EVENT.TYPE_SLICE_END, track)
        return event

    def write(self, path: Path) -> Path:
        path.write_bytes(self.trace.SerializeToString())
        return path


def recording() -> PerfettoRecorder:
    """Return a trace of a process with a thread, a counter, a stream and interned texts."""
    recorder = PerfettoRecorder()
    clocks = recorder.packet().clock_snapshot.clocks
    clocks.add(clock_id=6, timestamp=BOOT_NS)
    clocks.add(clock_id=1, timestamp=BASE_NS)
    process = recorder.packet().track_descriptor
    process.uuid, process.process.pid, process.process.process_name = 1, 10, "python"
    thread = recorder.packet().track_descriptor
    thread.uuid, thread.parent_uuid, thread.name = 2, 1, "main"
    thread.thread.pid, thread.thread.tid, thread.thread.thread_name = 10, 11, "main"
    counter = recorder.packet().track_descriptor
    counter.uuid, counter.parent_uuid, counter.name = 3, 1, "queue"
    counter.counter.unit_multiplier = 10
    plain = recorder.packet().track_descriptor
    plain.uuid, plain.name = 4, "requests"
    interned = recorder.packet(sequence_flags=1).interned_data
    interned.event_names.add(iid=1, name="aten::mm")
    interned.event_categories.add(iid=1, name="cpu_op")
    interned.debug_annotation_names.add(iid=1, name="Input Dims")
    recorder.slice(0, 9_000, 2, "step", "user_annotation")
    operator = recorder.slice(1_000, 2_500, 2, "")
    operator.name_iid = 1
    operator.category_iids.append(1)
    dims = operator.debug_annotations.add(name_iid=1)
    for size in (8, 4):
        dims.array_values.add().array_values.add(int_value=size)
    launch = recorder.slice(1_200, 1_300, 2, "cudaLaunchKernel", "cuda_runtime")
    launch.debug_annotations.add(name="correlation", int_value=5)
    launch.flow_ids.append(77)
    gemm = recorder.slice(1_500, 4_500, 4, "gemm", "kernel")
    for key, value in (("correlation", 5), ("device", 0), ("stream", 7)):
        gemm.debug_annotations.add(name=key, int_value=value)
    gemm.terminating_flow_ids.append(77)
    mark = recorder.event(3_000, EVENT.TYPE_INSTANT, 4, "mark")
    mark.debug_annotations.add(name="why", string_value="because")
    recorder.event(3_500, EVENT.TYPE_COUNTER, 3, counter_value=-2)
    recorder.event(3_600, EVENT.TYPE_COUNTER, 3, counter_value=4)
    return recorder


@dataclass
class Slice:
    """Range or instant of one track."""

    position: tuple[Any, Any]
    """Process and thread as the description of the track states them."""
    name: str
    category: str
    start_ns: int
    end_ns: int | None
    """None for an instant."""
    args: dict[str, Any]
    sources: list[int]
    """Flows that start at it."""
    targets: list[int]


@dataclass
class PerfettoContent:
    """Content of a file."""

    tracks: dict[int, Any]
    """Descriptors by their number."""
    slices: list[Slice] = field(default_factory=list)
    samples: list[tuple[str, str, str, int, float]] = field(default_factory=list)
    """Name of the process; counter, series, time and value."""

    def name_of(self, slice_: Slice) -> tuple[str, str]:
        """Return the names of process and thread."""
        track = next(t for t in self.tracks.values() if position_of(t) == slice_.position)
        return self.tracks[track.parent_uuid].name, track.name

    def arrows(self) -> list[tuple[Slice, Slice]]:
        """Return the two ends of all flows."""
        targets = {flow: slice_ for slice_ in self.slices for flow in slice_.targets}
        return [(s, targets[flow]) for s in self.slices for flow in s.sources if flow in targets]


def position_of(track: Any) -> tuple[Any, Any]:
    """Return process and thread of a track."""
    description = json.loads(track.description)
    return description.get("pid"), description.get("tid")


def read_perfetto(path: Path) -> PerfettoContent:
    """Read a file; fail where its packets do not fit together."""
    data = path.read_bytes()
    trace = proto.Trace.FromString(gzip.decompress(data) if path.suffix == ".gz" else data)
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet
              if p.HasField("track_descriptor")}  # fmt: skip
    content = PerfettoContent(tracks)
    described, events = set(), []
    interned: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    assert {p.trusted_packet_sequence_id for p in trace.packet} == {1}
    (snapshot,) = [p.clock_snapshot for p in trace.packet if p.HasField("clock_snapshot")]
    assert len({clock.timestamp for clock in snapshot.clocks}) == 1
    for packet in trace.packet:
        if packet.sequence_flags & proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            interned.clear()
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                value = entry.str.decode() if hasattr(entry, "str") else entry.name
                interned[kind.name][entry.iid] = value
        if packet.HasField("track_descriptor"):
            described.add(packet.track_descriptor.uuid)
            assert packet.track_descriptor.parent_uuid in described | {0}
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in described
            if event.type in {EVENT.TYPE_SLICE_BEGIN, EVENT.TYPE_INSTANT}:
                assert packet.sequence_flags & NEEDS_STATE
            events.append((packet.timestamp, event, _texts(event, interned)))
    open_slices: defaultdict[int, list[Slice]] = defaultdict(list)
    for t_ns, event, (name, category, args) in sorted(events, key=lambda item: item[0]):
        track = tracks[event.track_uuid]
        if event.type == EVENT.TYPE_COUNTER:
            names = json.loads(track.description)
            assert track.HasField("counter")
            process = tracks[track.parent_uuid].name
            value = event.double_counter_value
            content.samples.append((process, names["counter"], names["series"], t_ns, value))
        elif event.type == EVENT.TYPE_SLICE_END:
            open_slices[event.track_uuid].pop().end_ns = t_ns
        else:
            flows = list(event.flow_ids), list(event.terminating_flow_ids)
            slice_ = Slice(position_of(track), name, category, t_ns, None, args, *flows)
            content.slices.append(slice_)
            if event.type == EVENT.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append(slice_)
    assert not any(open_slices.values())
    return content


def _texts(event: Any, interned: dict[str, dict[int, Any]]) -> tuple[str, str, dict[str, Any]]:
    """Return name, category and arguments, which have to be interned before."""
    if event.type not in {EVENT.TYPE_SLICE_BEGIN, EVENT.TYPE_INSTANT}:
        return "", "", {}
    categories = [interned["event_categories"][iid] for iid in event.category_iids]
    args = dict(_arguments(event, interned))
    assert len(args) == len(event.debug_annotations)
    return interned["event_names"][event.name_iid], "".join(categories), args


def _arguments(event: Any, interned: dict[str, dict[int, Any]]) -> Iterator[tuple[str, Any]]:
    for annotation in event.debug_annotations:
        kind = annotation.WhichOneof("value")
        value = getattr(annotation, kind)
        if kind == "string_value_iid":
            value = interned["debug_annotation_string_values"][value]
        elif kind == "legacy_json_value":
            value = json.loads(value)
        yield interned["debug_annotation_names"][annotation.name_iid], value
