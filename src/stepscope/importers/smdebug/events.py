"""Files of framework events: arrays of Chrome events with a base and names of their own.

Metadata is among the events: the base of the times, and the phase that each `pid` stands for. Both
are valid for the following events of this file only. Times are integer nanoseconds throughout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.importers.smdebug.forms import EventFileName
from stepscope.importers.times import nanoseconds
from stepscope.quantities import duration
from stepscope.schema import MALFORMED_JSON

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


@dataclass(slots=True, kw_only=True)
class EventFile:
    """Content of one file."""

    name: EventFileName
    rows: list[Row] = field(default_factory=list)
    base_is_guessed: bool = False
    """The file states no base: its last event is assumed to end at the time in its name."""
    impossible: list[int] = field(default_factory=list)
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
            parts.append(f"{self.unreadable_count} events could not be read")
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
    except MALFORMED_JSON:
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
        except (*MALFORMED_JSON, ValueError):
            content.unreadable_count += 1
            end = _next_line(characters, at)
        at = characters.find("{", end)
    return events


def _next_line(characters: str, at: int) -> int:
    """Return the position after unreadable text: Debugger writes one event per line."""
    line = characters.find("\n", at)
    return len(characters) if line < 0 else line
