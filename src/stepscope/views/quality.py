"""Quality issues of traces that affect the figures of a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from stepscope.quantities import count as format_count, duration
from stepscope.run import QualityIssue, Run, Trace, number_ranges
from stepscope.schema import QUALITY_CHECKS, field_label
from stepscope.views.names import list_names

Topic = Literal["device", "launches", "operators"]
"""Basis of a figure: times on devices, links from devices to the host, the tree of operators."""

_TOPICS: dict[str, tuple[Topic, ...]] = {
    "unlinked_device": ("launches", "operators"),
    "carry_over": ("device", "launches", "operators"),
    "unlinked_launch": ("launches",),
    "captured_by_kind": ("operators",),
    "zero_correlation": ("launches", "operators"),
    "duplicate_correlation": ("launches", "operators"),
    "same_stream_overlap": ("device",),
    "overhang": ("operators",),
    "unmatched_external_id": ("operators",),
    "unmatched_flow": ("operators",),
    "clock_base": (),
}
"""Topics that each check affects. A check that is not listed, such as `truncated`, affects all of
them; the clock base matters only between traces."""

_RUN_CHECKS = {
    "missing_rank": "Ranks of the job without a trace:",
    "clock_base": (
        "Traces without a clock base: their times are read as microseconds since 1970 and may not "
        "be comparable with those of other traces:"
    ),
}
"""Checks across the traces of a run, which no trace's own record contains."""


class QualityNote(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of the quality record that affects the figures of a view."""

    check: str
    count: int
    of_count: Annotated[int | None, field_label("of")]
    worst_ns: int | None
    sentence: str


def note_trace_quality(trace: Trace, *topics: Topic) -> list[QualityNote]:
    """Note the quality issues of a trace that affect figures on these topics."""
    return [
        _make_note(issue, QUALITY_CHECKS.get(check, ""))
        for check, issue in trace.quality_issues.items()
        if issue.count and (check not in _TOPICS or set(topics) & set(_TOPICS[check]))
    ]


def note_run_quality(run: Run, traces: Sequence[Trace]) -> list[QualityNote]:
    """Note the quality issues across traces: absent ranks and unlike clocks.

    Args:
        run: the run; a rank is absent if no trace of the run is of that rank.
        traces: traces that the view shows.
    """
    ranks = {trace.rank for trace in run.traces}
    world = max((trace.world_size or 0 for trace in run.traces), default=0)
    absent = [rank for rank in range(world) if rank not in ranks and None not in ranks]
    baseless = [trace.name for trace in traces if not trace.base_ns]
    issues = [("missing_rank", list_names(number_ranges(absent)), len(absent), world)]
    if len(traces) > 1:
        issues.append(("clock_base", list_names(baseless), len(baseless), len(traces)))
    return [
        _make_note(
            QualityIssue(
                check=check, count=count, of_count=of_count, worst_ns=None, detail=f"{names}."
            ),
            _RUN_CHECKS[check],
        )
        for check, names, count, of_count in issues
        if count
    ]


def _make_note(issue: QualityIssue, meaning: str) -> QualityNote:
    of_count = f" of {format_count(issue.of_count)}" if issue.of_count is not None else ""
    head = f"{issue.check.replace('_', ' ')}: {format_count(issue.count)}{of_count}."
    worst = f"Largest: {duration(issue.worst_ns)}." if issue.worst_ns is not None else None
    return QualityNote(
        check=issue.check,
        count=issue.count,
        of_count=issue.of_count,
        worst_ns=issue.worst_ns,
        sentence=" ".join(part for part in (head, meaning, worst, issue.detail) if part),
    )
