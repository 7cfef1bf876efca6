"""Losses among the logged values: those that no longer decrease, and those that are not finite."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from stepscope import analysis, quantities, schema
from stepscope.quantities import count
from stepscope.rules.base import IncrementalRule, NotRecorded, Trigger, require_more_than
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, NotNegative, Regex

UNFILTERED_LOSS = "loss/unfiltered"
"""`spool.UNFILTERED_LOSS`; rules are handed names, and import nothing of capture."""
NO_LOSSES = "no loss was recorded"
LOSS_ADVICE = "run the job with `--tensors losses`, or log it with stepscope.scalar('loss', loss)"
_LOSS = re.compile(r"(?i)(^|[^a-z])loss([^a-z]|$)")
_VALIDATION = re.compile(r"(?i)(^|[^a-z])(validation|valid|val|eval|test|dev)(?=[^a-z]|$)")
_TRAINING = re.compile(r"(?i)(^|[^a-z])(training|train)(?=[^a-z]|$)")
_GRADIENT_NORM = re.compile(r"(?i)grad(ient)?[^a-z]?norm")


def is_loss(name: str) -> bool:
    """Return True for the name of a loss: one that `--tensors losses` gives, or with the word.

    >>> [is_loss(name) for name in ("loss/NllLoss", "val_loss", "train/loss", "closs", "glossary")]
    [True, True, True, False, False]
    """
    return _LOSS.search(name) is not None


def is_validation(name: str) -> bool:
    """Return True for a name with a word for validation.

    >>> [is_validation(name) for name in ("val_loss", "eval/loss", "loss", "train_value")]
    [True, True, False, False]
    """
    return _VALIDATION.search(name) is not None


def strip_phase(name: str) -> str:
    """Remove the words for training and validation, to find the two losses of one kind.

    >>> strip_phase("val_loss"), strip_phase("train/loss"), strip_phase("loss")
    ('loss', 'loss', 'loss')
    """
    stripped = _TRAINING.sub("", _VALIDATION.sub("", name))
    return stripped.strip("/_-. ")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParameters:
    """Choice of losses."""

    tensor_regex: Regex = None
    """Regular expression that is searched for in the names of logged values; by default those are
    judged that have the word loss."""

    def selects(self, name: str) -> bool:
        """Return True for a value that the rule judges."""
        return (
            is_loss(name) if self.tensor_regex is None else bool(re.search(self.tensor_regex, name))
        )


class LossViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One violation of the condition by one loss."""

    t_ns: int = 0
    """Epoch nanoseconds."""
    record: int = 0
    """Number of recorded values of the loss before it."""
    value: float | None = 0.0
    """Loss there; null if it is NaN or infinite."""
    reference: float | None = 0.0
    """Loss that it is compared with; null if there is none."""


class LossResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results for one loss."""

    name: str = ""
    process: str = ""
    record_count: int = 0
    violation_count: int = 0
    violations: list[LossViolation] = []
    """The first 200."""


class LossDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Results by loss."""

    losses: list[LossResult] = []


MAX_LISTED = 200


@dataclass(slots=True, kw_only=True)
class LossState:
    """State of one loss; a rule adds its own fields."""

    name: str
    process: str
    record_count: int = 0
    violation_count: int = 0
    violations: list[LossViolation] = field(default_factory=list)

    def add(self, violation: LossViolation) -> None:
        """Count a violation."""
        self.violation_count += 1
        if len(self.violations) < MAX_LISTED:
            self.violations.append(violation)


P = TypeVar("P", bound=LossParameters)
S = TypeVar("S", bound=LossState)


@dataclass(slots=True)
class LossStates(Generic[S]):
    """State of all losses, by process and name."""

    losses: dict[tuple[str, str], S] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)


class PerLossRule(IncrementalRule[P, LossStates[S]], Generic[P, S]):
    """Judges the values of each loss. Values that are NaN or infinite are left out: NonFiniteLoss
    is about those."""

    topic = "losses"
    state_type: ClassVar[type[Any]]
    """Class of the state of one loss."""
    prefixes: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names that are judged unless the user gives an expression; by default
    losses."""
    evidence = ("tensors",)
    missing: ClassVar[str] = NO_LOSSES
    advice: ClassVar[str] = LOSS_ADVICE
    missing_in_traces = "imported traces have no losses"
    run_state = LossStates

    def judge(self, loss: S, series: analysis.LoggedScalars) -> list[LossViolation]:
        """Return the violations in new values, of which there is at least one."""
        raise NotImplementedError

    def choose(self, series: analysis.LoggedScalars) -> analysis.LoggedScalars:
        """Return the values that are judged: by default the finite ones."""
        return series.take(np.isfinite(series.value))

    def describe(self, loss: S, violation: LossViolation) -> str:
        """Describe the first violation of a loss, as a sentence without a full stop."""
        raise NotImplementedError

    def selects(self, series: analysis.LoggedScalars) -> bool:
        """Return True for a series that the rule judges."""
        if self.prefixes and self.parameters.tensor_regex is None:
            return series.name.startswith(self.prefixes)
        return self.parameters.selects(series.name)

    def still_holds(self, loss: S) -> bool:
        """Return False if values after the violations of a loss have shown them to be chance."""
        return True

    def require_enough(self, losses: list[S]) -> None:
        """Raise NotApplicable unless there are enough values for a decision."""

    def update(self, state: LossStates[S], inputs: RuleInputs) -> LossStates[S]:
        for series in inputs.scalars:
            if not self.selects(series):
                continue
            key = (series.process, series.name)
            if key not in state.losses:
                state.losses[key] = self.state_type(name=series.name, process=series.process)
            loss, values = state.losses[key], self.choose(series)
            violations = self.judge(loss, values) if len(values.value) else []
            loss.record_count += len(values.value)
            for violation in violations:
                loss.add(violation)
            t_ns = np.array([violation.t_ns for violation in violations], dtype=np.int64)
            state.trigger.add_times(inputs, t_ns)
            state.trigger.cover(t_ns, t_ns)
        return state

    def decide(self, state: LossStates[S]) -> schema.Finding | None:
        losses = list(state.losses.values())
        if not losses:
            raise NotRecorded(self.missing, advice=self.advice)
        self.require_enough(losses)
        fired = [loss for loss in losses if loss.violations and self.still_holds(loss)]
        return self.finding(
            triggered=state.trigger if fired else 0,
            violations=sum(loss.violation_count for loss in fired),
            datapoints=sum(loss.record_count for loss in losses),
            details=LossDetails(losses=[self.result_of(loss) for loss in losses]),
            sentences=self.sentences(fired),
        )

    def result_of(self, loss: S) -> LossResult:
        """Return the results for one loss."""
        return LossResult(
            name=loss.name,
            process=loss.process,
            record_count=loss.record_count,
            violation_count=loss.violation_count,
            violations=loss.violations,
        )

    def sentences(self, fired: list[S]) -> Iterable[str]:
        """Describe the losses on which the rule fired."""
        for loss in fired:
            more = (
                f"; {quantities.count_of(loss.violation_count - 1, 'more time')} later"
                if loss.violation_count > 1
                else ""
            )
            yield f"{loss.name}: {self.describe(loss, loss.violations[0])}{more}."


Trend = Literal["decreases", "has converged", "unclear"]


class ComparedLossResult(LossResult, frozen=True, kw_only=True):
    """Results for one loss, and its trend."""

    trend: Trend = "unclear"
    """`unclear`: it is not lower than at first, beyond chance; `has converged`: it is, but not
    lower than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotDecreasingParameters(LossParameters):
    """Length and size of the expected decrease; by default that of training losses."""

    num_steps: Count = 10
    """Recorded values per comparison."""
    diff_percent: NotNegative = 0.1
    """The rule fires if the loss decreases by less than this (%)."""
    patience: Count = 3
    """Comparisons in a row without a decrease."""
    increase_threshold_percent: NotNegative = 5.0
    """An increase above this (%) is called one."""

    def selects(self, name: str) -> bool:
        """Return True for a loss of training: the model does not change during a validation."""
        is_chosen = self.tensor_regex is not None or not is_validation(name)
        return is_chosen and LossParameters.selects(self, name)


class _Mean(NamedTuple):
    """Mean of consecutive values."""

    value: float
    error: float
    """Standard error, s / sqrt(n)."""


@dataclass(slots=True, kw_only=True)
class ComparedLoss(LossState):
    """State of a loss, with the means so far and the values since."""

    latest: deque[_Mean] = field(default_factory=deque)
    """As many as have to be in a row."""
    first: _Mean | None = None
    """Average of the first ones that were so many."""
    lowest_average: float = math.inf
    """Lowest of these averages."""
    has_fallen: bool = False
    """True if the latest average is lower than the first one, beyond chance."""
    has_risen: bool = False
    averages: deque[float] = field(default_factory=deque)
    """Those that share means with the latest one, and that one."""
    lowest_before: float = math.inf
    """Lowest average before those."""
    lowest: float = math.inf
    """Mean that the next ones are compared with."""
    in_row: int = 0
    """Latest means that were not lower."""
    values: list[float] = field(default_factory=list)


class LossNotDecreasing(PerLossRule[LossNotDecreasingParameters, ComparedLoss]):
    """Checks whether a loss goes on decreasing.

    ## What it checks
    For each loss without a word for validation in its name, as in `val_loss` and `test_loss_step`,
    the mean of each `num_steps` recorded values and the lowest of those before. The rule fires if
    `patience` means in a row are not lower by `diff_percent`, and either no lower than the first as
    many, or higher than the lowest as many by `increase_threshold_percent` and three standard
    errors of a mean. A loss that has decreased and stays where it is has converged:
    its means vary by chance. One that later falls below its first means, by three standard errors,
    decreased slowly, and does not fire. Datapoints are recorded values, violations means with which
    the condition holds. It needs `num_steps` values for each mean.

    ## Why it matters
    A loss that has not decreased since the start shows that the model learns nothing: each further
    step costs the same and brings nothing. One that rises again has left what it had reached.

    ## What to do
    At the start of a training: check the learning rate, the labels and the loss function, and
    whether all parameters are in the optimizer. Later: lower the learning rate, or stop.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger compares single values, `num_steps` steps apart, and fires on the first one that is not
    lower. The loss of a batch varies by chance, so means are compared here, several in a row, and
    a loss that has converged does not fire.
    """

    parameters_type = LossNotDecreasingParameters
    state_type = ComparedLoss
    recommendation = "Check the learning rate, the labels and the optimizer's parameters, or stop."

    def judge(self, loss: ComparedLoss, series: analysis.LoggedScalars) -> list[LossViolation]:
        violations = []
        for row, (value, t_ns) in enumerate(
            zip(series.value.tolist(), series.t_ns.tolist(), strict=True)
        ):
            loss.values.append(value)
            if len(loss.values) < self.parameters.num_steps:
                continue
            mean = _Mean(fmean(loss.values), _compute_error(loss.values))
            loss.values = []
            loss.latest.append(mean)
            if len(loss.latest) > self.parameters.patience:
                loss.latest.popleft()
            is_first = math.isinf(loss.lowest)
            bound = loss.lowest - self.parameters.diff_percent / 100 * abs(loss.lowest)
            if is_first or mean.value < bound:
                loss.lowest, loss.in_row = mean.value, 0
            else:
                loss.in_row += 1
            if len(loss.latest) < self.parameters.patience:
                continue
            average = _average(loss.latest)
            loss.first = loss.first or average
            is_violated = loss.in_row >= self.parameters.patience and self._has_problem(
                loss, loss.first, average
            )
            loss.has_fallen = self._has_fallen(loss.first, average)
            loss.lowest_average = min(loss.lowest_average, average.value)
            loss.averages.append(average.value)
            if len(loss.averages) > self.parameters.patience:
                loss.lowest_before = min(loss.lowest_before, loss.averages.popleft())
            if is_violated:
                record = loss.record_count + row
                violations.append(
                    LossViolation(t_ns=t_ns, record=record, value=mean.value, reference=loss.lowest)
                )
        return violations

    def _has_problem(self, loss: ComparedLoss, first: _Mean, latest: _Mean) -> bool:
        """Return True if the latest average is no lower than the first one, or has risen."""
        tolerated = max(
            self.parameters.increase_threshold_percent / 100 * abs(loss.lowest),
            3 * latest.error * math.sqrt(self.parameters.patience),
        )
        has_risen = latest.value - loss.lowest_average > tolerated
        loss.has_risen |= has_risen
        return has_risen or first.value - latest.value <= self._expect_decrease(first)

    def _has_fallen(self, first: _Mean, latest: _Mean) -> bool:
        """Return True if the latest average is lower than the first one, beyond chance."""
        chance = 3 * math.hypot(first.error, latest.error)
        return first.value - latest.value > max(self._expect_decrease(first), chance)

    def _expect_decrease(self, first: _Mean) -> float:
        return self.parameters.diff_percent / 100 * abs(first.value)

    def still_holds(self, loss: ComparedLoss) -> bool:
        return loss.has_risen or not loss.has_fallen

    def result_of(self, loss: ComparedLoss) -> ComparedLossResult:
        trend: Trend = "unclear"
        if loss.has_fallen:
            lowest = loss.lowest_before
            expected = self.parameters.diff_percent / 100 * abs(lowest)
            trend = "decreases" if loss.averages[-1] < lowest - expected else "has converged"
        return ComparedLossResult(**msgspec.structs.asdict(super().result_of(loss)), trend=trend)

    def require_enough(self, losses: list[ComparedLoss]) -> None:
        longest = max(loss.record_count for loss in losses)
        required = (1 + self.parameters.patience) * self.parameters.num_steps
        require_more_than(required - 1, longest, "values of a loss")

    def describe(self, loss: ComparedLoss, violation: LossViolation) -> str:
        lowest, mean = violation.reference or 0.0, violation.value or 0.0
        rises = mean - lowest > self.parameters.increase_threshold_percent / 100 * abs(lowest)
        return (
            f"its mean over {count(self.parameters.num_steps)} values "
            f"{'increases' if rises else 'does not decrease'}: {quantities.number(mean)} at record "
            f"{count(violation.record)}, after a lowest one of {quantities.number(lowest)}"
        )


def _average(means: Sequence[_Mean]) -> _Mean:
    error = math.sqrt(sum(mean.error**2 for mean in means)) / len(means)
    return _Mean(fmean(mean.value for mean in means), error)


def _compute_error(values: Sequence[float]) -> float:
    """Compute the standard error of the mean of some values; 0 of a single one."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteLossParameters(LossParameters):
    """Number of values."""

    patience: Count = 10
    """Latest norms of gradients in a row that are NaN or infinite, from which the rule fires."""

    def selects(self, name: str) -> bool:
        """Return True for a value that the rule judges."""
        return LossParameters.selects(self, name) or (
            self.tensor_regex is None and _GRADIENT_NORM.search(name) is not None
        )


@dataclass(slots=True, kw_only=True)
class NonFiniteState(LossState):
    """State of a loss, with its values since the last finite one."""

    last_finite: float | None = None
    in_row: int = 0


class NonFiniteLoss(PerLossRule[NonFiniteLossParameters, NonFiniteState]):
    """Checks whether a loss or a norm of gradients is NaN or infinite.

    ## What it checks
    Each recorded loss, and each value whose name has the words gradient norm. The rule fires if the
    latest value of a loss is NaN or infinite, or the latest `patience` norms of gradients are: with
    a GradScaler, some norms in a row are infinite, and their steps are left out. Datapoints are
    recorded values, violations those that are not finite.

    ## Why it matters
    NaN does not go away: the update of the optimizer writes it into the parameters, and from there
    it reaches every later loss. What is computed from then on is lost.

    ## What to do
    Run the job with `--find-nan`, which names the operator that produced the first one. Common
    reasons are a learning rate that is too high, a division by zero, the logarithm of zero, and an
    overflow in reduced precision. The trainer of Transformers does not show it: it replaces
    losses that are NaN by the mean of the others, or zero, in what it logs. That is switched off by
    [`logging_nan_inf_filter=False`](https://huggingface.co/docs/transformers/main_classes/trainer).

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its ExplodingTensor is about recorded tensors.
    """

    parameters_type = NonFiniteLossParameters
    state_type = NonFiniteState
    recommendation = "Stop, find the operator with `--find-nan`, and restart from a checkpoint."

    def choose(self, series: analysis.LoggedScalars) -> analysis.LoggedScalars:
        return series

    def judge(self, loss: NonFiniteState, series: analysis.LoggedScalars) -> list[LossViolation]:
        violations = []
        for row, value in enumerate(series.value.tolist()):
            if math.isfinite(value):
                loss.last_finite, loss.in_row = value, 0
                continue
            loss.in_row += 1
            violations.append(
                LossViolation(
                    t_ns=int(series.t_ns[row]),
                    record=loss.record_count + row,
                    value=None,
                    reference=loss.last_finite,
                )
            )
        return violations

    def still_holds(self, loss: NonFiniteState) -> bool:
        is_norm = _GRADIENT_NORM.search(loss.name) is not None
        return loss.in_row >= (self.parameters.patience if is_norm else 1)

    def describe(self, loss: NonFiniteState, violation: LossViolation) -> str:
        last = violation.reference
        before = "" if last is None else f", after {quantities.number(last)}"
        return f"NaN or infinite at record {count(violation.record)}{before}"

    def sentences(self, fired: list[NonFiniteState]) -> Iterable[str]:
        yield from super().sentences(fired)
        if any(loss.name == UNFILTERED_LOSS for loss in fired):
            yield (
                f"{UNFILTERED_LOSS} is the loss of the training steps: the trainer of "
                "Transformers logs a finite one instead (logging_nan_inf_filter)."
            )
