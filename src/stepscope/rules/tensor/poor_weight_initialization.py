"""Initial weights with which a model does not start to learn; tensors that findings name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, quantities, schema
from stepscope.quantities import count, number
from stepscope.rules.base import IncrementalRule, NotRecorded, Trigger, require_more_than
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Positive, Regex, Switch
from stepscope.rules.tensor.loss_spike import SpikesOfLoss
from stepscope.rules.tensor.losses import LOSS_ADVICE, NO_LOSSES, is_loss, is_validation

MIN_ELEMENTS = 20
"""Elements of a gradient of which the outer 5% are at least one each."""
MAX_RANGE_PER_STD = 40**0.5
"""Largest distance of the 5th from the 95th percentile, in standard deviations: if they are a below
and b above the mean, the variance is at least 0.05 (a² + b²), and a² + b² at least (a + b)² / 2, as
in https://en.wikipedia.org/wiki/Chebyshev%27s_inequality."""
MIN_DECREASE_RATIO = 0.001
"""A loss that is lower by less has not decreased, as in LossNotDecreasing."""
_INPUT, _UNITS, _GRADIENT = "input/", "dead_units/", "gradient/"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoorWeightInitializationParameters:
    """Limits, and length of the start of a training."""

    activation_inputs_regex: Regex = None
    """Regular expression that is searched for in the names of tensors, for the inputs of activation
    functions; by default those of `ReLU` and `ReLU6` modules."""
    threshold: Positive = 10.0
    """Largest ratio of the variances of these inputs in two layers."""
    distribution_range: Positive = 0.001
    """Smallest distance between the 5th and the 95th percentile of the elements of a gradient; also
    the smallest standard deviation, as a share of the largest one of a gradient."""
    patience: Count = 5
    """Losses in a row that are no lower than the lowest before."""
    steps: Count = 10
    """First steps and losses of the training that the rule judges."""
    any_condition: Switch = False
    """True to fire on any of the three conditions in any of these steps, as Debugger does."""


class EarlyVariances(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of activation functions at the step at which their variances differ most."""

    step: int = 0
    largest: str = ""
    """Tensor with the largest variance."""
    largest_variance: float = 0.0
    smallest: str = ""
    smallest_variance: float = 0.0
    is_uneven: bool = False
    """True if they differ by more than the limit."""


class EarlyGradient(msgspec.Struct, frozen=True, kw_only=True):
    """Gradient with the smallest standard deviation."""

    tensor: str = ""
    step: int = 0
    standard_deviation: float = 0.0


class ProcessStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start of the training of one process."""

    process: str = ""
    rank: int | None = None
    variances: EarlyVariances | None = None
    """Null unless inputs of at least two activation functions were recorded."""
    gradient: EarlyGradient | None = None
    narrow: dict[str, int] = {}
    """Gradients that are too narrow, with the step of which this is known."""
    losses: dict[str, list[float]] = {}
    """First values of each training loss."""
    loss_decreases: bool | None = None
    """False if a loss does not decrease; null before there are enough values."""


class PoorWeightInitializationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Results by process."""

    processes: list[ProcessStart] = []


class _Variance(NamedTuple):
    variance: float
    t_ns: int


class _Gradient(NamedTuple):
    std: float
    tensor: str
    step: int
    t_ns: int


class _Start(msgspec.Struct):
    """State of one process."""

    process: str
    rank: int | None = None
    rectifiers: set[str] = msgspec.field(default_factory=set)
    """Modules whose units are recorded: rectifiers."""
    variances: dict[int, dict[str, _Variance]] = msgspec.field(default_factory=dict)
    """By step and tensor."""
    gradients: dict[str, _Gradient] = msgspec.field(default_factory=dict)
    """By tensor: the first record that is narrow, or else the first one."""
    gradient_count: int = 0
    """Judged records of gradients."""
    losses: dict[str, list[tuple[int, float]]] = msgspec.field(default_factory=dict)
    has_fired: bool = False


class Starts(msgspec.Struct):
    """State of all processes, and the times at which the condition held."""

    processes: dict[str, _Start] = msgspec.field(default_factory=dict)
    trigger: Trigger = msgspec.field(default_factory=Trigger)


class PoorWeightInitialization(IncrementalRule[PoorWeightInitializationParameters, Starts]):
    """Checks whether the initial weights keep the model from learning.

    ## What it checks
    In the first `steps` steps, whether the loss does not decrease: none of `patience` losses in a
    row is lower than the lowest before, by at least 0.1%. The rule fires if it does not and the
    initial weights explain it: in the first recorded one of these steps, the variance of the input
    of one activation function is more than `threshold` times that of another, or the 5th and the
    95th percentile of a gradient are less than `distribution_range` apart. For that, the standard
    deviation of the gradient, which is recorded, has to be below `distribution_range` / 6.32: [then
    it is certain](https://en.wikipedia.org/wiki/Chebyshev%27s_inequality) for any distribution. And
    it has to be below `distribution_range` times the largest one: if all gradients are small, the
    loss is only scaled.
    Gradients of fewer than 20 elements are not judged. Datapoints are the step with inputs, the
    gradients and the losses; violations those that fulfil their condition. Record them with
    `--tensors activations,gradients,losses`.

    ## Why it matters
    If the variance grows or shrinks from layer to layer, activations saturate or vanish, and so do
    the gradients: the training starts slowly, or never.

    ## What to do
    Use Kaiming's initialization for ReLU, Xavier's for tanh and sigmoid, or normalization layers;
    see [torch.nn.init](https://docs.pytorch.org/docs/stable/nn.init.html).

    ## Where the numbers differ from SageMaker Debugger's
    Debugger fires on any of the three conditions, in all of the first steps; with `any_condition`
    this rule does, too. By itself, each of them is common in trainings that learn: variances differ
    with PyTorch's own initialization, gradients of large models are small, and a loss rises in a
    warm-up. After the first steps, a too high learning rate shows the same. Debugger computes the
    percentiles of the gradients; the condition here holds for fewer.
    """

    topic = "tensors"
    parameters_type = PoorWeightInitializationParameters
    recommendation = "Use Kaiming's or Xavier's initialization, or add normalization layers."
    evidence = ("tensors",)
    missing_in_traces = "imported traces have no statistics of tensors"
    run_state = Starts

    def update(self, state: Starts, inputs: RuleInputs) -> Starts:
        changed = {}
        for series in inputs.tensors:
            if series.mode == "TRAIN" and series.step[0] < self.parameters.steps:
                start = self._process(state, series.process)
                start.rank = series.rank
                self._add_tensor(start, series)
                changed[series.process] = start
        for logged in inputs.scalars:
            if is_loss(logged.name) and not is_validation(logged.name):
                start = self._process(state, logged.process)
                self._add_loss(start, logged)
                changed[logged.process] = start
        for start in changed.values():
            times = None if start.has_fired else self._find_times(start)
            if times is not None:
                start.has_fired = True
                state.trigger.add_times(inputs, [max(times)])
                state.trigger.cover(min(times), max(times))
        return state

    def _process(self, state: Starts, process: str) -> _Start:
        return state.processes.setdefault(process, _Start(process))

    def _add_tensor(self, start: _Start, series: analysis.TensorSeries) -> None:
        is_early = series.step < self.parameters.steps
        if series.name.startswith(_UNITS):
            start.rectifiers.add(series.name.removeprefix(_UNITS))
        elif series.name.startswith(_GRADIENT):
            self._add_gradient(start, series)
        elif self._may_be_input(series.name):
            for step, t_ns, variance in zip(
                series.step[is_early].tolist(),
                series.t_ns[is_early].tolist(),
                series.reduction("variance")[is_early].tolist(),
                strict=True,
            ):
                if np.isfinite(variance):
                    layers = start.variances.setdefault(step, {})
                    layers[series.name] = _Variance(variance, t_ns)

    def _add_gradient(self, start: _Start, series: analysis.TensorSeries) -> None:
        std = series.reduction("std")
        is_judged = (
            (series.step < self.parameters.steps)
            & np.isfinite(std)
            & (series.reduction("element_count") >= MIN_ELEMENTS)
        )
        for row in np.flatnonzero(is_judged).tolist():
            first = start.gradients.get(series.name)
            if first is not None and not self.parameters.any_condition:
                return
            start.gradient_count += 1
            gradient = _Gradient(
                float(std[row]), series.name, int(series.step[row]), int(series.t_ns[row])
            )
            if first is None or (self._is_narrow(gradient) and not self._is_narrow(first)):
                start.gradients[series.name] = gradient

    def _is_narrow(self, gradient: _Gradient) -> bool:
        return MAX_RANGE_PER_STD * gradient.std < self.parameters.distribution_range

    def _list_narrow(self, start: _Start) -> list[_Gradient]:
        """Return the gradients that are too narrow, the narrowest first."""
        widest = max((gradient.std for gradient in start.gradients.values()), default=0.0)
        bound = self.parameters.distribution_range * widest
        return sorted(
            gradient
            for gradient in start.gradients.values()
            if self._is_narrow(gradient) and (self.parameters.any_condition or gradient.std < bound)
        )

    def _add_loss(self, start: _Start, series: analysis.LoggedScalars) -> None:
        values = start.losses.setdefault(series.name, [])
        is_finite = np.isfinite(series.value)
        rows = np.flatnonzero(is_finite)[: max(0, self.parameters.steps - len(values))]
        values += zip(series.t_ns[rows].tolist(), series.value[rows].tolist(), strict=True)

    def _may_be_input(self, name: str) -> bool:
        regex = self.parameters.activation_inputs_regex
        return name.startswith(_INPUT) if regex is None else re.search(regex, name) is not None

    def _layers(self, start: _Start, step: int) -> dict[str, _Variance]:
        """Return the inputs of activation functions at a step, of at least two or none."""
        layers = {
            name: layer
            for name, layer in start.variances[step].items()
            if self.parameters.activation_inputs_regex is not None
            or name.removeprefix(_INPUT) in start.rectifiers
        }
        return layers if len(layers) > 1 else {}

    def _list_ratios(self, start: _Start) -> list[tuple[float, int, int]]:
        """Return the ratio of the largest to the smallest variance, step and time, by step."""
        ratios = []
        for step in sorted(start.variances):
            layers = self._layers(start, step).values()
            if layers:
                variances = [layer.variance for layer in layers]
                low, high = min(variances), max(variances)
                ratio = high / low if low > 0 else np.inf if high > 0 else 1.0
                ratios.append((ratio, step, min(layer.t_ns for layer in layers)))
        return ratios if self.parameters.any_condition else ratios[:1]

    def _find_stuck_ns(self, values: list[tuple[int, float]]) -> int | None:
        """Find the time at which a loss has not decreased for long enough; None if it has."""
        lowest, in_row = np.inf, 0
        for t_ns, value in values:
            bound = lowest if lowest == np.inf else lowest - MIN_DECREASE_RATIO * abs(lowest)
            if value < bound:
                lowest, in_row = value, 0
                continue
            in_row += 1
            if in_row >= self.parameters.patience:
                return t_ns
        return None

    def _find_times(self, start: _Start) -> list[int] | None:
        """Return the times of the conditions if the rule fires on a process."""
        stuck = [self._find_stuck_ns(values) for values in start.losses.values()]
        stuck_ns = min((t_ns for t_ns in stuck if t_ns is not None), default=None)
        limit = self.parameters.threshold
        uneven = [t_ns for ratio, _, t_ns in self._list_ratios(start) if ratio > limit]
        reasons = uneven[:1] + [gradient.t_ns for gradient in self._list_narrow(start)]
        if self.parameters.any_condition:
            reasons += [] if stuck_ns is None else [stuck_ns]
            return [min(reasons)] if reasons else None
        return [stuck_ns, min(reasons)] if stuck_ns is not None and reasons else None

    def decide(self, state: Starts) -> schema.Finding | None:
        starts = [s for s in state.processes.values() if s.gradients or self._list_ratios(s)]
        if not starts:
            raise NotRecorded(
                "neither gradients nor inputs of two ReLU modules were recorded in the first "
                f"{count(self.parameters.steps)} steps",
                advice="run the job with `--tensors activations,gradients,losses`",
            )
        loss_count = max((len(v) for s in starts for v in s.losses.values()), default=0)
        if not self.parameters.any_condition:
            if not loss_count:
                raise NotRecorded(NO_LOSSES, advice=LOSS_ADVICE)
            require_more_than(self.parameters.patience, loss_count, "values of a loss")
        fired = [start for start in starts if start.has_fired]
        return self.finding(
            triggered=state.trigger,
            violations=sum(self._count_violations(start) for start in starts),
            datapoints=sum(
                len(self._list_ratios(s)) + s.gradient_count + sum(map(len, s.losses.values()))
                for s in starts
            ),
            details=PoorWeightInitializationDetails(processes=[self._result(s) for s in starts]),
            sentences=[sentence for start in fired for sentence in self._sentences(start)],
            ranks={f"rank {start.rank or 0}" for start in fired},
        )

    def _count_violations(self, start: _Start) -> int:
        uneven = [ratio > self.parameters.threshold for ratio, _, _ in self._list_ratios(start)]
        stuck = [self._find_stuck_ns(values) is not None for values in start.losses.values()]
        return sum(uneven) + len(self._list_narrow(start)) + sum(stuck)

    def _result(self, start: _Start) -> ProcessStart:
        gradient = min(start.gradients.values(), default=None)
        lengths = [len(values) for values in start.losses.values()]
        stuck = [self._find_stuck_ns(values) is not None for values in start.losses.values()]
        is_known = any(stuck) or max(lengths, default=0) >= self.parameters.steps
        return ProcessStart(
            process=start.process,
            rank=start.rank,
            variances=self._find_variances(start),
            gradient=None
            if gradient is None
            else EarlyGradient(
                tensor=gradient.tensor, step=gradient.step, standard_deviation=gradient.std
            ),
            narrow={gradient.tensor: gradient.step for gradient in self._list_narrow(start)},
            losses={name: [value for _, value in values] for name, values in start.losses.items()},
            loss_decreases=not any(stuck) if is_known else None,
        )

    def _find_variances(self, start: _Start) -> EarlyVariances | None:
        ratios = self._list_ratios(start)
        if not ratios:
            return None
        ratio, step, _ = max(ratios, key=lambda entry: entry[0])
        layers = self._layers(start, step)
        largest = max(layers, key=lambda name: layers[name].variance)
        smallest = min(layers, key=lambda name: layers[name].variance)
        return EarlyVariances(
            step=step,
            largest=largest,
            largest_variance=layers[largest].variance,
            smallest=smallest,
            smallest_variance=layers[smallest].variance,
            is_uneven=ratio > self.parameters.threshold,
        )

    def _sentences(self, start: _Start) -> Iterable[str]:
        on_rank = f"Rank {start.rank}: " if start.rank else ""
        result = self._result(start)
        variances, narrow = result.variances, self._list_narrow(start)
        if variances is not None and variances.is_uneven:
            low, high = variances.smallest_variance, variances.largest_variance
            size = (
                f"{quantities.multiple(high / low)} that"
                if low > 0
                else f"{number(high)}, and zero that"
            )
            yield (
                f"{on_rank}{variances.largest}: its variance is {size} of {variances.smallest} at "
                f"step {variances.step}."
            )
        for gradient in narrow[:1]:
            more = f" {quantities.count_of(len(narrow) - 1, 'more gradient')} as well." * (
                len(narrow) > 1
            )
            yield (
                f"{on_rank}{gradient.tensor}: 90% of the elements are less than "
                f"{number(self.parameters.distribution_range)} apart at step {gradient.step}; the "
                f"standard deviation is {number(gradient.std)}.{more}"
            )
        for name, values in start.losses.items():
            if self._find_stuck_ns(values) is not None:
                lowest = min(value for _, value in values)
                yield (
                    f"{on_rank}{name}: {count(self.parameters.patience)} of the first "
                    f"{count(len(values))} values in a row are no lower than before; the lowest is "
                    f"{number(lowest)}."
                )


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


def name_tensors(finding: schema.Finding) -> list[NamedTensor]:
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
