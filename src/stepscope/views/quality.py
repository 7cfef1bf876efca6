"""How far the numbers of a recording can be trusted, said beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from stepscope.run import QualityIssue, Run, Trace
from stepscope.schema import QUALITY_CHECKS

Topic = Literal["device", "launches", "operators"]
"""What a number is made of: times on devices, links from devices to the host, the tree of
operators."""

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
"""What each check puts in doubt; one that is not listed, such as `truncated`, everything. How the
clock is based only matters between recordings."""

_ACROSS = {
    "missing_rank": "Ranks of the job of which no recording is here:",
    "clock_base": (
        "Recordings whose files state no base of their times: these are taken for microseconds "
        "since 1970, and may not be comparable with those of the others:"
    ),
}
"""What is doubtful where recordings stand side by side; it is in no recording's own record."""
_LISTED = 8


class QualityNote(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of the quality record that affects the numbers of a view."""

    check: str
    count: int
    of_count: int | None
    worst_ns: int | None
    sentence: str


def quality_notes(trace: Trace, *topics: Topic) -> list[QualityNote]:
    """What is doubtful about a recording, of what numbers on these topics depend on."""
    return [
        _note(doubt, QUALITY_CHECKS.get(check, ""))
        for check, doubt in trace.quality_issues.items()
        if doubt.count and (check not in _TOPICS or set(topics) & set(_TOPICS[check]))
    ]


def notes_across(run: Run, traces: Sequence[Trace]) -> list[QualityNote]:
    """What is doubtful where recordings stand side by side: absent ranks, and unlike clocks.

    Args:
        signals: of the run; a rank is absent when nothing in it is of that rank.
        traces: the recordings that are shown.
    """
    found = {trace.rank for trace in run.traces}
    world = max((trace.world_size or 0 for trace in run.traces), default=0)
    absent = [rank for rank in range(world) if rank not in found and None not in found]
    baseless = [trace.name for trace in traces if not trace.base_ns]
    doubts = [("missing_rank", _ranges(absent), len(absent), world)]
    if len(traces) > 1:
        doubts.append(("clock_base", _some(baseless), len(baseless), len(traces)))
    return [
        _note(
            QualityIssue(check=check, count=count, of_count=of, worst_ns=None, detail=f"{named}."),
            _ACROSS[check],
        )
        for check, named, count, of in doubts
        if count
    ]


def _note(doubt: QualityIssue, meaning: str) -> QualityNote:
    of = f" of {doubt.of_count:,}" if doubt.of_count is not None else ""
    head = f"{doubt.check.replace('_', ' ')}: {doubt.count:,}{of}."
    worst = f"The largest: {doubt.worst_ns:,} ns." if doubt.worst_ns is not None else None
    return QualityNote(
        check=doubt.check,
        count=doubt.count,
        of_count=doubt.of_count,
        worst_ns=doubt.worst_ns,
        sentence=" ".join(part for part in (head, meaning, worst, doubt.detail) if part),
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in few words.

    >>> _ranges([1, 2, 3, 7])
    '1 to 3, 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return _some([f"{r[0]} to {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs])
