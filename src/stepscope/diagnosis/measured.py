"""Measured reliability: verdicts on public programs, outcomes of fixes, tried changes.

`accuracy.json` counts first verdicts: given before anyone had read the program's truth, with rules
that did not change afterwards. `python -m benchmarks.foreign` writes it from the results in
`benchmarks/results/foreign.json`; docs/diagnosis-benchmark.md describes them.

Outcomes of tried fixes, by kind: the first change that a fix makes. `python -m
benchmarks.fix_outcomes` writes `fix_outcomes.json` from the outcomes of `stepscope try`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import structs

from stepscope import quantities, schema
from stepscope.diagnosis import verdict
from stepscope.diagnosis.causes.attribution import THRESHOLDS
from stepscope.run import Run

COUNTS = Path(__file__).with_name("accuracy.json")
MIN_PROGRAMS = 5
"""Programs with a verdict from which its own accuracy counts as much as that of others. Of 1 to 30,
about this number predicts the verdicts on the other public programs best."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verdicts of one kind."""

    verdict_count: int = 0
    """Programs with this verdict."""
    right_count: int = 0
    """Programs whose measured fixes prove its suspect and its cause."""

    def estimate_accuracy(self, expected_ratio: float) -> float:
        """Estimate the share of right verdicts, as `MIN_PROGRAMS` more of the expected one would.

        https://en.wikipedia.org/wiki/Additive_smoothing
        """
        right_count = self.right_count + MIN_PROGRAMS * expected_ratio
        return right_count / (self.verdict_count + MIN_PROGRAMS)

    def __add__(self, more: Counts) -> Counts:
        return Counts(
            verdict_count=self.verdict_count + more.verdict_count,
            right_count=self.right_count + more.right_count,
        )


class AccuracyCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verdicts on public programs, by cause and by kind of evidence."""

    causes: dict[str, Counts] = {}
    evidence_kinds: dict[verdict.EvidenceKind, Counts] = {}

    def estimate_accuracy(self, cause: str, kind: verdict.EvidenceKind) -> float:
        """Estimate how often a verdict is right; see the function of this name."""
        if kind == "traced":
            return self.evidence_kinds.get(kind, Counts()).estimate_accuracy(UNMEASURED_RATIO)
        of_all = sum(self.causes.values(), Counts()).estimate_accuracy(UNMEASURED_RATIO)
        of_kind = self.evidence_kinds.get(kind, Counts()).estimate_accuracy(of_all)
        return self.causes.get(cause, Counts()).estimate_accuracy(of_kind)


UNMEASURED_RATIO = 0.5
"""Accuracy of verdicts that were not tried on public programs: from traces, or from outside."""


def estimate_accuracy(cause: str, kind: verdict.EvidenceKind) -> float:
    """Estimate how often a stable verdict with this cause is right on a program of strangers.

    The fewer public programs had it, the more the accuracy of all verdicts from the same kind of
    evidence counts, and likewise that of all. Verdicts on watched jobs say nothing about those
    from traces alone.
    """
    return _load_counts().estimate_accuracy(cause, kind)


@cache
def _load_counts() -> AccuracyCounts:
    return msgspec.json.decode(COUNTS.read_bytes(), type=AccuracyCounts)


OUTCOMES = Path(__file__).with_name("fix_outcomes.json")
MAX_WRONG_RATIO = 0.1
MIN_WRONG_COUNT = 2
"""One wrong outcome alone says little about a kind."""


class OutcomeCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcomes of one kind of fix for which a shorter step was predicted."""

    tried_count: int
    right_count: int
    """The whole interval of the measured saving was above zero."""
    wrong_count: int
    """The whole interval was below zero: the fix made the step longer."""
    median_ratio: float | None
    """Median of measured / predicted saving; None where only bounds were predicted."""

    @property
    def is_often_wrong(self) -> bool:
        """True if the sign was wrong more than once in ten."""
        return (
            self.wrong_count >= MIN_WRONG_COUNT
            and self.wrong_count > MAX_WRONG_RATIO * self.tried_count
        )


class FixOutcomes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcomes by kind of fix."""

    kinds: dict[str, OutcomeCounts] = {}


def is_often_wrong(fix: verdict.Fix) -> bool:
    """Return True for a kind of fix whose predicted sign was wrong more than once in ten.

    Such a fix is listed after the others.
    """
    counts = load_outcomes().kinds.get(fix.changes[0].name) if fix.changes else None
    return counts is not None and counts.is_often_wrong


@cache
def load_outcomes() -> FixOutcomes:
    """Load the outcomes that came with this version."""
    return msgspec.json.decode(OUTCOMES.read_bytes(), type=FixOutcomes)


TRIES = "tries"
"""Kind of the documents in a run."""


def read_tried_changes(run: Run) -> list[schema.TriedChange]:
    """Read the outcomes of a run, the oldest first."""
    return sorted(
        run.reader.documents(TRIES, schema.TriedChange).values(),
        key=lambda outcome: outcome.created_ns,
    )


def attach_outcomes(
    fixes: Sequence[verdict.Fix], outcomes: Sequence[schema.TriedChange]
) -> list[verdict.Fix]:
    """Attach the last outcome of the same changes to each fix."""
    latest = {_get_key(outcome.changes): outcome for outcome in outcomes}
    return [
        structs.replace(fix, tried=_summarize(latest[key]))
        if (key := _get_key(fix.changes)) in latest and fix.changes
        else fix
        for fix in fixes
    ]


def _get_key(changes: Sequence[schema.Change]) -> frozenset[tuple[str, str]]:
    return frozenset((change.name, change.value) for change in changes)


def _summarize(outcome: schema.TriedChange) -> verdict.TriedFix:
    prediction = describe_prediction(outcome)
    return verdict.TriedFix(
        saving_ratio=outcome.saving_ratio,
        min_saving_ratio=outcome.min_saving_ratio,
        max_saving_ratio=outcome.max_saving_ratio,
        confidence_ratio=outcome.confidence_ratio,
        pair_count=len(outcome.pairs),
        text=describe_outcome(outcome)
        + ("" if prediction is None else f", predicted {prediction}"),
    )


def describe_outcome(outcome: schema.TriedChange) -> str:
    """Describe a measured change of the step with its interval.

    `12% shorter (9% to 14%, 5 pairs)`, `about even (2% longer to 3% shorter, 5 pairs)`
    """
    low, high = outcome.min_saving_ratio, outcome.max_saving_ratio
    pairs = quantities.count_of(len(outcome.pairs), "pair")
    if outcome.is_even:
        return f"about even ({describe_saving(low)} to {describe_saving(high)}, {pairs})"
    near, far = sorted((abs(low), abs(high)))
    words = describe_saving(outcome.saving_ratio)
    return f"{words} ({quantities.percent(near)} to {quantities.percent(far)}, {pairs})"


def describe_prediction(outcome: schema.TriedChange) -> str | None:
    """Describe the prediction of a change that was tried; None without one."""
    if outcome.predicted_saving_ratio is None:
        return None
    bound = "at most " if outcome.is_predicted_bound else ""
    return bound + describe_saving(outcome.predicted_saving_ratio)


def describe_saving(saving_ratio: float) -> str:
    """Describe a saving as a share of the step.

    >>> describe_saving(0.12), describe_saving(-0.864), describe_saving(0.001)
    ('12% shorter', '86% longer', 'unchanged')
    """
    if abs(saving_ratio) < verdict.MIN_SAVING_RATIO:
        return "unchanged"
    return f"{quantities.percent(abs(saving_ratio))} {'shorter' if saving_ratio > 0 else 'longer'}"


MIN_GPU_RATIO, USUAL_GPU_RATIO = 0.85, 0.90
"""Utilization of GPUs that rarely wait for batches, while they train."""
MAX_DATA_RATIO = THRESHOLDS.data_pipeline
TARGET_RULES = ("DataloaderBottleneck", "LowGPUUtilization")
"""Rules that find such a bottleneck."""


def list_targets(suspect: verdict.Suspect, *, uses_gpu: bool) -> list[verdict.Target]:
    """List the targets; none where no GPU waits for the data pipeline."""
    if suspect != "data_pipeline" or not uses_gpu:
        return []
    texts: dict[verdict.TargetName, str] = {
        "gpu_utilization": f"GPU utilization of {quantities.percent(MIN_GPU_RATIO)} to "
        f"{quantities.percent(USUAL_GPU_RATIO)} while training",
        "data_loading": f"data loading below {quantities.percent(MAX_DATA_RATIO)} of step time",
        "rules": f"no issue found by {' and '.join(TARGET_RULES)}",
    }
    return [verdict.Target(name=name, text=text) for name, text in texts.items()]
