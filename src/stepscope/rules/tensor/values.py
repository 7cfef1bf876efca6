"""Tensors that are zero, not finite, of an unusual variance, vanishing, or unlike another run's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope import analysis, intervals, quantities, schema
from stepscope.quantities import count, count_of
from stepscope.rules.base import NotRecorded, Rule, Trigger
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Limit, Percentage, Positive, Switch, Text
from stepscope.rules.tensor import base


@dataclass(frozen=True, slots=True, kw_only=True)
class AllZeroParameters(base.TensorParameters):
    """Share of zeros."""

    threshold: Percentage = 100.0
    """The rule fires if at least this share (%) of the elements of a tensor is zero."""


class AllZero(base.StatelessTensorRule[AllZeroParameters]):
    """Checks whether a tensor is zero.

    ## What it checks
    For each recorded step of each selected tensor, the share of zeros in its elements. The rule
    fires if it is at least `threshold` percent. Datapoints are recorded steps of all tensors,
    violations those above the threshold. By default gradients and weights are judged.

    ## Why it matters
    A gradient of zeros updates nothing: a branch is dead, its input is detached, or its units no
    longer become active. A weight of zeros passes nothing on.

    ## What to do
    Look at the layer before it: at the activation function, at `detach()` and `no_grad`, and at the
    initial values. A layer that the loss does not use should be frozen.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger requires `collection_names` or `tensor_regex`; here gradients and weights are the
    default.
    """

    parameters_type = AllZeroParameters
    default_collections = ("gradients", "weights")
    recommendation = "Check the activation function and the detached parts before this layer."

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        return series.reduction("zero_ratio")

    def violates(self, values: analysis.Float) -> base.Mask:
        return values >= self.parameters.threshold / 100

    def describe(self, value: float) -> str:
        return f"{quantities.percent(value)} of the elements are zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingTensorParameters(base.TensorParameters):
    """Kinds of elements."""

    only_nan: Switch = False
    """True if infinite elements are allowed."""


class ExplodingTensor(base.StatelessTensorRule[ExplodingTensorParameters]):
    """Checks whether a tensor has elements that are NaN or infinite.

    ## What it checks
    Each recorded step of each selected tensor, by default of all. The rule fires on the first
    element that is NaN or, unless `only_nan` is true, infinite. Datapoints are recorded steps of
    all tensors, violations those with such elements.

    ## Why it matters
    NaN spreads to all weights with the next steps, and everything that the job computes afterwards
    is lost.

    ## What to do
    Start again from the last checkpoint before the step, with a lower learning rate, gradient
    clipping or a warm-up. The option `--on-nan find` names the operation that NaN comes from.

    ## Where the numbers differ from SageMaker Debugger's
    None.
    """

    parameters_type = ExplodingTensorParameters
    recommendation = "Lower the learning rate or clip the gradients, and look for the first NaN."

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        values = series.reduction("nan_count")
        return values if self.parameters.only_nan else values + series.reduction("infinite_count")

    def violates(self, values: analysis.Float) -> base.Mask:
        return values > 0

    def describe(self, value: float) -> str:
        kind = "NaN" if self.parameters.only_nan else "NaN or infinite"
        return f"{count_of(int(value), 'element')} {'is' if value == 1 else 'are'} {kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorVarianceParameters(base.TensorParameters):
    """Limits of the variance."""

    max_threshold: Limit = None
    """The rule fires if the variance of a tensor is above this."""
    min_threshold: Limit = None
    """The rule fires if the variance of a tensor is below this."""


class TensorVariance(base.StatelessTensorRule[TensorVarianceParameters]):
    """Checks whether the variance of a tensor stays within limits.

    ## What it checks
    For each recorded step of each selected tensor, the variance of its finite elements. The rule
    fires if it is above `max_threshold` or below `min_threshold`; without a limit it never does.
    Datapoints are recorded steps of all tensors, violations those outside of the limits.

    ## Why it matters
    Weights and activations whose variance grows or shrinks from layer to layer saturate activation
    functions and make gradients vanish or explode.

    ## What to do
    Choose an initialization that keeps the variance, such as Kaiming's or Xavier's, or add
    normalization layers.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger requires `collection_names` or `tensor_regex`; here all tensors are the default.
    """

    parameters_type = TensorVarianceParameters
    recommendation = "Choose an initialization that keeps the variance, or normalize."

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        return series.reduction("variance")

    def violates(self, values: analysis.Float) -> base.Mask:
        low, high = self.parameters.min_threshold, self.parameters.max_threshold
        too_low: base.Mask = values < (-math.inf if low is None else low)
        return np.logical_or(too_low, values > (math.inf if high is None else high))

    def describe(self, value: float) -> str:
        return f"the variance is {quantities.number(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingGradientParameters(base.TensorParameters):
    """Size of a gradient."""

    threshold: Positive = 1e-7
    """The rule fires if the mean of the absolute values of a gradient is below this."""


class VanishingGradient(base.StatelessTensorRule[VanishingGradientParameters]):
    """Checks whether a gradient has become too small to train with.

    ## What it checks
    For each recorded step of each gradient, the mean of the absolute values of its finite elements.
    The rule fires if it is below `threshold`. Datapoints are recorded steps of all gradients,
    violations those below the threshold.

    ## Why it matters
    A layer with such a gradient keeps its weights. In deep networks the first layers lose theirs
    first, because the derivatives of all later layers are multiplied.

    ## What to do
    Use ReLU or GELU instead of sigmoid and tanh, residual connections, normalization layers, and
    an initialization that fits the activation function.

    ## Where the numbers differ from SageMaker Debugger's
    None.
    """

    parameters_type = VanishingGradientParameters
    default_collections = ("gradients",)
    recommendation = "Use other activation functions, residual connections or normalization."

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        return series.reduction("abs_mean")

    def violates(self, values: analysis.Float) -> base.Mask:
        return values < self.parameters.threshold

    def describe(self, value: float) -> str:
        return f"the mean of the absolute values is {quantities.number(value)}"


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
class SimilarAcrossRunsParameters(base.TensorParameters):
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

    def check(self, inputs: RuleInputs) -> schema.Finding | None:
        location = self.parameters.other_trials
        if location is None:
            raise NotRecorded(NO_OTHER_RUN)
        tensors = [series for series in inputs.tensors if self.parameters.selects(series)]
        if not tensors:
            raise NotRecorded(base.NO_TENSORS, advice=base.TENSOR_ADVICE)
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
            sentences=base.describe_first(results, _describe),
            ranks={f"rank {result.rank or 0}" for result in results},
        )


def _key(series: analysis.TensorSeries) -> tuple[str, str, int]:
    return series.name, series.mode, series.rank or 0


def _compare(
    series: analysis.TensorSeries, partner: analysis.TensorSeries
) -> tuple[intervals.Int, base.Mask]:
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
