"""Base of the rules that judge small matrices, such as counts of classes, at each recorded step."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from stepscope.analysis import TensorValues
from stepscope.quantities import count, count_of
from stepscope.rules.base import IncrementalRule, NotApplicable, NotRecorded
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.tensor.base import (
    MAX_LISTED,
    TensorRuleDetails,
    TensorState,
    TensorStates,
    Violation,
    describe_first,
    violations_of,
)
from stepscope.schema import Finding

OTHER_CLASSES = "(other classes)"
"""Row of the classes of a call that are not counted by name."""


class Judgement(NamedTuple):
    """Result of a rule for one matrix."""

    value: float
    """Number that was judged."""
    problem: str
    """What is wrong, as the end of a sentence; empty if nothing is."""


@dataclass(slots=True, kw_only=True)
class MatrixState(TensorState):
    """State of one matrix; a rule adds its own fields."""

    seen_count: int = 0
    """Labels, images or tokens so far."""
    problem: str = ""
    """Problem of the last judged matrix; empty without one."""
    first_problem: str = ""


P = TypeVar("P")
S = TypeVar("S", bound=MatrixState)


class PerMatrixRule(IncrementalRule[P, TensorStates[S]], Generic[P, S]):
    """Judges each matrix of a process, name and mode, in the order of recording.

    Datapoints are the judged matrices, violations those with a problem. The rule fires on the first
    one, or if `fires_on_last` on one that is the last.
    """

    topic = "tensors"
    state_type: ClassVar[type[Any]] = MatrixState
    collections: ClassVar[tuple[str, ...]]
    """Collections of the matrices."""
    unit: ClassVar[str]
    """Unit of `MatrixState.seen_count`."""
    fires_on_last: ClassVar[bool] = False
    evidence = ("tensors",)
    missing: ClassVar[str]
    advice: ClassVar[str]
    run_state = TensorStates

    def selects(self, matrix: TensorValues) -> bool:
        """Return True for a matrix that the rule judges."""
        raise NotImplementedError

    def judge(self, state: S, matrix: TensorValues) -> Judgement | None:
        """Judge a matrix, and note it in the state; None while there is too little data."""
        raise NotImplementedError

    @property
    def required_count(self) -> int:
        """Labels, images or tokens that are needed."""
        return 1

    def update(self, state: TensorStates[S], inputs: RuleInputs) -> TensorStates[S]:
        for collection in self.collections:
            for matrix in inputs.values_of(collection):
                if self.selects(matrix):
                    self._add(state, inputs, matrix)
        return state

    def _add(self, state: TensorStates[S], inputs: RuleInputs, matrix: TensorValues) -> None:
        key = matrix.process, matrix.name, matrix.mode
        if key not in state.tensors:
            state.tensors[key] = self.state_type(
                name=matrix.name, rank=matrix.rank, mode=matrix.mode
            )
        tensor = state.tensors[key]
        judgement = self.judge(tensor, matrix)
        if judgement is None:
            return
        tensor.record_count += 1
        tensor.problem = judgement.problem
        if judgement.problem:
            tensor.violation_count += 1
            violation = Violation(matrix.step, matrix.t_ns, judgement.value)
            tensor.extent = [(tensor.extent or [violation])[0], violation]
            tensor.first_problem = tensor.first_problem or judgement.problem
            state.trigger.add_times(inputs, [matrix.t_ns])
            state.trigger.cover(matrix.t_ns, matrix.t_ns)

    def decide(self, state: TensorStates[S]) -> Finding | None:
        tensors = list(state.tensors.values())
        if not tensors:
            raise NotRecorded(self.missing, advice=self.advice)
        record_count = sum(tensor.record_count for tensor in tensors)
        if not record_count:
            seen_count = max(tensor.seen_count for tensor in tensors)
            raise NotApplicable(
                f"only {count(seen_count)} {self.unit} so far; the rule requires "
                f"{count(self.required_count)}"
            )
        violated = sorted(
            (t for t in tensors if t.extent), key=lambda t: (t.extent[0].t_ns, t.name)
        )
        fired = [t for t in violated if t.problem] if self.fires_on_last else violated
        return self.finding(
            triggered=state.trigger if fired else 0,
            extent=state.trigger,
            violations=sum(tensor.violation_count for tensor in tensors),
            datapoints=record_count,
            details=self.details(tensors, violated),
            sentences=describe_first(fired, self._describe),
            ranks={f"rank {tensor.rank or 0}" for tensor in fired},
        )

    def details(self, tensors: list[S], violated: list[S]) -> msgspec.Struct:
        """Return the numbers behind the sentences."""
        return TensorRuleDetails(
            tensor_count=len(tensors),
            tensors=[violations_of(tensor) for tensor in violated[:MAX_LISTED]],
        )

    def _describe(self, tensor: S) -> str:
        violation = tensor.extent[-1 if self.fires_on_last else 0]
        problem = tensor.problem if self.fires_on_last else tensor.first_problem
        on_rank = f", rank {tensor.rank}" if tensor.rank else ""
        share = f"{count(tensor.violation_count)} of {count_of(tensor.record_count, 'record')}"
        return f"{tensor.title}{on_rank}: {problem} at step {violation.step}; in {share}."


@dataclass(slots=True)
class RecentCounts:
    """Sum of the newest counts: as many as are needed for a number of samples."""

    sums: Counter[Any] = field(default_factory=Counter)
    sample_count: int = 0
    _parts: deque[tuple[Counter[Any], int]] = field(default_factory=deque)

    def add(self, counts: Counter[Any], sample_count: int, required: int) -> None:
        """Add counts, and remove the oldest that are not needed."""
        self._parts.append((counts, sample_count))
        self.sums.update(counts)
        self.sample_count += sample_count
        while self.sample_count - self._parts[0][1] >= required:
            oldest, size = self._parts.popleft()
            self.sums.subtract(oldest)
            self.sums = +self.sums
            self.sample_count -= size


def has_name(matrix: TensorValues, kind: str) -> bool:
    """Return True for a name such as `confusion/train`, or `model 2/confusion/train`."""
    return kind in matrix.name.split("/")[:-1]


def is_searched(regex: str | None, matrix: TensorValues) -> bool:
    """Return True if a regular expression is found in the name, or there is none."""
    return regex is None or re.search(regex, matrix.name) is not None


def list_pairs(matrix: TensorValues) -> Iterator[tuple[str, str, int]]:
    """Yield true class, predicted class and number of the cells of a confusion matrix."""
    for row, numbers in zip(matrix.rows, matrix.values.tolist(), strict=True):
        for column, number in zip(matrix.columns, numbers, strict=True):
            if number > 0:
                yield row, column, int(number)


def in_order(classes: Iterable[str]) -> list[str]:
    """Sort names of classes by their numbers."""
    return sorted(classes, key=lambda name: (not name.isdigit(), len(name), name))
