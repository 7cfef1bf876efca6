"""Comparison of Chrome files event by event, and of runs table by table.

Times are compared as decimal text, so nothing is rounded before a comparison.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.cli import root
from stepscope.importers.kineto.arguments import EventKind, OtherKind, kind_of
from stepscope.schema import TRACE_TABLES
from stepscope.store import RunReader, open_run
from tests.support.kineto_files import sums_of_levels

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")

NAMING_OPERATORS = (*DEVICE_WORK, "cuda_runtime", "cuda_driver", "cuda_sync")
"""Categories whose events name an operator."""

RENUMBERED = {"External id", "external id", "Python id", "Python parent id"}
"""Keys of links, compared by their targets."""
REPEATED = {
    "Ev Idx": "the index of the event in its file",
    "Profiler Event Index": "an older spelling of it",
    "external ts": "the start of the operator that `external id` names",
    "Trace name": "the same for all events of a file",
    "Trace iteration": "the same for all events of a file",
    "Device": "the process, which the event itself names",
    "memory bandwidth (GB/s)": "bytes over duration; older recorders round the duration after",
    "src": "an address, which means nothing outside the process",
    "dst": "likewise",
    "ptr": "likewise",
}
"""Keys that are missing or differ, because other columns say the same or they are useless."""
MEANING_NOTHING = {
    "queued": 0,
    "context": 0,
    "Record function id": 0,
    "graph id": 0,
    "stream": -1,
    "wait_on_stream": -1,
    "wait_on_cuda_event_record_corr_id": -1,
}
"""Keys that are missing if they have the value that stands for none."""
ADDED = {
    "External id": "found by time where the file gives no number that leads to an operator",
    "Python parent id": "found by time, or null, where the file has none",
    "Ev Idx": "the index of the event",
    "device": "the process where the work is drawn",
    "stream": "the thread where the work is drawn",
    "Device Id": "-1 where the file names no device",
    "memory bandwidth (GB/s)": "bytes over duration",
}
"""Keys that only the exported event may have."""

Event = dict[str, Any]
Key = tuple[Any, ...]


@dataclass
class ChromeFile:
    """File with exact numbers."""

    path: Path

    @cached_property
    def header(self) -> dict[str, Any]:
        """Return members except the events."""
        content = self._content
        if isinstance(content, list):
            return {}
        return {key: value for key, value in content.items() if key != "traceEvents"}

    @cached_property
    def events(self) -> list[Event]:
        content = self._content
        return content if isinstance(content, list) else content["traceEvents"]

    @cached_property
    def _content(self) -> Any:
        data = self.path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return json.loads(text, strict=False, parse_float=Decimal)

    @cached_property
    def base_ns(self) -> int:
        return int(self.header.get("baseTimeNanoseconds", 0))

    def time(self, event: Event) -> int | None:
        """Return the time of an event in nanoseconds since 1970."""
        return self.base_ns + nanoseconds(event["ts"]) if "ts" in event else None

    def key(self, event: Event) -> Key:
        """Return the properties that survive a round trip, except the arguments."""
        duration = nanoseconds(event["dur"]) if "dur" in event else None
        return (
            event["ph"],
            category(event),
            event["name"],
            *track_of(event),
            self.time(event),
            duration,
        )

    @cached_property
    def by_category(self) -> dict[Any, list[Event]]:
        """Return events of the tables, in the order of the file."""
        events: dict[Any, list[Event]] = defaultdict(list)
        for event in self.events:
            if event["ph"] not in {"M", "s", "t", "f"}:
                events[event["ph"], category(event)].append(event)
        return events

    @cached_property
    def operators(self) -> dict[Any, Key]:
        """Return operators by their External id."""
        return {
            external(event): self.key(event)
            for event in self.by_category["X", "cpu_op"]
            if external(event) is not None
        }

    @cached_property
    def annotations(self) -> dict[Any, Key]:
        """Named ranges of the host by their External id, which their shadows have, too."""
        hosts = self.by_category["X", "user_annotation"]
        return {external(event): self.key(event) for event in hosts}

    @cached_property
    def functions(self) -> dict[Any, Key]:
        """Python functions by their Python id."""
        return {
            event["args"].get("Python id"): self.key(event)
            for event in self.by_category["X", "python_function"]
        }

    @cached_property
    def calls(self) -> dict[Any, Event]:
        """Runtime calls by correlation."""
        return {
            event["args"]["correlation"]: event
            for category in ("cuda_runtime", "cuda_driver")
            for event in self.by_category["X", category]
            if event["args"].get("correlation", 0) > 0
        }

    def links(self, event: Event) -> dict[str, Any]:
        """Return the targets of the links of an event."""
        targets: dict[str, Any] = {}
        if category(event) in NAMING_OPERATORS:
            operator = self._operator_of(event)
            targets |= {} if operator is None else {"operator": operator}
        if category(event) == "gpu_user_annotation" and external(event) in self.annotations:
            targets["host"] = self.annotations[external(event)]
        parent = event.get("args", {}).get("Python parent id")
        if parent is not None and parent in self.functions:
            targets["caller"] = self.functions[parent]
        return targets

    def _operator_of(self, event: Event) -> Key | None:
        """Return the operator that an event, or the call that launched it, names.

        In traces of PyTorch 2.0 that number may be another one: an operator that is not open at
        the time has called nothing.
        """
        number = external(event)
        if category(event) in DEVICE_WORK:
            event = self.calls.get(event.get("args", {}).get("correlation"), event)
        operator = self.operators.get(number)
        if operator is None or category(event) in DEVICE_WORK:
            return operator
        at = self.time(event)
        return operator if operator[5] <= at <= operator[5] + operator[6] else None

    def launch_arrows(self) -> Counter[Key]:
        """Return arrows from launches: correlation, position and time of both ends."""
        ends: dict[Any, dict[str, list[Key]]] = defaultdict(lambda: {"s": [], "f": []})
        for event in self.events:
            if event["ph"] in {"s", "f"} and event["cat"] == "ac2g":
                end = (*track_of(event), self.time(event))
                ends[event["id"]][event["ph"]].append(end)
        return Counter(
            (number, start, end)
            for number, phases in ends.items()
            for start in phases["s"]
            for end in phases["f"]
        )

    def expected_launch_arrows(self) -> Counter[Key]:
        """Return the arrows that follow from the arguments of calls and work."""
        return Counter(
            (
                event["args"]["correlation"],
                *(
                    (*track_of(end), self.time(end))
                    for end in (self.calls[event["args"]["correlation"]], event)
                ),
            )
            for category in DEVICE_WORK
            for event in self.by_category["X", category]
            if event["args"].get("correlation") in self.calls
        )

    def other_arrows(self) -> Counter[Key]:
        """Return the ends of all other arrows."""
        return Counter(
            (e["ph"], e["id"], e["cat"], e["name"], *track_of(e), self.time(e), e.get("bp"))
            for e in self.events
            if kind_of(e["ph"], e.get("cat", ""), "") is OtherKind.FLOW
        )

    def track_names(self) -> dict[Key, Any]:
        """Return names and order of the processes and threads that have events."""
        used = {track_of(event) for event in self.events if event["ph"] == "X"}
        used |= {pid for pid, _ in used}
        names = {}
        for event in self.events:
            if event["ph"] == "M":
                pid, tid = track_of(event)
                key = (pid, tid) if event["name"].startswith("thread_") else pid
                if key in used:
                    (names[event["name"], key],) = event["args"].values()
        return names


def track_of(event: Event) -> tuple[Any, Any]:
    """Return process and thread; older recorders write thread numbers as strings in some events."""
    return _number(event.get("pid")), _number(event.get("tid"))


def _number(written: Any) -> Any:
    return int(written) if isinstance(written, str) and written.isdecimal() else written


def nanoseconds(text: Any) -> int:
    """Convert microseconds, a string in some files, to exact nanoseconds."""
    value = Decimal(text) * 1000
    assert value == int(value), f"{text} has digits below a nanosecond"
    return int(value)


def category(event: Event) -> str | None:
    """Return the category in the spelling of PyTorch 2."""
    kind = kind_of(event["ph"], event.get("cat", ""), event["name"])
    return kind.categories[0] if isinstance(kind, EventKind) else event.get("cat")


def external(event: Event) -> Any:
    args = event.get("args", {})
    return args.get("External id", args.get("external id"))


def differences(original: ChromeFile, exported: ChromeFile) -> Iterator[str]:
    """Yield the differences of an exported file."""
    for label in sorted({*original.by_category, *exported.by_category}, key=str):
        ours = _by_key(exported, exported.by_category.get(label, []))
        theirs = _by_key(original, original.by_category.get(label, []))
        for key in theirs.keys() | ours.keys():
            events = theirs.get(key, [])
            exported_events = ours.get(key, [])
            if len(events) != len(exported_events):
                yield f"{key}: {len(events)} in the original, {len(exported_events)} exported"
                continue
            for event, written in zip(events, exported_events, strict=True):
                yield from _argument_differences(key, event, written)
                for name, target in original.links(event).items():
                    if exported.links(written).get(name) != target:
                        yield f"{key}: {name} is {exported.links(written).get(name)}, not {target}"
                if event["ph"] == "X" and written.get("args", {}).get("memory bandwidth (GB/s)"):
                    bandwidth = float(written["args"]["memory bandwidth (GB/s)"])
                    if bandwidth != written["args"]["bytes"] / nanoseconds(written["dur"]):
                        yield f"{key}: bandwidth {bandwidth}"


def _by_key(file: ChromeFile, events: list[Event]) -> dict[Key, list[Event]]:
    by_key: dict[Key, list[Event]] = defaultdict(list)
    for event in events:
        by_key[file.key(event)].append(event)
    return by_key


def _argument_differences(key: Key, event: Event, written: Event) -> Iterator[str]:
    theirs, ours = _plain(event.get("args", {})), _plain(written.get("args", {}))
    for name, value in theirs.items():
        if name in REPEATED or name in RENUMBERED or MEANING_NOTHING.get(name) == value:
            continue
        if name not in ours or ours[name] != value:
            yield f"{key}: {name} is {ours.get(name)!r}, not {value!r}"
    for name in ours.keys() - theirs.keys() - ADDED.keys():
        yield f"{key}: {name} is new: {ours[name]!r}"


def _plain(value: Any) -> Any:
    """Convert decimals to doubles."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


# --- runs ------------------------------------------------------------------------------------


def import_into(run: Path, *files: Path) -> Path:
    """Import files like a user."""
    root.main(["import", *map(str, files), "-o", str(run)], standalone_mode=False)
    return run


def export(run: Path, output: Path, *options: str) -> Path:
    """Export traces of a run like a user."""
    arguments = ["export", str(run), "--to", "chrome", "-o", str(output), *options]
    root.main(arguments, standalone_mode=False)
    return output


DIFFERING_CHECKS = {
    "unmatched_flow": "arrows to calls that launch nothing are not drawn again",
    "unmatched_external_id": "calls whose operator was found by time name it now",
    "clock_base": "names the base, which is another where the file stated none",
}
"""Rows of the quality record that differ after a round trip."""
_EVENT_COLUMNS = {"id", "parent", "python", "forward", "module", "launch", "operator", "host"}
_EVENT_COLUMNS |= {"source", "target"}
_TRACK_COLUMNS = {"track", "source_track", "target_track"}


def comparable_tables(run: Path) -> dict[str, list[str]]:
    """Return sorted rows of the trace tables of a run with one trace.

    The number of the trace is left out; tracks are replaced by their names, and events by their
    index among those in tables, because files differ in the number of metadata and arrows.
    """
    reader = open_run(run)
    tracks = reader.table("tracks")
    names = {
        number: f"{pid}|{tid}|{text}"
        for number, pid, tid, text in zip(
            *(tracks[c].tolist() for c in ("track", "pid", "tid", "pid_is_text")), strict=True
        )
    }
    indices = {event: index for index, event in enumerate(_events(reader))}
    tables = {}
    for table in TRACE_TABLES:
        columns = reader.table(table.name)
        lists: dict[str, list[Any]] = {}
        for name, values in columns.items():
            plain = np.ma.asarray(values).tolist()
            if name in _TRACK_COLUMNS:
                plain = [names.get(value) for value in plain]
            elif name in _EVENT_COLUMNS:
                plain = [None if value is None else indices[value] for value in plain]
            lists[name] = plain
        del lists["trace"]
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        if table.name == "quality":
            rows = [row for row in rows if row["kind"] not in DIFFERING_CHECKS]
            for row in rows:
                row.pop("of_count")  # counts all events
        if table.name == "timeline":
            rows = _summed(rows)
        if table.name == "other_events":
            for row in rows:
                row["args"] = _EXTERNAL.sub("", row["args"] or "")
        if table.name == "traces":
            (row,) = rows
            row.pop("base_ns")  # is selected if the file states none
            row.pop("event_count")  # counts arrows and metadata
            metadata = json.loads(row.pop("metadata"))
            rows = [row, {"schemaVersion": 1, "displayTimeUnit": "ms"} | metadata]
        tables[table.name] = sorted(repr(sorted(row.items(), key=str)) for row in rows)
    return tables


_EXTERNAL = re.compile(r'"External id":\d+,?')
"""In the arguments of synchronisation; a renumbered link, compared between the files."""


def _summed(timeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return sums of levels of detail, which do not depend on the slices of a file.

    At the start of a slice, open ranges do not count for the depth.
    """
    return [{"level": key, "sums": sums} for key, sums in sums_of_levels(timeline).items()]


def _events(reader: RunReader) -> list[int]:
    """Return the ids of all events in tables; ends of arrows have none."""
    tables = [table.name for table in TRACE_TABLES if table.columns[1].name == "id"]
    ids = [reader.table(name, ["id"])["id"] for name in tables]
    return sorted(set(np.concatenate(ids).tolist()))
