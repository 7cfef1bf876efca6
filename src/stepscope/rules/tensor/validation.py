"""Training and validation losses, pass by pass: Overfit and Overtraining."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.quantities import count, count_of, number
from stepscope.rules.base import IncrementalRule, NotApplicable, NotRecorded, Trigger
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, NotNegative, Positive
from stepscope.rules.tensor.losses import (
    LOSS_ADVICE,
    NO_LOSSES,
    LossParameters,
    is_validation,
    strip_phase,
)

MAX_LISTED = 1000
NO_VALIDATION = "no loss was recorded whose name has a word for validation, such as val_loss"
VALIDATION_ADVICE = "log it with stepscope.scalar('val_loss', loss)"


class ValidationPass(msgspec.Struct, frozen=True, kw_only=True):
    """Losses of one pass over the validation data and of the training before it."""

    t_ns: int = 0
    """Last value of the pass, epoch nanoseconds."""
    training: float = 0.0
    """Mean of the training losses since the pass before."""
    validation: float = 0.0
    """Mean of the validation losses of the pass."""


class PassesOfLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Passes of one pair of losses."""

    training: str = ""
    """Name of the training loss."""
    validation: str = ""
    pass_count: int = 0
    violation_count: int = 0
    passes: list[ValidationPass] = []
    """The last 1000."""


class ValidationDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Passes by pair of losses."""

    losses: list[PassesOfLoss] = []


class Pending(msgspec.Struct):
    """Values of a loss that belong to a pass that may not have ended."""

    total: float = 0.0
    count: int = 0
    t_ns: int = 0

    def add(self, value: float, t_ns: int) -> None:
        """Add a value."""
        self.total += value
        self.count += 1
        self.t_ns = t_ns

    @property
    def mean(self) -> float:
        """Mean of the values; there is at least one."""
        return self.total / self.count


class Pair(msgspec.Struct, kw_only=True):
    """State of one validation loss and its training loss; a rule adds its own fields."""

    training: str
    validation: str
    trained: Pending = msgspec.field(default_factory=Pending)
    validated: Pending = msgspec.field(default_factory=Pending)
    pass_count: int = 0
    violation_count: int = 0
    first: ValidationPass | None = None
    """First violation."""
    passes: list[ValidationPass] = msgspec.field(default_factory=list)


P = TypeVar("P", bound=LossParameters)
S = TypeVar("S", bound=Pair)


@dataclass(slots=True)
class PairStates(Generic[S]):
    """State of all pairs, by process and name of the validation loss."""

    has_losses: bool = False
    latest: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    pairs: dict[tuple[str, str], S] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)


class ValidationRule(IncrementalRule[P, PairStates[S]], Generic[P, S]):
    """Judges each pass over the validation data.

    A pass ends with the next training loss. The training loss of `val_loss` is the one with the
    same name without words for training and validation, or else the only one.
    """

    topic = "losses"
    evidence = ("tensors",)
    missing_in_traces = "imported traces have no losses"
    pair_type: ClassVar[type[Any]]
    """State of a pair."""
    run_state = PairStates

    def violates(self, pair: S, finished: ValidationPass) -> bool:
        """Return True if a pass that has ended violates the condition."""
        raise NotImplementedError

    def describe(self, pair: S, first: ValidationPass) -> str:
        """Describe the first violation of a pair, as a sentence without a full stop."""
        raise NotImplementedError

    def update(self, state: PairStates[S], inputs: RuleInputs) -> PairStates[S]:
        by_process: dict[str, list[analysis.LoggedScalars]] = {}
        for series in inputs.scalars:
            if self.parameters.selects(series.name):
                by_process.setdefault(series.process, []).append(series)
        state.has_losses |= bool(by_process)
        for process, losses in by_process.items():
            self._update_process(state, process, losses, inputs)
        return state

    def _update_process(
        self,
        state: PairStates[S],
        process: str,
        losses: list[analysis.LoggedScalars],
        inputs: RuleInputs,
    ) -> None:
        """Add the losses of a process, in order of time."""
        values = [
            (t_ns, series.name, value)
            for series in losses
            for t_ns, value in zip(series.t_ns.tolist(), series.value.tolist(), strict=True)
            if np.isfinite(value)
        ]
        for t_ns, name, value in sorted(values):
            if is_validation(name):
                pair = self._pair(state, process, name)
                pair.validated.add(value, t_ns)
                continue
            for (of_process, _), pair in state.pairs.items():
                if of_process == process and name == pair.training:
                    self._end_pass(state, pair, inputs)
                    pair.trained.add(value, t_ns)
            state.latest.setdefault((process, name), []).append((t_ns, value))

    def _pair(self, state: PairStates[S], process: str, validation: str) -> S:
        """Return the state of a validation loss; at its first value, choose its training loss."""
        key = (process, validation)
        if key in state.pairs:
            return state.pairs[key]
        names = [name for of_process, name in state.latest if of_process == process]
        same = [name for name in names if strip_phase(name) == strip_phase(validation)]
        candidates = same if len(same) == 1 else names
        training = candidates[0] if len(candidates) == 1 else ""
        pair: S = self.pair_type(training=training, validation=validation)
        for t_ns, value in state.latest.pop((process, training), []):
            pair.trained.add(value, t_ns)
        state.pairs[key] = pair
        return pair

    def _end_pass(self, state: PairStates[S], pair: S, inputs: RuleInputs) -> None:
        """Judge a pass if there is one that has ended."""
        if not pair.validated.count or not pair.trained.count:
            return
        finished = ValidationPass(
            t_ns=pair.validated.t_ns, training=pair.trained.mean, validation=pair.validated.mean
        )
        pair.trained, pair.validated = Pending(), Pending()
        pair.pass_count += 1
        pair.passes = [*pair.passes[-MAX_LISTED + 1 :], finished]
        if self.violates(pair, finished):
            pair.violation_count += 1
            pair.first = pair.first or finished
            state.trigger.add_times(inputs, [finished.t_ns])
            state.trigger.cover(finished.t_ns, finished.t_ns)

    def decide(self, state: PairStates[S]) -> schema.Finding | None:
        if not state.has_losses:
            raise NotRecorded(NO_LOSSES, advice=LOSS_ADVICE)
        pairs = [pair for pair in state.pairs.values() if pair.training]
        if not state.pairs:
            raise NotApplicable(NO_VALIDATION, advice=VALIDATION_ADVICE)
        if not pairs:
            names = ", ".join(sorted({pair.validation for pair in state.pairs.values()}))
            raise NotApplicable(f"no training loss belongs to {names}: there are none or several")
        if not any(pair.pass_count for pair in pairs):
            raise NotApplicable("no pass over the validation data has been followed by training")
        return self.finding(
            triggered=state.trigger,
            violations=sum(pair.violation_count for pair in pairs),
            datapoints=sum(pair.pass_count for pair in pairs),
            details=ValidationDetails(
                losses=[
                    PassesOfLoss(
                        training=pair.training,
                        validation=pair.validation,
                        pass_count=pair.pass_count,
                        violation_count=pair.violation_count,
                        passes=pair.passes,
                    )
                    for pair in pairs
                ]
            ),
            sentences=[
                f"{pair.validation}: {self.describe(pair, pair.first)}, "
                f"in {pair.violation_count} of {count_of(pair.pass_count, 'pass', 'passes')}."
                for pair in pairs
                if pair.first is not None
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitParameters(LossParameters):
    """Distance of the two losses."""

    start_step: NotNegative = 0
    """Passes over the validation data before this one are left out."""
    patience: Count = 1
    """The rule fires after so many passes in a row above the threshold."""
    ratio_threshold: Positive = 0.1
    """Threshold of the difference, as a share of the training loss."""


class OverfittingPair(Pair, kw_only=True):
    """State of a pair, with the number of its latest passes above the threshold."""

    in_row: int = 0


class Overfit(ValidationRule[OverfitParameters, OverfittingPair]):
    """Checks whether the model learns its training data by heart.

    ## What it checks
    For each pass over the validation data, the mean of its losses and that of the training losses
    since the pass before. The rule fires if the difference is above `ratio_threshold` of the
    training loss in `patience` passes in a row, from pass `start_step` on. Datapoints are passes,
    violations those with which the condition holds.

    ## Why it matters
    From then on training makes the model better on data that it has seen, and not on others.

    ## What to do
    Add data or augmentation, dropout or weight decay, use a smaller model, or stop earlier.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger counts `start_step` and `patience` in steps; here they count passes over the
    validation data, because only those have both losses.
    """

    parameters_type = OverfitParameters
    pair_type = OverfittingPair
    recommendation = "Add data, augmentation or regularization, or stop training earlier."

    def violates(self, pair: OverfittingPair, finished: ValidationPass) -> bool:
        difference = finished.validation - finished.training
        is_above = difference > self.parameters.ratio_threshold * abs(finished.training)
        counts = pair.pass_count > self.parameters.start_step
        pair.in_row = pair.in_row + 1 if is_above and counts else 0
        return pair.in_row >= self.parameters.patience

    def describe(self, pair: OverfittingPair, first: ValidationPass) -> str:
        return (
            f"{number(first.validation)}, while {pair.training} is {number(first.training)}, "
            f"for {count(self.parameters.patience)} or more passes in a row"
            if self.parameters.patience > 1
            else f"{number(first.validation)}, while {pair.training} is {number(first.training)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertrainingParameters(LossParameters):
    """Patience."""

    patience_train: Count = 5
    """The rule fires if the training loss has not become better for so many passes."""
    patience_validation: Count = 10
    """The rule fires if the validation loss has not become better for so many passes."""
    delta: NotNegative = 0.01
    """A loss is better if it is lower by more than this."""


class Best(msgspec.Struct):
    """Lowest loss, and the passes since."""

    value: float = math.inf
    passes_since: int = 0

    def add(self, value: float, delta: float) -> None:
        """Add the loss of one more pass."""
        if value < self.value - delta:
            self.value, self.passes_since = value, 0
        else:
            self.passes_since += 1


class OvertrainedPair(Pair, kw_only=True):
    """State of a pair, with its lowest losses."""

    best_training: Best = msgspec.field(default_factory=Best)
    best_validation: Best = msgspec.field(default_factory=Best)


class Overtraining(ValidationRule[OvertrainingParameters, OvertrainedPair]):
    """Checks whether training goes on although the losses no longer become better.

    ## What it checks
    After each pass over the validation data, for how many passes the mean training loss and the
    mean validation loss have not been below their lowest values by more than `delta`. The rule
    fires after `patience_train` passes for the training loss or `patience_validation` passes for
    the validation loss. Datapoints are passes, violations those with which the condition holds.

    ## Why it matters
    These passes cost as much as the others and improve nothing.

    ## What to do
    Stop early and keep the checkpoint with the lowest validation loss, or lower the learning rate.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger counts the patience in steps; here it counts passes over the validation data, because
    the loss of a single batch varies by chance.
    """

    parameters_type = OvertrainingParameters
    pair_type = OvertrainedPair
    recommendation = "Stop early and keep the best checkpoint, or lower the learning rate."

    def violates(self, pair: OvertrainedPair, finished: ValidationPass) -> bool:
        pair.best_training.add(finished.training, self.parameters.delta)
        pair.best_validation.add(finished.validation, self.parameters.delta)
        return (
            pair.best_training.passes_since >= self.parameters.patience_train
            or pair.best_validation.passes_since >= self.parameters.patience_validation
        )

    def describe(self, pair: OvertrainedPair, first: ValidationPass) -> str:
        name, best = max(
            ((pair.training, pair.best_training), (pair.validation, pair.best_validation)),
            key=lambda pair_of: pair_of[1].passes_since,
        )
        passes = count(best.passes_since)
        name = "it" if name == pair.validation else name
        return f"{name} has not fallen below {number(best.value)} for {passes} passes"
