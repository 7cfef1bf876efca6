"""Measured effects of changes that were tried with `stepscope try`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from stepscope.diagnosis.verdict import MIN_SAVING_RATIO, Fix, TriedFix
from stepscope.quantities import count_of, percent
from stepscope.run import Run
from stepscope.schema import Change, TriedChange

TRIES = "tries"
"""Kind of the documents in a run."""


def read_tried_changes(run: Run) -> list[TriedChange]:
    """Read the outcomes of a run, the oldest first."""
    return sorted(
        run.reader.documents(TRIES, TriedChange).values(), key=lambda outcome: outcome.created_ns
    )


def attach_outcomes(fixes: Sequence[Fix], outcomes: Sequence[TriedChange]) -> list[Fix]:
    """Attach the last outcome of the same changes to each fix."""
    latest = {_get_key(outcome.changes): outcome for outcome in outcomes}
    return [
        structs.replace(fix, tried=_summarize(latest[key]))
        if (key := _get_key(fix.changes)) in latest and fix.changes
        else fix
        for fix in fixes
    ]


def _get_key(changes: Sequence[Change]) -> frozenset[tuple[str, str]]:
    return frozenset((change.name, change.value) for change in changes)


def _summarize(outcome: TriedChange) -> TriedFix:
    prediction = describe_prediction(outcome)
    return TriedFix(
        saving_ratio=outcome.saving_ratio,
        min_saving_ratio=outcome.min_saving_ratio,
        max_saving_ratio=outcome.max_saving_ratio,
        confidence_ratio=outcome.confidence_ratio,
        pair_count=len(outcome.pairs),
        text=describe_outcome(outcome)
        + ("" if prediction is None else f", predicted {prediction}"),
    )


def describe_outcome(outcome: TriedChange) -> str:
    """Describe a measured change of the step with its interval.

    `12% shorter (9% to 14%, 5 pairs)`, `about even (2% longer to 3% shorter, 5 pairs)`
    """
    low, high = outcome.min_saving_ratio, outcome.max_saving_ratio
    pairs = count_of(len(outcome.pairs), "pair")
    if outcome.is_even:
        return f"about even ({describe_saving(low)} to {describe_saving(high)}, {pairs})"
    near, far = sorted((abs(low), abs(high)))
    words = describe_saving(outcome.saving_ratio)
    return f"{words} ({percent(near)} to {percent(far)}, {pairs})"


def describe_prediction(outcome: TriedChange) -> str | None:
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
    if abs(saving_ratio) < MIN_SAVING_RATIO:
        return "unchanged"
    return f"{percent(abs(saving_ratio))} {'shorter' if saving_ratio > 0 else 'longer'}"
