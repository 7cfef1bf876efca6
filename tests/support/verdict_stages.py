"""Laws of the parts of a verdict."""

from __future__ import annotations

from stepscope.diagnosis import Verdict

PHASES = {
    "forward pass": "forward",
    "time between forward and backward pass": "loss",
    "backward pass": "backward",
}
ROUNDING = 1e-9


def check_stages(verdict: Verdict) -> None:
    """Check that the parts are no larger than their whole, nor than the phase that they are in."""
    stage_sum = sum(stage.share_ratio for stage in verdict.stages)
    assert stage_sum <= verdict.share_ratio + ROUNDING
    for stage in verdict.stages:
        assert stage.share_ratio >= 0
        name = stage.name.partition(" inside the ")[2] or stage.name
        phase = PHASES.get(name, name)
        if phase in verdict.phases:
            assert stage.share_ratio <= verdict.phases[phase] + ROUNDING
