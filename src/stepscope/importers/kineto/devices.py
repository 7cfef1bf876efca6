"""Device work that its category does not tell: layouts of other makers, and what none explains.

Events of a known category are decoded as work at once. The others are examined here after the file
is read, group by group: a group is the ranges of one category on one track.

    lane        names of process and thread tell the meaning (`schema.ACCELERATORS`)
    launch      the events have the correlation numbers of calls that launch work, which no other
                work has: what the call launches is the kind of the work
    name        the category names kernels, and each event states its device and stream
    otherwise   what resembles work of a device is counted, and not understood

Arrows tie the work of a lane to the call that launched it, and to the operator that made the call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from stepscope import intervals, quantities, schema
from stepscope.importers.content import decimal_text
from stepscope.importers.kineto import arguments
from stepscope.importers.kineto.arguments import EventKind, OtherKind
from stepscope.importers.kineto.categories import Event
from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.decode import chunk_of
from stepscope.importers.kineto.gather import Gathered, name_tracks, number_devices
from stepscope.importers.kineto.joins import Positions, find_arrows, find_rows

Int = NDArray[np.int64]

_COLUMNS = (
    "id", "track", "name", "start", "phase", "category", "duration", "has_duration", "args",
)  # fmt: skip
_PART_ROWS = 100_000
"""Events that are decoded again at once."""
_LAUNCHED_RATIO = 0.5
"""Share of the events of a group whose launch must be in the file: others were launched before."""
_CALL = arguments.CALL_KINDS[0]
_HOST_KINDS: Mapping[str, EventKind] = {
    "operators": arguments.OPERATOR,
    "ranges": arguments.ANNOTATION,
}
"""Kinds of lanes of the host that hold no calls."""


class UnknownWork(NamedTuple):
    """Events that resemble work of a device, and that no rule explains."""

    label: str
    """Category, or process and thread."""
    event_count: int
    total_ns: int

    @property
    def sentence_part(self) -> str:
        """Label, count and time, as in "category hpu_op: 18 events, 36 ms"."""
        return (
            f"{self.label}: {quantities.count_of(self.event_count, 'event')}, "
            f"{quantities.duration(self.total_ns)}"
        )


class DeviceLayout(msgspec.Struct):
    """Devices of a file, as far as categories of Kineto do not tell."""

    accelerator: str = ""
    """Name of the maker by whose layout events were read as work."""
    mapped_count: int = 0
    """Number of these events."""
    unknown: list[UnknownWork] = msgspec.field(default_factory=list)
    """Largest first."""


class _Args(msgspec.Struct, gc=False):
    """Arguments by which work of a device is known."""

    device: int | None = None
    stream: int | None = None
    correlation: int | None = None


_decode_args = msgspec.json.Decoder(_Args).decode


def map_device_work(gathered: Gathered, recorder: schema.Recorder) -> DeviceLayout:
    """Turn events of unknown categories that are certainly work of a device, or calls of its
    runtime, into such, and count those that only resemble it."""
    layout = DeviceLayout()
    if gathered.count(OtherKind.OTHER):
        mapper = _Mapper(gathered, layout, recorder)
        kinds = mapper.find_kinds()
        if kinds:
            mapper.move(kinds)
            mapper.tie_launches()
        layout.unknown.sort(key=lambda work: (-work.total_ns, work.label))
    for accelerator in schema.ACCELERATORS:
        # Also in an export, whose work has Kineto's categories.
        if accelerator.operator_arrows and accelerator.operator_arrows in gathered.strings:
            _tie_operators(gathered, accelerator.operator_arrows)
    number_devices(gathered, by_process=recorder.numbers_devices)
    return layout


class _Group(NamedTuple):
    """Ranges of one category on one track."""

    category: str
    process: str
    thread: str
    label: str
    rows: Int


@dataclass
class _Mapper:
    gathered: Gathered
    layout: DeviceLayout
    recorder: schema.Recorder
    _accelerators: dict[str, schema.Accelerator] = field(default_factory=dict)
    _lane_devices: dict[Any, int] = field(default_factory=dict)
    """Number of the device of each process of a lane of work, in the order of processes where its
    name has none; or of each thread."""

    @cached_property
    def _events(self) -> Columns:
        return self.gathered.columns(OtherKind.OTHER, *_COLUMNS)

    # --- meaning -------------------------------------------------------------------------------

    def find_kinds(self) -> dict[EventKind, list[Int]]:
        """Return rows of the other events by the kind that they are."""
        kinds: dict[EventKind, list[Int]] = {}
        parts_of: dict[str, list[_Group]] = {}
        wholes = set()
        own_kinds: dict[EventKind, list[Int]] = {}
        for group in self._groups():
            category = group.category.lower()
            entry = schema.accelerator_of_category(category)
            name = self.recorder.categories.get(category)
            if entry is not None:
                self._accelerators[entry.name], name = entry, entry.categories[category]
            if name is not None:
                kind = schema.event_kind(name)
                (kinds if entry else own_kinds).setdefault(kind, []).append(group.rows)
                continue
            meaning = self._find_lane(group.process, group.thread)
            if meaning is not None:
                accelerator, lane = meaning
                if lane.role in _HOST_KINDS:
                    own_kinds.setdefault(_HOST_KINDS[lane.role], []).append(group.rows)
                    continue
                self._accelerators[accelerator.name] = accelerator
                parts = self._split_lane(group.rows, accelerator, lane)
                if lane.role == "parts":
                    parts_of.setdefault(group.process, []).append(group)
                elif lane.role == "collectives":
                    wholes.add(group.process)
            else:
                parts = self._split_launched(group)
                if not parts and self._resembles_work(group):
                    self._count_unknown(group)
                elif parts:
                    maker = schema.accelerator_labelled(group.category)
                    if maker is not None:
                        self._accelerators[maker.name] = maker
            for kind, rows in parts.items():
                if len(rows):
                    kinds.setdefault(kind, []).append(rows)
        for process in parts_of.keys() - wholes:
            for group in parts_of[process]:
                self._count_unknown(group)
        self.layout.accelerator = next(iter(self._accelerators), "")
        self.layout.mapped_count = sum(len(rows) for parts in kinds.values() for rows in parts)
        for kind, parts_of_kind in own_kinds.items():
            kinds.setdefault(kind, []).extend(parts_of_kind)
        return kinds

    def _groups(self) -> Iterator[_Group]:
        category, track = self._events["category"], self._events["track"].astype(np.int64)
        rows = np.flatnonzero((self._events["has_duration"] == 1) & (track >= 0))
        if not len(rows):
            return
        names = self._track_names
        key = track[rows] * (len(self.gathered.strings) + 1) + category[rows] + 1
        order = np.argsort(key, kind="stable")
        cuts = np.flatnonzero(np.diff(key[order])) + 1
        for part in np.split(rows[order], cuts):
            code = int(category[part[0]])
            text = self.gathered.strings[code] if code >= 0 else ""
            if text.lower() not in schema.NO_WORK:
                yield _Group(text, *names[int(track[part[0]])], part)

    @cached_property
    def _track_names(self) -> list[tuple[str, str, str]]:
        return name_tracks(self.gathered)

    def _find_lane(
        self, process: str, thread: str
    ) -> tuple[schema.Accelerator, schema.Lane] | None:
        return schema.find_lane(process, thread, self._processes)

    @cached_property
    def _processes(self) -> frozenset[str]:
        return frozenset(process for process, _, _ in self._track_names)

    def _split_lane(
        self, rows: Int, accelerator: schema.Accelerator, lane: schema.Lane
    ) -> dict[EventKind, Int]:
        if lane.role in {"summary", "parts"}:
            return {}
        if lane.role == "calls":
            return {_CALL: rows}
        if lane.role == "collectives":
            return {arguments.KERNEL: rows}
        pid, tid = self.gathered.tracks[int(self._events["track"][rows[0]])]
        process = self._track_names[int(self._events["track"][rows[0]])][0]
        number = re.search(r"[GT]PU:?(\d{1,6})", process)
        if lane.threads_are_devices:
            self._lane_devices[pid, tid] = _digits("", tid)
        elif number is not None:
            self._lane_devices[pid] = int(number[1])
        else:
            self._lane_devices.setdefault(pid, 0 if "COPY" in process else len(self._lane_devices))
        is_wait = self._match(rows, rf"({accelerator.waits})\Z")
        is_copy = self._match(rows, accelerator.copies) & ~is_wait
        is_set = self._match(rows, accelerator.sets) & ~is_wait
        return {
            arguments.KERNEL: rows[~(is_wait | is_copy | is_set)],
            arguments.MEMCPY: rows[is_copy],
            arguments.MEMSET: rows[is_set],
        }

    def _match(self, rows: Int, pattern: str) -> NDArray[np.bool_]:
        """Mask the rows whose name starts with a pattern."""
        codes, inverse = np.unique(self._events["name"][rows], return_inverse=True)
        match = re.compile(pattern).match
        is_match = [code >= 0 and match(self.gathered.strings[code]) is not None for code in codes]
        mask: NDArray[np.bool_] = np.array(is_match, dtype=np.bool_)[inverse]
        return mask

    # --- launches and names ----------------------------------------------------------------------

    def _split_launched(self, group: _Group) -> dict[EventKind, Int]:
        """Return the rows of a group by kind if launches, or its name, tell that it is work."""
        decoded = self._decode(group.rows[:1])
        if decoded is None or decoded[0].device is None or decoded[0].stream is None:
            return {}
        decoded = self._decode(group.rows)
        if decoded is None or any(a.device is None or a.stream is None for a in decoded):
            return {}
        correlation = [a.correlation if a.correlation is not None else -1 for a in decoded]
        kinds = [self._launched_kinds.get(number) for number in correlation]
        launched = [kind for kind in kinds if kind is not None]
        is_of_calls = any(n in self._other_calls for n in correlation)
        by_launch = len(launched) >= _LAUNCHED_RATIO * len(kinds) and not is_of_calls
        by_name = re.fullmatch(r"\w*kernels?", group.category.lower()) is not None
        if not by_launch and not by_name:
            return {}
        usual = Counter(launched).most_common(1)[0][0] if launched else arguments.KERNEL
        parts: dict[EventKind, list[int]] = {}
        for row, kind in zip(group.rows.tolist(), kinds, strict=True):
            parts.setdefault(arguments.KERNEL if by_name else kind or usual, []).append(row)
        return {kind: np.array(rows, dtype=np.int64) for kind, rows in parts.items()}

    def _decode(self, rows: Int) -> list[_Args] | None:
        """Return the arguments of events; None if some have none, or others."""
        codes = self._events["args"][rows]
        if (codes < 0).any():
            return None
        try:
            return [_decode_args(self.gathered.strings[code]) for code in codes.tolist()]
        except schema.MALFORMED_JSON:
            return None

    @cached_property
    def _launched_kinds(self) -> Mapping[int, EventKind]:
        """Kind of the work that a call launches, by the correlation numbers that no work has."""
        used = {
            number
            for kind in arguments.WORK_KINDS
            for number in self.gathered.select(kind, ("correlation",), "correlation")[
                "correlation"
            ].tolist()
        }
        launches = {
            **dict.fromkeys(self.gathered.names_with(schema.WORK_LAUNCHES), arguments.KERNEL),
            **dict.fromkeys(self.gathered.names_with((schema.GRAPH_LAUNCH,)), arguments.KERNEL),
            **dict.fromkeys(self.gathered.names_with((schema.COPY_LAUNCH,)), arguments.MEMCPY),
            **dict.fromkeys(self.gathered.names_with((schema.SET_LAUNCH,)), arguments.MEMSET),
        }
        return {
            number: launches[name]
            for number, name in self._calls
            if name in launches and number not in used
        }

    @cached_property
    def _other_calls(self) -> frozenset[int]:
        """Correlation numbers of calls that launch no work, such as waits."""
        return frozenset(n for n, _ in self._calls if n > 0) - self._launched_kinds.keys()

    @cached_property
    def _calls(self) -> list[tuple[int, int]]:
        """Correlation number and name of the calls."""
        pairs: list[tuple[int, int]] = []
        for kind in arguments.CALL_KINDS:
            calls = self.gathered.select(kind, ("correlation", "name"), "correlation")
            pairs += zip(calls["correlation"].tolist(), calls["name"].tolist(), strict=True)
        return pairs

    def _resembles_work(self, group: _Group) -> bool:
        if schema.resembles_work(group.category, group.process, group.label):
            return True
        first = next(iter(self._decode(group.rows[:1]) or ()), _Args())
        return first.device is not None and first.stream is not None

    def _count_unknown(self, group: _Group) -> None:
        process = group.label or group.process
        label = f"category {group.category}" if group.category else f"process {process}"
        if not group.category and not process:
            label = "events without a category"
        before = next((work for work in self.layout.unknown if work.label == label), None)
        work = UnknownWork(
            label,
            len(group.rows) + (before.event_count if before else 0),
            int(np.maximum(self._events["duration"][group.rows], 0).sum())
            + (before.total_ns if before else 0),
        )
        self.layout.unknown = [one for one in self.layout.unknown if one is not before] + [work]

    # --- events ----------------------------------------------------------------------------------

    def move(self, kinds: Mapping[EventKind, list[Int]]) -> None:
        """Move the rows of the other events to their kinds."""
        events = self.gathered.take(OtherKind.OTHER, *_COLUMNS)
        is_moved = np.zeros(len(events["id"]), dtype=np.bool_)
        for kind, parts in kinds.items():
            rows = np.sort(np.concatenate(parts))
            is_moved[rows] = True
            in_lane = self._is_in_lane(events["track"][rows])
            self._keep_lane(kind, {name: events[name][rows[in_lane]] for name in _COLUMNS})
            self._decode_again(kind, events, rows[~in_lane])
        self.gathered.keep(
            OtherKind.OTHER, {name: values[~is_moved] for name, values in events.items()}
        )

    def _is_in_lane(self, track: NDArray[Any]) -> NDArray[np.bool_]:
        lanes = [
            self._find_lane(process, thread) is not None for process, thread, _ in self._track_names
        ]
        mask: NDArray[np.bool_] = np.array(lanes, dtype=np.bool_)[track]
        return mask

    def _keep_lane(self, kind: EventKind, events: Columns) -> None:
        """Keep events whose arguments are those of another profiler."""
        if not len(events["id"]):
            return
        columns = {name: events[name] for name in ("id", "track", "name", "start", "duration")}
        columns["args"] = events["args"]
        if kind.on_device:
            numbers = self._lane_devices
            devices = [
                numbers.get(track, numbers.get(track[0], 0)) for track in self.gathered.tracks
            ]
            columns["device"] = np.array(devices, dtype=np.int64)[events["track"]]
            streams = [
                _digits(thread, tid)
                for (_, thread, _), (_, tid) in zip(
                    self._track_names, self.gathered.tracks, strict=True
                )
            ]
            columns["stream"] = np.array(streams, dtype=np.int64)[events["track"]]
        self.gathered.keep(kind, columns)

    def _decode_again(self, kind: EventKind, events: Columns, rows: Int) -> None:
        """Decode events with Kineto's arguments as those of a kind."""
        for first in range(0, len(rows), _PART_ROWS):
            part = rows[first : first + _PART_ROWS]
            chunk = chunk_of([self._event(kind, events, row) for row in part.tolist()])
            self.gathered.add(chunk, events["id"][part])

    def _event(self, kind: EventKind, events: Columns, row: int) -> Event:
        pid, tid = self.gathered.tracks[events["track"][row]]
        name, args = events["name"][row], events["args"][row]
        text = self.gathered.strings[args].encode() if args >= 0 else b""
        category = events["category"][row]
        entry = schema.accelerator_of_category(self.gathered.strings[category])
        if entry is not None:
            text = _translate(entry, text, self._track_names[events["track"][row]][1])
        return Event(
            ph="X",
            cat=kind.categories[0],
            name=self.gathered.strings[name] if name >= 0 else "",
            pid=pid,
            tid=tid,
            ts=Raw(decimal_text(int(events["start"][row]))),
            dur=Raw(decimal_text(int(events["duration"][row]))),
            args=Raw(text),
        )

    # --- arrows ----------------------------------------------------------------------------------

    def tie_launches(self) -> None:
        """Give work of lanes the number of its call."""
        accelerator = next((a for a in self._accelerators.values() if a.lanes), None)
        if accelerator is not None and accelerator.launch_arrows:
            self._tie_calls(accelerator.launch_arrows)

    def _tie_calls(self, category: str) -> None:
        calls = self.gathered.columns(_CALL, "track", "start", "duration", "correlation")
        arrows = find_arrows(self.gathered, category)
        at = Positions(self.gathered.find_bounds()).of
        start = at(calls["start"], calls["track"])
        order = intervals.nesting_order(start, start + calls["duration"])
        start, end = start[order], (start + calls["duration"])[order]
        row = intervals.innermost_at(
            at(arrows.source_ns, arrows.source_track), start, end, intervals.parents(start, end)
        )
        call = np.where(row >= 0, order[row] if len(order) else -1, -1)
        number = np.full(len(calls["start"]), -1, dtype=np.int64)
        launching = np.unique(call[call >= 0])
        number[launching] = launching + 1
        self.gathered.extend(
            _CALL, "correlation", np.where(number > 0, number, calls["correlation"])
        )
        for kind, columns in _work_starts(self.gathered):
            target = arrows.find_targets(columns)
            correlation = self.gathered.columns(kind, "correlation")["correlation"]
            tied = np.where(target >= 0, np.append(call, -1)[target] + 1, 0)
            if len(tied):
                self.gathered.extend(kind, "correlation", np.where(tied > 0, tied, correlation))


def _work_starts(gathered: Gathered) -> list[tuple[EventKind, Columns]]:
    return [(kind, gathered.columns(kind, "track", "start")) for kind in arguments.WORK_KINDS]


def _tie_operators(gathered: Gathered, category: str) -> None:
    """Give work the operator from whose start an arrow leads to it."""
    arrows = find_arrows(gathered, category)
    names = ("id", "track", "start", "duration")
    operators = gathered.columns(arguments.OPERATOR, *names)
    order = np.lexsort((-operators["duration"], operators["start"], operators["track"]))
    sources = {"track": arrows.source_track, "start": arrows.source_ns}
    row = find_rows({name: operators[name][order] for name in ("track", "start")}, sources)
    operator = np.where(row >= 0, np.append(operators["id"][order], -1)[row], -1)
    for kind, columns in _work_starts(gathered):
        target = arrows.find_targets(columns)
        if len(target):
            caller = np.where(target >= 0, np.append(operator, -1)[target], -1)
            gathered.extend(kind, "caller", caller)


def _translate(entry: schema.Accelerator, args: bytes, thread: str) -> bytes:
    """Return arguments of another profiler with the keys of Kineto, and the numbers of device and
    stream that the name of a thread has."""
    try:
        fields = msgspec.json.decode(args or b"{}", type=dict[str, Any])
    except schema.MALFORMED_JSON:
        return args
    fields = {entry.arguments.get(key, key): value for key, value in fields.items()}
    match = re.fullmatch(entry.streams, thread)
    if match is not None:
        fields["device"] = int(match["device"] or 0)
        fields["stream"] = int(match["stream"] or match["queue"] or 0)
    return msgspec.json.encode(fields)


def _digits(thread: str, tid: int | str) -> int:
    """Return the number of a stream: of the thread's name, else of the thread."""
    match = re.search(r"\d+", thread if re.search(r"stream", thread, re.IGNORECASE) else str(tid))
    number = int(match[0]) if match else -1
    return number if number < 2**63 else -1
