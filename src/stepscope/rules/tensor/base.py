"""Base of the rules that judge each recorded tensor by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema
from stepscope.quantities import count, count_of
from stepscope.rules.base import IncrementalRule, NotRecorded, Trigger
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Regex, Text

NO_TENSORS = "no tensors were recorded"
TENSOR_ADVICE = "run the job with `--tensors weights,gradients,losses`"
MAX_LISTED = 200
"""Tensors in the details."""
MAX_DESCRIBED = 5
"""Tensors in the sentences."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParameters:
    """Choice of tensors."""

    collection_names: Text = None
    """Collections that the rule judges, separated by commas, such as weights,gradients."""
    tensor_regex: Regex = None
    """Regular expression that is searched for in names. With `collection_names`, tensors of either
    are judged."""

    def selects(
        self, series: analysis.TensorSeries, default_collections: Collection[str] = ()
    ) -> bool:
        """Return True for a tensor of these names, or where none is given, of the default ones."""
        names, regex = self.collection_names, self.tensor_regex
        if not names and not regex:
            return not default_collections or series.collection in default_collections
        if names and series.collection in {name.strip() for name in names.split(",")}:
            return True
        return regex is not None and re.search(regex, series.name) is not None


class TensorViolations(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded steps of one tensor that violate the condition."""

    tensor: str = ""
    rank: int | None = None
    mode: str = ""
    record_count: int = 0
    """Recorded steps."""
    violation_count: int = 0
    """Of these, those that violate the condition."""
    first_step: int | None = None
    """First of these: the number of steps before it."""
    first_value: float | None = None
    """Value that the rule judged there; null if it is not finite."""
    last_step: int | None = None
    last_value: float | None = None


class TensorRuleDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Results by tensor."""

    tensor_count: int = 0
    """Tensors that the rule judged."""
    tensors: list[TensorViolations] = []
    """Those with violations, in order of the first; at most 200."""


class Violation(NamedTuple):
    """Recorded step that violates the condition."""

    step: int
    t_ns: int
    value: float


class TensorState(msgspec.Struct, kw_only=True):
    """State of one tensor; a rule adds its own fields."""

    name: str
    rank: int | None
    mode: str
    record_count: int = 0
    violation_count: int = 0
    extent: list[Violation] = msgspec.field(default_factory=list)
    """First and last violation, if there are any."""

    @property
    def title(self) -> str:
        """Name with the mode, unless that is training."""
        return self.name if self.mode == "TRAIN" else f"{self.name} ({self.mode})"


P = TypeVar("P", bound=TensorParameters)
S = TypeVar("S", bound=TensorState)
T = TypeVar("T")


@dataclass(slots=True)
class TensorStates(Generic[S]):
    """State of all tensors, by process, name and mode."""

    tensors: dict[tuple[str, str, str], S] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)


class PerTensorRule(IncrementalRule[P, TensorStates[S]], Generic[P, S]):
    """Judges a value of each tensor at each recorded step.

    Datapoints are recorded steps of all tensors, violations those that violate the condition. The
    rule fires on the first one, or as `select_fired` says.
    """

    topic = "tensors"
    state_type: ClassVar[type[Any]] = TensorState
    """Class of the state of one tensor."""
    default_collections: ClassVar[tuple[str, ...]] = ()
    """Judged where the parameters choose nothing; empty for all tensors."""
    evidence = ("tensors",)
    missing: ClassVar[str] = NO_TENSORS
    advice: ClassVar[str] = TENSOR_ADVICE
    missing_in_traces = "imported traces have no statistics of tensors"
    run_state = TensorStates

    def judge(self, tensor: S, series: analysis.TensorSeries) -> tuple[analysis.Float, Mask]:
        """Return the value that is judged at each row, and which rows violate the condition."""
        raise NotImplementedError

    def select_fired(self, tensors: list[S], violated: list[S]) -> list[S]:
        """Return the tensors on which the rule fires, of all and of those with violations."""
        return violated

    def describe(self, value: float) -> str:
        """Describe the value of a violation, after the name of the tensor and a colon."""
        raise NotImplementedError

    def selects(self, series: analysis.TensorSeries) -> bool:
        """Return True for a tensor that the rule judges."""
        return self.parameters.selects(series, self.default_collections)

    def update(self, state: TensorStates[S], inputs: RuleInputs) -> TensorStates[S]:
        for series in inputs.tensors:
            if not self.selects(series):
                continue
            key = (series.process, series.name, series.mode)
            if key not in state.tensors:
                state.tensors[key] = self.state_type(
                    name=series.name, rank=series.rank, mode=series.mode
                )
            tensor = state.tensors[key]
            values, is_violation = self.judge(tensor, series)
            tensor.record_count += len(series.step)
            rows = np.flatnonzero(is_violation)
            if len(rows):
                tensor.violation_count += len(rows)
                first, last = (
                    Violation(int(series.step[row]), int(series.t_ns[row]), float(values[row]))
                    for row in (rows[0], rows[-1])
                )
                tensor.extent = [(tensor.extent or [first])[0], last]
                state.trigger.add_times(inputs, series.t_ns[rows])
                state.trigger.cover(series.t_ns[rows], series.t_ns[rows])
        return state

    def decide(self, state: TensorStates[S]) -> schema.Finding | None:
        tensors = list(state.tensors.values())
        if not tensors:
            raise NotRecorded(self.missing, advice=self.advice)
        violated = sorted(
            (t for t in tensors if t.extent), key=lambda t: (t.extent[0].t_ns, t.name)
        )
        fired = self.select_fired(tensors, violated)
        return self.finding(
            triggered=state.trigger if fired else 0,
            extent=state.trigger,
            violations=sum(tensor.violation_count for tensor in tensors),
            datapoints=sum(tensor.record_count for tensor in tensors),
            details=self.details(tensors, violated),
            sentences=self.sentences(fired),
            ranks={f"rank {tensor.rank or 0}" for tensor in fired},
        )

    def details(self, tensors: list[S], violated: list[S]) -> msgspec.Struct:
        """Return the numbers behind the sentences."""
        return TensorRuleDetails(
            tensor_count=len(tensors),
            tensors=[violations_of(tensor) for tensor in violated[:MAX_LISTED]],
        )

    def sentences(self, fired: list[S]) -> Iterable[str]:
        """Describe the tensors on which the rule fired, the first ones first."""
        return describe_first(fired, self._describe_tensor)

    def _describe_tensor(self, tensor: S) -> str:
        step, _, value = tensor.extent[0]
        on_rank = f", rank {tensor.rank}" if tensor.rank else ""
        share = f"{count(tensor.violation_count)} of {count_of(tensor.record_count, 'record')}"
        return f"{tensor.title}{on_rank}: {self.describe(value)} at step {step}; in {share}."


def describe_first(tensors: Sequence[T], describe: Callable[[T], str]) -> list[str]:
    """Describe the first tensors in a sentence each, and count the others."""
    sentences = [describe(tensor) for tensor in tensors[:MAX_DESCRIBED]]
    if len(tensors) > MAX_DESCRIBED:
        sentences.append(f"And {count_of(len(tensors) - MAX_DESCRIBED, 'more tensor')}.")
    return sentences


def count_in_row(holds: Mask, before: int) -> intervals.Int:
    """Return for each row how many rows in a row, up to it, fulfil a condition.

    Args:
        holds: whether each row fulfils it.
        before: the number for the row before these.
    """
    row = np.arange(len(holds))
    last_failure = np.maximum.accumulate(np.where(holds, -1, row))
    counts: intervals.Int = np.where(last_failure < 0, before + row + 1, row - last_failure)
    return counts


def violations_of(tensor: TensorState) -> TensorViolations:
    """Return the numbers of a tensor that has violations."""
    first, last = tensor.extent
    return TensorViolations(
        tensor=tensor.name,
        rank=tensor.rank,
        mode=tensor.mode,
        record_count=tensor.record_count,
        violation_count=tensor.violation_count,
        first_step=first.step,
        first_value=_finite(first.value),
        last_step=last.step,
        last_value=_finite(last.value),
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


class StatelessTensorRule(PerTensorRule[P, TensorState], Generic[P]):
    """Judges each recorded step of a tensor by itself."""

    def judge(
        self, tensor: TensorState, series: analysis.TensorSeries
    ) -> tuple[analysis.Float, Mask]:
        values = self.value(series)
        with np.errstate(invalid="ignore"):
            return values, self.violates(values)

    def value(self, series: analysis.TensorSeries) -> analysis.Float:
        """Return the judged value at each row; NaN where it is unknown."""
        raise NotImplementedError

    def violates(self, values: analysis.Float) -> Mask:
        """Return which values violate the condition; an unknown one does not."""
        raise NotImplementedError
