"""Files of framework events: arrays of Chrome events with a base and names of their own.

Metadata comes among the events: the base of the times, and which phase each `pid` stands for. Both
hold from there on, and for this file only. Times are integer nanoseconds from the first moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.importers.smdebug.recognise import EventFileName
from stepscope.importers.times import nanoseconds

LONGEST_NS = 24 * 3600 * 10**9
"""An event that ends so much later than the last one of its file begins never ended at all: some
writers then put down the time at which the file was closed."""
_ABSOLUTE_NS = 10**18
"""Times above this (2001) are no offsets."""
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError)


class Row(NamedTuple):
    """One event."""

    begins: bool
    """False for the end of a range that began as a row of its own."""
    phase: str
    name: str
    start_ns: int
    duration_ns: int | None
    """None for the beginning or end of a range that is written as two events."""
    thread: int | str | None
    args: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class EventFile:
    """What one file holds."""

    name: EventFileName
    rows: list[Row] = field(default_factory=list)
    base_is_guessed: bool = False
    """The file states no base: its last event ends when its name says."""
    impossible: list[int] = field(default_factory=list)
    """Durations that cannot be; those events are left out."""
    unreadable_count: int = 0
    truncated: bool = False

    @property
    def lost(self) -> str | None:
        """What is not in the rows, as the rest of a sentence."""
        parts = []
        if self.truncated:
            parts.append("the file ends before its end")
        if self.unreadable_count:
            parts.append(f"{self.unreadable_count} events could not be read")
        if self.impossible:
            longest_s = max(self.impossible, key=abs) / 1e9
            parts.append(
                f"{len(self.impossible)} events with impossible durations (up to {longest_s:,.0f} "
                "s) were left out"
            )
        return "; ".join(parts) or None


class _Event(msgspec.Struct, gc=False):
    """One element of the array."""

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
    """The events of a file; OSError when it cannot be read.

    Args:
        path: the file.
        horizon_ns: when the job had certainly ended, where that is known.
    """
    found = EventFile(name=EventFileName(path.name))
    events = _decode(path.read_bytes(), found)
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
                found.unreadable_count += 1
            else:
                found.rows.append(row._replace(start_ns=row.start_ns + (base_ns or 0)))
    if base_ns is None:
        _guess_base(found)
    _drop_impossible(found, horizon_ns)
    return found


def _row(event: _Event, phase: str, args: Mapping[str, Any]) -> Row | None:
    try:
        start = nanoseconds(bytes(event.ts))
        duration = nanoseconds(bytes(event.dur)) if event.ph == "X" else None
    except ValueError:
        return None
    return Row(
        begins=event.ph != "E",
        phase=phase,
        name=event.name,
        start_ns=start,
        duration_ns=duration,
        thread=event.tid,
        args=args,
    )


def _guess_base(found: EventFile) -> None:
    """Without a base, times are absolute, or the last event ends when the file's name says."""
    rows = found.rows
    if not rows or found.name.end_us is None or rows[0].start_ns > _ABSOLUTE_NS:
        return
    starts = max(row.start_ns for row in rows)
    ends = [row.start_ns + (row.duration_ns or 0) for row in rows]
    last = max((end for end in ends if end <= starts + LONGEST_NS), default=starts)
    base_ns = found.name.end_us * 1000 - last
    found.rows = [row._replace(start_ns=row.start_ns + base_ns) for row in rows]
    found.base_is_guessed = True


def _drop_impossible(found: EventFile, horizon_ns: int | None) -> None:
    limit = max((row.start_ns for row in found.rows), default=0) + LONGEST_NS
    if horizon_ns is not None:
        limit = min(limit, horizon_ns)
    kept = []
    for row in found.rows:
        duration = row.duration_ns or 0
        if duration < 0 or row.start_ns + duration > limit:
            found.impossible.append(duration)
        else:
            kept.append(row)
    found.rows = kept


def _decode(text: bytes, found: EventFile) -> list[_Event]:
    """The events of an array, or of what is left of one."""
    try:
        return _ARRAY.decode(text)
    except _MALFORMED:
        pass
    # In Latin-1 a place in the text is a place in the bytes.
    characters = text.decode("latin-1")
    found.truncated = not characters.rstrip("\0 \t\r\n").endswith("]")
    events = []
    at = characters.find("{")
    while at >= 0:
        try:
            _, end = _OBJECT.raw_decode(characters, at)
            events.append(_ONE.decode(text[at:end]))
        except (*_MALFORMED, ValueError, RecursionError):
            found.unreadable_count += 1
            end = _next_line(characters, at)
        at = characters.find("{", end)
    return events


def _next_line(characters: str, at: int) -> int:
    """Where to go on behind what cannot be read: Debugger writes one event per line."""
    line = characters.find("\n", at)
    return len(characters) if line < 0 else line
