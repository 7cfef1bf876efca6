"""Files of framework events: arrays of Chrome events; form of a file of SageMaker Debugger.

Metadata is among the events: the base of the times, and the phase that each `pid` stands for. Both
are valid for the following events of this file only. Times are integer nanoseconds throughout.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope import schema
from stepscope.importers.content import nanoseconds
from stepscope.quantities import count_of, duration

_LOOK_BYTES = 16 << 10
_SAMPLE = re.compile(rb'^\s*\{[^{}\n]*"Dimension"[^{}\n]*\}\s*$', re.MULTILINE)
_SAMPLE_KEYS = (b'"NodeId"', b'"Timestamp"', b'"Value"')
_EPOCH_KEY = b'"start_time_since_epoch_in_micros"'
_EVENT_NAME = re.compile(
    r"(?P<end_us>\d+)_(?P<recorder>.+)_(?P<suffix>pythontimeline|model_timeline|horovod_timeline"
    r"|smdataparallel_timeline)\.json(\.tmp)?"
)
_METADATA = re.compile(r".+_\d+_\d+\.metadata")
_PYTHON_PROFILES = frozenset({"python_stats", "python_stats.json"})
_PYTHON_PAGE = "python_stats.html"
"""Page that pyinstrument writes of a profile that is in a file, too."""


class Form(enum.Enum):
    """Content of a file."""

    SYSTEM = "samples of the machine"
    EVENTS = "framework events"
    DETAIL = "a trace of TensorFlow's profiler"
    MARK = "only a file name"
    PAGE = "a page about another file"
    PYTHON_PROFILE = "a Python profile"


def detect_form(path: Path) -> Form | None:
    """Return the form of a file; None if Debugger did not write it, or it cannot be opened."""
    if path.name == "training_job_end.ts":
        return Form.MARK
    if "detailed_profiling" in path.parts:
        if _METADATA.fullmatch(path.name):
            return Form.MARK
        if ".trace.json" in path.name:
            return Form.DETAIL
    if path.name in _PYTHON_PROFILES:
        return Form.PYTHON_PROFILE
    if path.name == _PYTHON_PAGE:
        return Form.PAGE
    try:
        with path.open("rb") as file:
            head = file.read(_LOOK_BYTES)
    except OSError:
        return None
    return _by_content(head, path.name)


def _by_content(head: bytes, name: str) -> Form | None:
    if _EPOCH_KEY in head or (_EVENT_NAME.fullmatch(name) and head.lstrip()[:1] in {b"[", b""}):
        return Form.EVENTS
    sample = _SAMPLE.search(head)
    if sample is not None and all(key in sample[0] for key in _SAMPLE_KEYS):
        return Form.SYSTEM
    return None


class EventFileName:
    """Facts in the name of a file of framework events; none if it was renamed."""

    end_us: int | None = None
    """End of its last event, in microseconds since 1970."""
    pid: int | None = None
    host: str | None = None
    suffix: str = ""

    def __init__(self, name: str) -> None:
        match = _EVENT_NAME.fullmatch(name)
        if match is None:
            return
        self.end_us = int(match["end_us"])
        self.suffix = match["suffix"]
        self.pid, self.host = split_recorder(match["recorder"])


def split_recorder(recorder: str) -> tuple[int | None, str | None]:
    """Return the process number and the host in a name of a recorder; None if unknown.

    Now <pid>-<host>; in older versions <pid>_<worker>, in the first ones <worker> alone.
    """
    parts = re.fullmatch(r"(?P<pid>\d+)(?:-(?P<host>.+)|_\d+)", recorder)
    return (None, None) if parts is None else (int(parts["pid"]), parts["host"])


MAX_DURATION_NS = 24 * 3600 * 10**9
"""An event that ends so much later than the last start in its file never ended: some writers then
write the time at which the file was closed."""
_ABSOLUTE_NS = 10**18
"""Times above this (2001) are not offsets."""


class Row(NamedTuple):
    """Event of a file."""

    is_start: bool
    """False for the end of a range whose start is a separate row."""
    phase: str
    name: str
    start_ns: int
    duration_ns: int | None
    """None for the start or end of a range that is written as two events."""
    thread: int | str | None
    args: Mapping[str, Any]


class EventFile(msgspec.Struct, kw_only=True):
    """Content of one file."""

    name: EventFileName
    rows: list[Row] = msgspec.field(default_factory=list)
    base_is_guessed: bool = False
    """The file states no base: its last event is assumed to end at the time in its name."""
    impossible: list[int] = msgspec.field(default_factory=list)
    """Impossible durations; these events are left out."""
    unreadable_count: int = 0
    truncated: bool = False

    @property
    def lost(self) -> str | None:
        """Missing data, as the rest of a sentence."""
        parts = []
        if self.truncated:
            parts.append("the file is truncated")
        if self.unreadable_count:
            parts.append(f"{count_of(self.unreadable_count, 'event')} could not be read")
        if self.impossible:
            longest_ns = max(self.impossible, key=abs)
            parts.append(
                f"{len(self.impossible)} events with impossible durations (up to "
                f"{duration(longest_ns)}) were left out"
            )
        return "; ".join(parts) or None


class _Event(msgspec.Struct, gc=False):
    """Element of the array."""

    name: str = ""
    ph: str = ""
    pid: int | str = 0
    tid: int | str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Any = None


_ARRAY = msgspec.json.Decoder(list[_Event])
_ONE = msgspec.json.Decoder(_Event)
_OBJECT = json.JSONDecoder()


def read_events(path: Path, horizon_ns: int | None = None) -> EventFile:
    """Read the events of a file; OSError if it cannot be read.

    Args:
        path: the file.
        horizon_ns: time at which the job had certainly ended, if known.
    """
    content = EventFile(name=EventFileName(path.name))
    events = _decode(path.read_bytes(), content)
    base_ns: int | None = None
    phases: dict[int | str, str] = {}
    for event in events:
        args = event.args if isinstance(event.args, dict) else {}
        if event.ph == "M":
            stated = args.get("start_time_since_epoch_in_micros")
            if isinstance(stated, int):
                base_ns = stated * 1000
            elif event.name == "process_name":
                phases[event.pid] = str(args.get("name", ""))
        elif event.ph in {"X", "B", "E"}:
            row = _row(event, phases.get(event.pid, ""), args)
            if row is None:
                content.unreadable_count += 1
            else:
                content.rows.append(row._replace(start_ns=row.start_ns + (base_ns or 0)))
    if base_ns is None:
        _guess_base(content)
    _drop_impossible(content, horizon_ns)
    return content


def _row(event: _Event, phase: str, args: Mapping[str, Any]) -> Row | None:
    try:
        start = nanoseconds(bytes(event.ts))
        duration = nanoseconds(bytes(event.dur)) if event.ph == "X" else None
    except ValueError:
        return None
    return Row(
        is_start=event.ph != "E",
        phase=phase,
        name=event.name,
        start_ns=start,
        duration_ns=duration,
        thread=event.tid,
        args=args,
    )


def _guess_base(content: EventFile) -> None:
    """Assume absolute times, or that the last event ends at the time in the file name."""
    rows = content.rows
    if not rows or content.name.end_us is None or rows[0].start_ns > _ABSOLUTE_NS:
        return
    starts = max(row.start_ns for row in rows)
    ends = [row.start_ns + (row.duration_ns or 0) for row in rows]
    last = max((end for end in ends if end <= starts + MAX_DURATION_NS), default=starts)
    base_ns = content.name.end_us * 1000 - last
    content.rows = [row._replace(start_ns=row.start_ns + base_ns) for row in rows]
    content.base_is_guessed = True


def _drop_impossible(content: EventFile, horizon_ns: int | None) -> None:
    limit = max((row.start_ns for row in content.rows), default=0) + MAX_DURATION_NS
    if horizon_ns is not None:
        limit = min(limit, horizon_ns)
    possible = []
    for row in content.rows:
        duration = row.duration_ns or 0
        if duration < 0 or row.start_ns + duration > limit:
            content.impossible.append(duration)
        else:
            possible.append(row)
    content.rows = possible


def _decode(text: bytes, content: EventFile) -> list[_Event]:
    """Decode the events of an array, or of a part of one."""
    try:
        return _ARRAY.decode(text)
    except schema.MALFORMED_JSON:
        pass
    # In Latin-1, positions in the text equal positions in the bytes.
    characters = text.decode("latin-1")
    content.truncated = not characters.rstrip("\0 \t\r\n").endswith("]")
    events = []
    at = characters.find("{")
    while at >= 0:
        try:
            _, end = _OBJECT.raw_decode(characters, at)
            events.append(_ONE.decode(text[at:end]))
        except (*schema.MALFORMED_JSON, ValueError):
            content.unreadable_count += 1
            end = _next_line(characters, at)
        at = characters.find("{", end)
    return events


def _next_line(characters: str, at: int) -> int:
    """Return the position after unreadable text: Debugger writes one event per line."""
    line = characters.find("\n", at)
    return len(characters) if line < 0 else line
