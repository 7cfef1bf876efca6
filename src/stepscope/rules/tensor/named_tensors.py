"""Tensors that findings name, with the step at which they violated the condition."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stepscope.rules.tensor.loss_spike import SpikesOfLoss
from stepscope.rules.tensor.poor_weight_initialization import ProcessStart
from stepscope.schema import Finding


class NamedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Tensor that a finding names."""

    tensor: str = ""
    rank: int | None = None
    """Null if the finding does not say it."""
    mode: str = "TRAIN"
    first_step: int | None = None
    """First step with a violation: the number of steps before it."""
    violation_count: int | None = None
    """Recorded steps that violate the condition; null for a rule that does not count them."""
    record_count: int | None = None
    """Recorded steps."""


def name_tensors(finding: Finding) -> list[NamedTensor]:
    """Return the tensors that a finding names, in its order; none of a rule that has not fired."""
    if not finding.fired:
        return []
    details = finding.details
    tensors = msgspec.convert(details.get("tensors", []), list[NamedTensor])
    if finding.rule == "LossSpike":
        tensors += _list_grown(msgspec.convert(details.get("losses", []), list[SpikesOfLoss]))
    if finding.rule == "PoorWeightInitialization":
        starts = msgspec.convert(details.get("processes", []), list[ProcessStart])
        tensors += _list_initial(starts)
    return tensors


def _list_grown(losses: list[SpikesOfLoss]) -> Iterator[NamedTensor]:
    for loss in losses:
        for growth in loss.growths:
            yield NamedTensor(tensor=growth.tensor, first_step=growth.step)


def _list_initial(starts: list[ProcessStart]) -> Iterator[NamedTensor]:
    for start in starts:
        for tensor, step in start.narrow.items():
            yield NamedTensor(tensor=tensor, rank=start.rank, first_step=step)
        variances = start.variances
        if variances is not None and variances.is_uneven:
            for tensor in (variances.largest, variances.smallest):
                yield NamedTensor(tensor=tensor, rank=start.rank, first_step=variances.step)
