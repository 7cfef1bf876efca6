"""Quality issues of a trace, as rows of the table `quality`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepscope.importers.kineto.cells import integers_of
from stepscope.importers.kineto.describe import Header
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.joins import Counts
from stepscope.importers.kineto.kinds import ANNOTATION, OPERATOR
from stepscope.importers.kineto.reading import Reading
from stepscope.store import DictColumn

_RECORDER_COUNTS = re.compile(r"Record counts: (.*)")
_DROPS = ("dropped", "out-of-range", "invalid ext correlations", "unexpected")


def quality_rows(reading: Reading, counts: Counts) -> Mapping[str, Any]:
    """Return a row for every check that found an issue, and one for the clock base."""
    gathered, header, frame = reading.gathered, reading.header, reading.frame
    rows: list[tuple[str, int, int | None, int | None, str | None]] = []

    def add(
        check: str,
        count: int,
        of_count: int | None = None,
        worst_ns: int | None = None,
        detail: str | None = None,
    ) -> None:
        if count:
            rows.append((check, count, of_count, worst_ns, detail))

    add("unlinked_device", counts.unlinked, counts.device)
    add("unlinked_launch", counts.unlinked_launches, counts.launching)
    add("captured_by_kind", counts.captured, counts.device)
    add("carry_over", counts.carry_over, counts.device)
    add("zero_correlation", counts.zero_correlation, counts.device)
    add("duplicate_correlation", counts.duplicate_correlation, counts.launches)
    add("same_stream_overlap", counts.overlaps, counts.device, counts.worst_overlap_ns)
    add("impossible_duration", counts.impossible_duration, gathered.event_count)
    add("impossible_time", counts.impossible_time, gathered.event_count)
    add("overhang", counts.overhangs, counts.ranges, counts.worst_overhang_ns)
    add("unmatched_external_id", counts.matched_by_time, counts.calls)
    lost = [f"{gathered.lost_events} events could not be read"] * (gathered.lost_events > 0)
    lost += [header.unread] if header.unread else []
    lost_bytes = gathered.lost_bytes or int(header.unread is not None)
    add("lost_text", lost_bytes, frame.text_bytes, None, "; ".join(lost))
    add("repaired_event", gathered.repaired, gathered.event_count)
    add("shortened_text", gathered.shortened)
    ended = frame.broken_stream or "the list of events has no end"
    add("truncated", int(reading.truncated), None, None, ended)
    add("dropped_by_recorder", *_dropped(header))
    add("duplicate_step", _duplicate_steps(gathered), None)
    starts, ends = gathered.flow_counts
    add("unmatched_flow", abs(ends - starts), starts + ends)
    rows.append(("clock_base", 1, None, None, _clock(reading)))
    return {
        "kind": DictColumn.encode(row[0] for row in rows),
        "count": np.array([row[1] for row in rows], dtype=np.int64),
        "of_count": integers_of([row[2] for row in rows]),
        "worst_ns": integers_of([row[3] for row in rows]),
        "detail": DictColumn.encode(row[4] for row in rows),
    }


def _dropped(header: Header) -> tuple[int, None, None, str | None]:
    """Return the count and names of records that the recorder's log in the file reports as lost."""
    info = header.content.get("INFO")
    lines = info if isinstance(info, list) else []
    total, details = 0, []
    for line in lines:
        match = _RECORDER_COUNTS.search(str(line))
        for name, value in re.findall(r"([\w -]+?)\s*=\s*(\d+)", match[1] if match else ""):
            if any(word in name.lower() for word in _DROPS) and int(value):
                total += int(value)
                details.append(f"{name.strip(' ,')}: {value}")
    return total, None, None, "; ".join(details) or None


def _duplicate_steps(gathered: Gathered) -> int:
    kinds = (ANNOTATION, OPERATOR)
    codes = np.concatenate([gathered.columns(kind, "name")["name"] for kind in kinds])
    steps = [code for code, name in enumerate(gathered.strings) if name.startswith("ProfilerStep#")]
    step_codes = codes[np.isin(codes, steps)]
    return len(step_codes) - len(np.unique(step_codes))


def _clock(reading: Reading) -> str:
    base = reading.header.base_ns
    if base:
        return f"times are relative to the base time of the file, {base} ns since 1970"
    assumption = "its times are assumed to be microseconds since 1970"
    if reading.truncated and not reading.frame.bare_array:
        return f"the end of the file, which may contain a base time, is missing: {assumption}"
    return f"the file has no base time: {assumption}"
