"""Scales of a GradScaler that have fallen so far that half precision no longer works."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis import LoggedScalars
from stepscope.quantities import count, count_of, number
from stepscope.rules.parameters import Positive
from stepscope.rules.tensor.losses import (
    LossParameters,
    LossState,
    LossViolation,
    PerLossRule,
)

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

    def judge(self, loss: Scale, series: LoggedScalars) -> list[LossViolation]:
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
