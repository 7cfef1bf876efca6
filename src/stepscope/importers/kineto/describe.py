"""Description of a trace by its file: devices, threads, process groups, ranks, counters."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import quantities, schema, store
from stepscope.importers.kineto import arguments
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.tables import TableMaker

Codes = NDArray[np.int32]
_RANK_DIRECTORY = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
_STORED_APART = frozenset(
    {"traceEvents", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"}
)
_DISTRIBUTED_STORED_APART = frozenset({"backend", "rank", "world_size", "pg_config"})
_MAX_BASE_NS = 2**62
"""A century from now; the sum of a base and a time must stay an integer of 64 bits."""
_DEVICE_NUMBERS = {
    "memory_bytes": ("totalGlobalMem",),
    "compute_major": ("computeMajor",),
    "compute_minor": ("computeMinor",),
    "multiprocessor_count": ("numSms",),
    "threads_per_multiprocessor": ("maxThreadsPerMultiprocessor",),
    "threads_per_block": ("maxThreadsPerBlock",),
    "warp_size": ("warpSize",),
    "registers_per_block": ("regsPerBlock",),
    "shared_memory_per_block_bytes": ("sharedMemPerBlock",),
}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a trace as far as the caller knows it; the file may state more."""

    name: str
    directories: tuple[str, ...] = ()
    """Names of the directories around the file, innermost last."""
    file_name: schema.TraceFileName | None = None
    """Parts of the name of the file, if torch.profiler chose it."""
    node: str | None = None
    process: str | None = None
    window: int | None = None
    rank: int | None = None
    step_range: str | None = None
    """Name of the ranges that are steps."""


class Header(msgspec.Struct, frozen=True):
    """Top level of a trace file without the events."""

    content: Mapping[str, Any] = msgspec.field(default_factory=dict)
    unread: str | None = None
    """The part that could not be read, as the rest of a sentence."""

    @property
    def base_ns(self) -> int:
        """Nanoseconds to add to every time of the file."""
        base = _integer(self.content.get("baseTimeNanoseconds")) or 0
        return base if abs(base) < _MAX_BASE_NS else 0

    @property
    def distributed(self) -> Mapping[str, Any]:
        """Rank, world size, backend and process groups."""
        info = self.content.get("distributedInfo")
        return info if isinstance(info, dict) else {}

    @property
    def rank(self) -> int | None:
        """Rank that the file states; None without a number."""
        rank = self.distributed.get("rank")
        number = _integer(rank)
        return None if isinstance(rank, float) and number != rank else number


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Small tables of a trace."""

    gathered: Gathered
    header: Header
    identity: Identity
    flows: Mapping[str, Any]

    @property
    def rank(self) -> int | None:
        """Rank that the caller, the file, its name or its directory states, in this order."""
        if self.identity.rank is not None:
            return self.identity.rank
        if self.header.rank is not None:
            return self.header.rank
        for part in reversed(self.identity.name.split("/")):  # an archive is named, too
            in_name = schema.rank_in_name(part)
            if in_name is not None:
                return in_name
        matches = map(_RANK_DIRECTORY.fullmatch, reversed(self.identity.directories))
        return next((int(match[1]) for match in matches if match), None)

    @property
    def node(self) -> str | None:
        """Node that the caller knows, or the host in the name of the file.

        A worker `a_7` is on host `a` only if its trace is of process 7: scripts choose such names,
        too.
        """
        origin = self.identity.file_name
        if self.identity.node is not None or origin is None:
            return self.identity.node
        pids = {str(pid) for pid, _ in self.gathered.tracks}
        return origin.host if str(origin.pid) in pids else None

    @property
    def recorder(self) -> schema.Recorder:
        """Framework whose profiler wrote the file."""
        gathered = self.gathered
        labels = {str(value) for name, *_, value in gathered.metadata if name == "process_name"}
        labels |= {pid for pid, _ in gathered.tracks if isinstance(pid, str)}
        return schema.find_recorder(labels, gathered.strings, self.header.content)

    def tables(self, maker: TableMaker) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the tables with at least one row."""
        tables = {
            "tracks": self._tracks(),
            "devices": self._devices(),
            "process_groups": self._groups(),
            "flows": self.flows,
            "counters": self._counters(),
        }
        for name, columns in tables.items():
            if columns and len(next(iter(columns.values()))):
                yield name, maker.complete(name, columns)

    def trace_row(self, *, start_ns: int, end_ns: int) -> Mapping[str, Any]:
        """Return the row of the table `traces`; times are relative to the base."""
        gathered, base = self.gathered, self.header.base_ns
        operators = gathered.select(arguments.OPERATOR, ("id",), "input_dims")
        stacks = gathered.select(arguments.OPERATOR, ("id",), "call_stack")
        rest = {k: v for k, v in self.header.content.items() if k not in _STORED_APART}
        if self.recorder is not schema.PYTORCH:
            rest["recorder"] = self.recorder.name
        distributed = self.header.distributed
        distributed_rest = {
            k: v for k, v in distributed.items() if k not in _DISTRIBUTED_STORED_APART
        }
        if distributed_rest:
            rest["distributedInfo"] = distributed_rest
        optional = {
            "window": self.identity.window,
            "rank": self.rank,
            "world_size": _integer(distributed.get("world_size")),
        }
        texts = {
            "name": self.identity.name,
            "node": self.node,
            "process": self.identity.process,
            "backend": distributed.get("backend"),
            "metadata": msgspec.json.encode(rest).decode(),
        }
        numbers = {
            "start_ns": base + start_ns,
            "end_ns": base + end_ns,
            "base_ns": base,
            "event_count": gathered.event_count,
            "has_shapes": int(len(operators["id"]) > 0),
            "has_stacks": int(
                gathered.count(arguments.PYTHON_FUNCTION) > 0 or len(stacks["id"]) > 0
            ),
            "has_memory": int(gathered.count(arguments.MEMORY_EVENT) > 0),
        }
        return {
            "trace": np.zeros(1, dtype=np.int64),
            **{
                name: store.DictColumn.encode([arguments.text_of(value)])
                for name, value in texts.items()
            },
            **{name: np.array([value], dtype=np.int64) for name, value in numbers.items()},
            **{name: arguments.integers_of([value]) for name, value in optional.items()},
        }

    def _tracks(self) -> Mapping[str, Any]:
        tracks = self.gathered.tracks
        kinds = ["other"] * len(tracks)
        devices: list[int | None] = [None] * len(tracks)
        streams: list[int | None] = [None] * len(tracks)
        for kind in (kind for kind in schema.EVENT_KINDS if kind.on_device):
            columns = self.gathered.columns(kind, "track", "device", "stream")
            first = np.full(len(tracks), -1, dtype=np.int64)
            first[columns["track"][::-1]] = np.arange(len(columns["track"]))[::-1]
            for number in np.flatnonzero(first >= 0).tolist():
                row = first[number]
                kinds[number] = "device"
                devices[number] = _number_or_digits(columns["device"][row], tracks[number][0])
                streams[number] = _number_or_digits(columns["stream"][row], tracks[number][1])
        for kind in schema.EVENT_KINDS:
            if kind.on_device or not kind.is_range or kind.linking == "none":
                continue
            events = np.bincount(self.gathered.columns(kind, "track")["track"])
            for number in np.flatnonzero(events).tolist():
                kinds[number] = "host"
        metadata: dict[tuple[str, Any], Any] = {}
        for name, pid, tid, value in self.gathered.metadata:
            key = (pid, tid) if name.startswith("thread_") else pid
            metadata[name, key] = value
        texts: dict[str, list[Any]] = {
            "process_name": [metadata.get(("process_name", pid)) for pid, _ in tracks],
            "process_labels": [metadata.get(("process_labels", pid)) for pid, _ in tracks],
            "thread_name": [metadata.get(("thread_name", track)) for track in tracks],
            "pid": [str(pid) for pid, _ in tracks],
            "tid": [str(tid) for _, tid in tracks],
            "kind": kinds,
        }
        is_text = [isinstance(pid, str) + 2 * isinstance(tid, str) for pid, tid in tracks]
        return {
            "track": np.arange(len(tracks), dtype=np.int64),
            **{
                name: store.DictColumn.encode(map(arguments.text_of, values))
                for name, values in texts.items()
            },
            "pid_is_text": np.array(is_text, dtype=np.int64),
            "device": arguments.integers_of(devices),
            "stream": arguments.integers_of(streams),
            "process_order": arguments.integers_of(
                [_integer(metadata.get(("process_sort_index", pid))) for pid, _ in tracks]
            ),
            "thread_order": arguments.integers_of(
                [_integer(metadata.get(("thread_sort_index", track))) for track in tracks]
            ),
        }

    def _devices(self) -> Mapping[str, Any]:
        devices = _objects(self.header.content.get("deviceProperties"))
        stored = {"id", "name", *(key for keys in _DEVICE_NUMBERS.values() for key in keys)}
        return {
            "device": np.array([_integer(d.get("id")) or 0 for d in devices], dtype=np.int64),
            "name": store.DictColumn.encode(
                arguments.text_of(d.get("name")) or "unnamed" for d in devices
            ),
            **{
                name: arguments.integers_of([_integer(d.get(keys[0])) for d in devices])
                for name, keys in _DEVICE_NUMBERS.items()
            },
            "args": store.DictColumn.encode(_rest(device, stored) for device in devices),
        }

    def _groups(self) -> Mapping[str, Any]:
        groups = _objects(self.header.distributed.get("pg_config"))
        stored = {"pg_name", "pg_desc", "backend_config", "pg_size", "ranks"}
        return {
            "name": store.DictColumn.encode(
                arguments.text_of(g.get("pg_name")) or "" for g in groups
            ),
            "description": store.DictColumn.encode(
                arguments.text_of(g.get("pg_desc")) for g in groups
            ),
            "backend": store.DictColumn.encode(
                arguments.text_of(g.get("backend_config")) for g in groups
            ),
            "size": arguments.integers_of([_integer(g.get("pg_size")) for g in groups]),
            "ranks": store.DictColumn.encode(arguments.text_of(g.get("ranks")) for g in groups),
            "args": store.DictColumn.encode(_rest(group, stored) for group in groups),
        }

    def _counters(self) -> Mapping[str, Any]:
        columns = self.gathered.columns(
            arguments.OtherKind.COUNTER, "id", "track", "name", "start", "args"
        )
        rows: list[int] = []
        series: list[str] = []
        values: list[float] = []
        for row, code in enumerate(columns["args"].tolist()):
            if code >= 0:
                for name, value in _numbers(self.gathered.strings[code]):
                    rows.append(row)
                    series.append(name)
                    values.append(value)
        indices = np.array(rows, dtype=np.int64)
        return {
            "id": columns["id"][indices],
            "track": columns["track"][indices],
            "name": columns["name"][indices],
            "t_ns": columns["start"][indices] + self.header.base_ns,
            "series": store.DictColumn.encode(series),
            "value": np.array(values, dtype=np.float64),
        }


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _rest(items: Mapping[str, Any], stored: set[str]) -> str | None:
    """Return the members of an object without a column, as JSON."""
    rest = {key: value for key, value in items.items() if key not in stored}
    return msgspec.json.encode(rest).decode() if rest else None


def _integer(value: Any) -> int | None:
    try:
        number = None if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 2**63 else None


def _numbers(text: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers in the arguments of a counter."""
    try:
        items = msgspec.json.decode(text)
    except schema.MALFORMED_JSON:
        return
    for name, value in items.items() if isinstance(items, dict) else ():
        if isinstance(value, int | float) and abs(value) < 2**1023:
            yield name, float(value)


def _number_or_digits(value: Any, label: int | str) -> int | None:
    """Return a device or stream number: of the arguments, else the digits of the track's label."""
    if value >= 0:
        return int(value)
    digits = re.search(r"\d+", str(label))
    return _integer(digits[0]) if digits else None


MIN_LOST_SHARE = 0.001
"""Smaller shares of the events of a kind, or of annotations of a name, change no answer."""
_MAX_NAMED_LOSSES = 3
_DIGITS = re.compile(r"\d+")


def name_losses(strings: Sequence[str], lost: Mapping[Any, tuple[Codes, Codes]]) -> str | None:
    """Name the groups of events of which a share is in no figure, the largest shares first:
    annotations by name, as one of a few is a step or a fetch, others by kind. None without any.

    Args:
        strings: names by their codes.
        lost: by kind, the names of these events, and of all events of the kind.
    """
    shares: list[tuple[float, str]] = []
    for kind, (names, all_names) in lost.items():
        groups: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for column, codes in enumerate((names, all_names)):
            for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
                name = (
                    _DIGITS.sub("…", strings[code]) if kind is arguments.ANNOTATION else kind.name
                )
                groups[name][column] += int(count)
        shares += [
            (count / total, f"{name}: {quantities.count(count)} of {quantities.count(total)}")
            for name, (count, total) in groups.items()
            if count and count >= MIN_LOST_SHARE * total
        ]
    shares.sort(reverse=True)
    return "; ".join(text for _, text in shares[:_MAX_NAMED_LOSSES]) or None


def name_impossible(
    gathered: Gathered, parts: Sequence[tuple[arguments.Kind, Codes]]
) -> str | None:
    """Name the groups of events that have impossible times; see `name_losses`.

    Args:
        parts: kinds and names of these events.
    """
    kinds = dict.fromkeys(kind for kind, _ in parts)
    return name_losses(
        gathered.strings,
        {
            kind: (
                np.concatenate([names for of_kind, names in parts if of_kind is kind]),
                gathered.columns(kind, "name")["name"],
            )
            for kind in kinds
        },
    )
