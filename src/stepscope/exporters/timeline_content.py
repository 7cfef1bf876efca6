"""Content of an exported timeline, chosen by source and by the file that the spans came from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope import errors
from stepscope.run import Run, Trace, literal

SOURCES = ("system", "framework", "communication", "traces", "bottlenecks")
"""Samples of the nodes; spans except those of collectives; these; traces; and marks of GPUs that
are hardly used and of findings of rules."""
GPU_BELOW_RATIO = 0.85
"""GPUs busy for a smaller share of the time are marked, as in Debugger's merged timeline."""
_RECORDER = "labels->>'$.recorder'"
_RECORDERS = (
    f"SELECT DISTINCT {_RECORDER} AS recorder FROM spans WHERE {_RECORDER} <> '' ORDER BY recorder"  # noqa: S608
)
MAX_LISTED = 20
"""Names that an error message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineContent:
    """Content of a timeline."""

    sources: Collection[str] = SOURCES
    suffixes: Sequence[str] | None = None
    """Ends of the names of imported files: spans and traces of other files are left out. None for
    all."""
    gpu_below_ratio: float = GPU_BELOW_RATIO

    def has_trace(self, trace: Trace) -> bool:
        """Return True for a trace of the content."""
        if "traces" not in self.sources:
            return False
        return self.suffixes is None or trace.name.endswith(tuple(self.suffixes))

    @property
    def span_condition(self) -> str:
        """SQL condition for the spans."""
        kinds = {"framework": "kind <> 'communication'", "communication": "kind = 'communication'"}
        selected = [condition for source, condition in kinds.items() if source in self.sources]
        condition = f"({' OR '.join(selected) or 'false'})"
        if self.suffixes is None:
            return condition
        suffixes = " OR ".join(f"suffix({_RECORDER}, {literal(text)})" for text in self.suffixes)
        return f"{condition} AND ({suffixes or 'false'})"


def choose_content(
    run: Run,
    *,
    sources: Sequence[str] = SOURCES,
    suffixes: Sequence[str] | None = None,
    gpu_below_ratio: float = GPU_BELOW_RATIO,
) -> TimelineContent:
    """Check a selection of the content.

    Raises:
        UsageError: a source is unknown, or no imported file has a suffix.
    """
    for source in sources:
        if source not in SOURCES:
            raise errors.UsageError(
                f"There is no source {source!r}; there are {', '.join(SOURCES)}."
            )
    if suffixes is not None:
        recorders = run.reader.sql(_RECORDERS)["recorder"].tolist()
        names = [*recorders, *(trace.name for trace in run.traces)]
        for suffix in suffixes:
            if not any(name.endswith(suffix) for name in names):
                raise errors.UsageError(
                    f"No imported file has the suffix {suffix!r}; there are "
                    f"{', '.join(names[:MAX_LISTED]) or 'none'}."
                )
    return TimelineContent(sources=sources, suffixes=suffixes, gpu_below_ratio=gpu_below_ratio)


def find_step_range(run: Run, steps: tuple[int, int]) -> tuple[int, int]:
    """Find the time from the start of the first step of any rank to the end of the last of any.

    Args:
        run: the run.
        steps: first step and the step after the last.

    Returns:
        Start and end in epoch nanoseconds.

    Raises:
        UsageError: no rank has these steps.
    """
    starts, ends = [], []
    for rank in run.ranks:
        rows = np.flatnonzero((rank.steps.number >= steps[0]) & (rank.steps.number < steps[1]))
        if len(rows):
            starts.append(int(rank.steps.start[rows[0]]))
            ends.append(int(rank.steps.end[rows[-1]]))
    if not starts:
        raise errors.UsageError(f"No rank has a step from {steps[0]} to before {steps[1]}.")
    return min(starts), max(ends)
