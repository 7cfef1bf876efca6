"""What a search for a cause starts from, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.diagnosis.pipeline_model import Pipeline
from stepscope.diagnosis.shares import Proportions, Shares
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.run import Rank, Run

CONTRIBUTING_RATIO = 0.05
"""What owns this share of the step is worth a fix of its own."""

RIGHT_WHEN_STABLE = 0.93
"""Of jobs whose authors did not know these rules, so many got stable verdicts that were right in
suspect and cause when they were first asked for: 24 of 25 at least twice of three times, and by the
rule of succession (24 + 1) / (25 + 2). See docs/diagnosis-benchmark.md."""
UNRECOGNISED = 0.5
"""A cause that stands for what no name was recognised in is right less often (3 of 14 of those)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run under diagnosis."""

    run: Run
    shares: Shares
    """Of the job's step."""
    split: Proportions
    fed: Rank
    """The rank that waits longest for batches: the others wait for it."""
    pipeline: Pipeline | None
    """How that one is fed, None where nobody saw that."""


@dataclass(slots=True, kw_only=True)
class Finding:
    """A cause with what speaks for it."""

    cause: str
    certainty: float = 1.0
    """How sure it is that this cause of the suspect is the largest; 1 where all was measured."""
    why: str | None = None
    """The reason for a fix, where it is not the first evidence."""
    stages: list[Stage] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    contributing: list[tuple[str, float, str]] = field(default_factory=list)
    """Causes of the same suspect that are worth a fix as well: each with its share of the step
    and the reason, the largest first."""


def line_evidence(file: str, line: int, text: str, ratio: float) -> Evidence:
    name = file.rpartition("/")[2]
    return Evidence(
        text=f"{name}:{line} takes {ratio:.0%} of the time between phases: {text}".rstrip(": "),
        value=ratio,
        unit="ratio",
        source="steps",
    )
