"""Accuracy of verdicts on public programs, whose authors did not know the rules.

`accuracy.json` counts first verdicts: given before anyone had read the program's truth, with rules
that did not change afterwards. `python -m benchmarks.foreign` writes it from the results in
`benchmarks/results/foreign.json`; docs/diagnosis-benchmark.md describes them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from stepscope.diagnosis.verdict import EVIDENCE_KINDS, EvidenceKind, name_cause
from stepscope.quantities import count_of

COUNTS = Path(__file__).with_name("accuracy.json")
MIN_PROGRAMS = 5
"""A cause that was the verdict on fewer programs has no accuracy of its own."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verdicts of one kind."""

    verdict_count: int = 0
    """Programs with this verdict."""
    right_count: int = 0
    """Programs whose measured fixes prove its suspect and its cause."""

    @property
    def accuracy_ratio(self) -> float:
        """Expected share of right verdicts by the rule of succession, (right + 1) / (verdicts + 2).

        https://en.wikipedia.org/wiki/Rule_of_succession
        """
        return (self.right_count + 1) / (self.verdict_count + 2)

    def __str__(self) -> str:
        return f"right for {self.right_count} of {self.verdict_count}"

    def __add__(self, more: Counts) -> Counts:
        return Counts(
            verdict_count=self.verdict_count + more.verdict_count,
            right_count=self.right_count + more.right_count,
        )


class AccuracyCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verdicts on public programs, by cause and by kind of evidence."""

    causes: dict[str, Counts] = {}
    evidence_kinds: dict[EvidenceKind, Counts] = {}


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Expected accuracy of a verdict, and its source in words."""

    ratio: float
    basis: str


def estimate_accuracy(cause: str, kind: EvidenceKind) -> Accuracy:
    """Estimate how often a stable verdict with this cause is right.

    The counts are those of the cause; with fewer than `MIN_PROGRAMS`, those of all verdicts from
    the same kind of evidence; with fewer again, those of all verdicts. Verdicts on watched jobs say
    nothing about those from traces alone.
    """
    counts = _load_counts()
    if kind == "traced":
        return _estimate_from_traces(counts.evidence_kinds.get(kind, Counts()))
    of_cause = counts.causes.get(cause, Counts())
    answer = "no bottleneck" if cause == "none" else name_cause(cause)
    if of_cause.verdict_count >= MIN_PROGRAMS:
        return Accuracy(
            ratio=of_cause.accuracy_ratio,
            basis=f"On public programs, the verdict “{answer}” was {of_cause}.",
        )
    of_kind, source = counts.evidence_kinds.get(kind, Counts()), EVIDENCE_KINDS[kind]
    if of_kind.verdict_count < MIN_PROGRAMS:
        of_kind, source = sum(counts.causes.values(), Counts()), "any evidence"
    if not of_kind.verdict_count:
        basis = "No verdict was checked on public programs yet."
        return Accuracy(ratio=of_kind.accuracy_ratio, basis=basis)
    programs = count_of(of_cause.verdict_count, "public program")
    finding = (
        f"Only {programs} had the verdict “{answer}”"
        if of_cause.verdict_count
        else f"No public program had the verdict “{answer}”"
    )
    return Accuracy(
        ratio=of_kind.accuracy_ratio, basis=f"{finding}; verdicts from {source} were {of_kind}."
    )


def _estimate_from_traces(traced: Counts) -> Accuracy:
    basis = "No verdict from a trace alone was checked on public programs yet."
    if traced.verdict_count:
        basis = f"On public programs, verdicts from traces alone were {traced}."
    return Accuracy(ratio=traced.accuracy_ratio, basis=basis)


def estimate_outside_accuracy() -> Accuracy:
    """Estimate how often a verdict on a job that was recorded from outside is right."""
    return Accuracy(
        ratio=Counts().accuracy_ratio,
        basis="No verdict on a job recorded from outside was checked on public programs yet.",
    )


@cache
def _load_counts() -> AccuracyCounts:
    return msgspec.json.decode(COUNTS.read_bytes(), type=AccuracyCounts)
