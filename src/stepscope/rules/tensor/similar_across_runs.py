"""Tensors that differ from those of another run."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope.analysis import TensorSeries
from stepscope.intervals import Int
from stepscope.quantities import count, count_of
from stepscope.rules.base import NotRecorded, Rule
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Text
from stepscope.rules.tensor.base import (
    NO_TENSORS,
    TENSOR_ADVICE,
    Mask,
    TensorParameters,
    describe_first,
)
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding

COMPARED = (
    "element_count", "nan_count", "infinite_count", "zero_count",
    "min", "max", "mean", "std", "l1", "l2",
)  # fmt: skip
NO_OTHER_RUN = (
    "no other run is given, such as `--set SimilarAcrossRuns.other_trials=RUN`; the rule compares "
    "with exactly one"
)
NO_COMMON_STEPS = "the runs have no tensor of the same name at the same step"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarAcrossRunsParameters(TensorParameters):
    """The other run, and the tensors to compare."""

    other_trials: Text = None
    """Directory or URL of the other run; exactly one, and required."""


class DifferingTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Tensor that differs between the runs."""

    tensor: str = ""
    rank: int | None = None
    mode: str = ""
    first_step: int = 0
    violation_count: int = 0
    record_count: int = 0
    """Steps that both runs recorded."""


class SimilarAcrossRunsDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Differences by tensor."""

    tensor_count: int = 0
    """Tensors that both runs recorded."""
    tensors: list[DifferingTensor] = []


class SimilarAcrossRuns(Rule[SimilarAcrossRunsParameters]):
    """Checks whether tensors are the same as in another run.

    ## What it checks
    Tensors of the same name, rank and mode at the same step of this run and of `other_trials`. The
    rule fires if one of their statistics (counts, minimum, maximum, mean, standard deviation,
    norms) differs. Equal statistics do not prove that all elements are equal. Datapoints are steps
    that both runs recorded, violations those that differ.

    ## Why it matters
    Two runs that should be the same are not: a seed, an order of samples or a kernel differs.

    ## What to do
    Look at the first tensor and step. A difference in the first gradients is one of inputs or
    initial weights, a later one comes from kernels that are not deterministic
    (`torch.use_deterministic_algorithms`).

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares all elements.
    """

    topic = "tensors"
    parameters_type = SimilarAcrossRunsParameters
    recommendation = (
        "Compare seeds, samples and initial weights of the runs; use deterministic kernels."
    )
    missing_in_traces = "imported traces have no statistics of tensors"
    evidence = ("tensors",)

    def check(self, inputs: RuleInputs) -> Finding | None:
        location = self.parameters.other_trials
        if location is None:
            raise NotRecorded(NO_OTHER_RUN)
        tensors = [series for series in inputs.tensors if self.parameters.selects(series)]
        if not tensors:
            raise NotRecorded(NO_TENSORS, advice=TENSOR_ADVICE)
        partners = {_key(series): series for series in inputs.tensors_of(location)}
        trigger, compared, differing = Trigger(), 0, list[tuple[int, DifferingTensor]]()
        tensor_count = 0
        for series in tensors:
            partner = partners.get(_key(series))
            if partner is None:
                continue
            rows, differs = _compare(series, partner)
            compared += len(rows)
            tensor_count += len(rows) > 0
            t_ns = series.t_ns[rows[differs]]
            if len(t_ns):
                trigger.add_times(inputs, t_ns)
                trigger.cover(t_ns, t_ns)
                result = DifferingTensor(
                    tensor=series.name,
                    rank=series.rank,
                    mode=series.mode,
                    first_step=int(series.step[rows[differs][0]]),
                    violation_count=len(t_ns),
                    record_count=len(rows),
                )
                differing.append((int(t_ns[0]), result))
        if not compared:
            raise NotRecorded(NO_COMMON_STEPS)
        results = [result for _, result in sorted(differing, key=lambda pair: pair[0])]
        return self.finding(
            triggered=trigger,
            violations=sum(result.violation_count for result in results),
            datapoints=compared,
            details=SimilarAcrossRunsDetails(tensor_count=tensor_count, tensors=results),
            sentences=describe_first(results, _describe),
            ranks={f"rank {result.rank or 0}" for result in results},
        )


def _key(series: TensorSeries) -> tuple[str, str, int]:
    return series.name, series.mode, series.rank or 0


def _compare(series: TensorSeries, partner: TensorSeries) -> tuple[Int, Mask]:
    """Return the rows of a tensor whose steps the other run recorded too, and which differ."""
    _, rows, other_rows = np.intersect1d(series.step, partner.step, return_indices=True)
    differs = np.zeros(len(rows), dtype=np.bool_)
    for name in COMPARED:
        values, partner_values = series.stored[name][rows], partner.stored[name][other_rows]
        differs |= (values != partner_values) & ~(np.isnan(values) & np.isnan(partner_values))
    return rows, differs


def _describe(result: DifferingTensor) -> str:
    return (
        f"{result.tensor}: differs from step {count(result.first_step)} on, in "
        f"{count(result.violation_count)} of {count_of(result.record_count, 'record')}."
    )
