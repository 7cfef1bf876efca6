"""Inputs and result of the search for a cause."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.diagnosis.pipeline_model import Pipeline
from stepscope.diagnosis.shares import PhaseSplit, Shares
from stepscope.diagnosis.verdict import Evidence, EvidenceKind, Stage
from stepscope.run import Rank, Run

CONTRIBUTING_RATIO = 0.05
"""A cause with at least this share of the step gets a fix of its own."""
EVEN_ODDS = 0.5
"""Certainty where nothing tells which of two is larger: a debug switch, or what it slows down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseInputs:
    """Inputs of the search for a cause within a suspect."""

    run: Run
    shares: Shares
    """Shares of the job's step."""
    split: PhaseSplit
    starved_rank: Rank
    """The rank that waits longest for batches; the other ranks wait for it."""
    pipeline: Pipeline | None
    """Input pipeline of the starved rank; None where batch creation was not recorded."""


@dataclass(slots=True, kw_only=True)
class CauseFinding:
    """A cause with its evidence."""

    cause: str
    missing: str = ""
    """The recording that would show an `UNKNOWN` cause, a full sentence."""
    evidence_kind: EvidenceKind = "timed"
    certainty: float = 1.0
    """Probability that this cause is the largest of its suspect; 1 where all was measured."""
    reason: str | None = None
    """Reason for a fix, where it differs from the first evidence."""
    stages: list[Stage] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    contributing: list[tuple[str, float, str]] = field(default_factory=list)
    """Other causes of the same suspect that are worth a fix: cause, share of the step and reason,
    largest first."""
