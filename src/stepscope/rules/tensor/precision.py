"""Scales of a GradScaler that have collapsed, and gradients clipped in nearly all steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepscope import analysis, quantities
from stepscope.quantities import count, count_of, number, percent
from stepscope.rules.base import require_more_than
from stepscope.rules.parameters import Count, Percentage, Positive
from stepscope.rules.tensor.losses import LossParameters, LossState, LossViolation, PerLossRule

SCALE_PREFIX = "grad_scaler/scale"
"""Start of the names of recorded scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaleCollapseParameters(LossParameters):
    """Lowest scale."""

    threshold: Positive = 1.0
    """The rule fires if decreases take the scale below this."""


@dataclass(slots=True, kw_only=True)
class Scale(LossState):
    """State of the scale of one scaler."""

    latest: float | None = None
    decrease_count: int = 0
    """Updates that have decreased it."""
    highest: float = 0.0
    """Highest scale so far."""


class LossScaleCollapse(PerLossRule[LossScaleCollapseParameters, Scale]):
    """Checks whether the scale of a GradScaler collapses.

    ## What it checks
    The scale after each update of a `GradScaler`, which halves it when a gradient is infinite or
    NaN, and skips the step. The rule fires if decreases take the scale from `threshold` or above to
    below it. A scale that has been below from its first update on does not count. Datapoints are
    recorded updates, violations those after a decrease that left the scale below `threshold`. The
    scale is recorded with `--tensors losses` or `--tensors gradients`.

    ## Why it matters
    [PyTorch](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update): if the
    scale falls below 1, something is likely wrong. A scaler exists to make gradients larger.
    Each halving is a step without an update, and at a scale this low gradients underflow to zero.
    Models that were trained in bfloat16 often exceed the largest number of float16, 65,504.

    ## What to do
    Use bfloat16, which needs no scaler. Otherwise compute the part that overflows in float32, lower
    the learning rate, or clip gradients after `unscale_`. `--find-nan` names the operator.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "tensors"
    parameters_type = LossScaleCollapseParameters
    state_type = Scale
    prefixes = (SCALE_PREFIX,)
    recommendation = "Use bfloat16, or find the operator that overflows with --find-nan."
    missing = "the scale of no GradScaler was recorded"
    advice = "run a job that uses a GradScaler with `--tensors losses`"

    def judge(self, loss: Scale, series: analysis.LoggedScalars) -> list[LossViolation]:
        threshold = self.parameters.threshold
        violations = []
        for row, (value, t_ns) in enumerate(
            zip(series.value.tolist(), series.t_ns.tolist(), strict=True)
        ):
            is_decrease = loss.latest is not None and value < loss.latest
            loss.latest = value
            loss.highest = max(loss.highest, value)
            loss.decrease_count += is_decrease
            if is_decrease and value < threshold <= loss.highest:
                record = loss.record_count + row
                violations.append(
                    LossViolation(t_ns=t_ns, record=record, value=value, reference=loss.highest)
                )
        return violations

    def describe(self, loss: Scale, violation: LossViolation) -> str:
        return (
            f"the scale has fallen from {number(violation.reference)} to {number(violation.value)} "
            f"at update {count(violation.record)}; "
            f"{count_of(loss.decrease_count, 'update')} of {count(loss.record_count)} decreased it"
        )


NORM_PREFIX = "gradient_clipping/norm_ratio"
"""Start of the names of recorded norms, each divided by its limit."""
CLIPPED_PREFIX = "gradient_clipping/clipped_ratio"
"""Start of the names of recorded shares of elements at their limit."""
MAX_FREE_RATIO = 0.5
"""Share of the elements at the limit above which clipping by value has clipped the gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientClippingSaturationParameters(LossParameters):
    """Share of clipped gradients, and of how many."""

    window: Count = 100
    """Recorded calls that are judged together."""
    threshold: Percentage = 95.0
    """The rule fires if at least this share (%) of them has clipped the gradients."""


@dataclass(slots=True, kw_only=True)
class ClippedGradients(LossState):
    """State of the gradients that are clipped together."""

    latest: analysis.Float = field(default_factory=lambda: np.empty(0))
    clipped_count: int = 0
    median: float = 0.0
    """Median of the window of the first violation."""


class GradientClippingSaturation(
    PerLossRule[GradientClippingSaturationParameters, ClippedGradients]
):
    """Checks whether gradients are clipped in nearly all steps.

    ## What it checks
    For each recorded call of `clip_grad_norm_`, the total norm of the gradients before it, divided
    by `max_norm`: above 1 the call has clipped them. A call of `clip_grad_value_` has clipped them
    if more than half of all elements are at its limit afterwards. The rule fires if at least
    `threshold` percent of `window` calls in a row have clipped. Lists of parameters that are
    clipped by themselves are judged by themselves. Datapoints are recorded calls, violations those
    that end such a window. Norms are recorded at every call with `--tensors gradients` or
    `--tensors losses`, elements at the steps of `--tensors-every`. Norms that are infinite or NaN
    do not count. Not known are the norms of sharded gradients (FSDP), and those of clipping that
    is not torch's. The second verdict does not count the rule: Adam divides gradients by their size
    anyway, and learns as well.

    ## Why it matters
    A limit that always holds is no guard against outliers: with SGD, it sets the length of each
    step instead of the gradient, so the learning rate means something else than it seems to. A
    single bad batch then counts as much as any other.

    ## What to do
    Raise `max_norm` to the usual norm, which the scalars `gradient_clipping/norm` show, and lower
    the learning rate if the loss becomes unstable. If the norms have grown, find out why.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "tensors"
    parameters_type = GradientClippingSaturationParameters
    state_type = ClippedGradients
    prefixes = (NORM_PREFIX, CLIPPED_PREFIX)
    recommendation = "Raise max_norm to the usual norm of the gradients."
    missing = "no clipping of gradients was recorded"
    advice = "run a job that calls clip_grad_norm_ with `--tensors gradients`"

    def judge(self, loss: ClippedGradients, series: analysis.LoggedScalars) -> list[LossViolation]:
        window = self.parameters.window
        values = np.concatenate([loss.latest, series.value])
        old_count = len(loss.latest)
        loss.latest = values[1 - window :] if window > 1 else np.empty(0)
        is_clipped = values > (MAX_FREE_RATIO if loss.name.startswith(CLIPPED_PREFIX) else 1.0)
        loss.clipped_count += int(is_clipped[old_count:].sum())
        if len(values) < window:
            return []
        windows = np.lib.stride_tricks.sliding_window_view(is_clipped, window)
        shares = windows.mean(axis=1)
        ends = np.flatnonzero(100 * shares >= self.parameters.threshold) + window - 1
        if len(ends) and not loss.violations:
            loss.median = float(np.median(values[ends[0] + 1 - window : ends[0] + 1]))
        return [
            LossViolation(
                t_ns=int(series.t_ns[end - old_count]),
                record=loss.record_count + end - old_count,
                value=float(shares[end + 1 - window]),
                reference=self.parameters.threshold / 100,
            )
            for end in ends.tolist()
        ]

    def require_enough(self, losses: list[ClippedGradients]) -> None:
        longest = max(loss.record_count for loss in losses)
        require_more_than(self.parameters.window - 1, longest, "recorded calls")

    def describe(self, loss: ClippedGradients, violation: LossViolation) -> str:
        calls = f"{count(self.parameters.window)} calls up to record {count(violation.record)}"
        size = (
            f"{percent(loss.median)} of the elements are at the limit"
            if loss.name.startswith(CLIPPED_PREFIX)
            else f"the norm is {quantities.multiple(loss.median)} max_norm"
        )
        return f"{percent(violation.value)} of {calls} clipped the gradients; at the median {size}"
