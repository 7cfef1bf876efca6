"""Small matrices, such as counts of classes, at each recorded step; classes that are confused."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from stepscope import analysis, schema
from stepscope.quantities import count, count_of, percent
from stepscope.rules.base import IncrementalRule, NotApplicable, NotRecorded
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Limit, Ratio, Regex, Switch
from stepscope.rules.tensor import base

OTHER_CLASSES = "(other classes)"
"""Row of the classes of a call that are not counted by name."""


class Judgement(NamedTuple):
    """Result of a rule for one matrix."""

    value: float
    """Number that was judged."""
    problem: str
    """What is wrong, as the end of a sentence; empty if nothing is."""


class MatrixState(base.TensorState, kw_only=True):
    """State of one matrix; a rule adds its own fields."""

    seen_count: int = 0
    """Labels, images or tokens so far."""
    problem: str = ""
    """Problem of the last judged matrix; empty without one."""
    first_problem: str = ""


P = TypeVar("P")
S = TypeVar("S", bound=MatrixState)


class PerMatrixRule(IncrementalRule[P, base.TensorStates[S]], Generic[P, S]):
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
    run_state = base.TensorStates

    def selects(self, matrix: analysis.TensorValues) -> bool:
        """Return True for a matrix that the rule judges."""
        raise NotImplementedError

    def judge(self, state: S, matrix: analysis.TensorValues) -> Judgement | None:
        """Judge a matrix, and note it in the state; None while there is too little data."""
        raise NotImplementedError

    @property
    def required_count(self) -> int:
        """Labels, images or tokens that are needed."""
        return 1

    def update(self, state: base.TensorStates[S], inputs: RuleInputs) -> base.TensorStates[S]:
        for collection in self.collections:
            for matrix in inputs.values_of(collection):
                if self.selects(matrix):
                    self._add(state, inputs, matrix)
        return state

    def _add(
        self, state: base.TensorStates[S], inputs: RuleInputs, matrix: analysis.TensorValues
    ) -> None:
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
            violation = base.Violation(matrix.step, matrix.t_ns, judgement.value)
            tensor.extent = [(tensor.extent or [violation])[0], violation]
            tensor.first_problem = tensor.first_problem or judgement.problem
            state.trigger.add_times(inputs, [matrix.t_ns])
            state.trigger.cover(matrix.t_ns, matrix.t_ns)

    def decide(self, state: base.TensorStates[S]) -> schema.Finding | None:
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
            sentences=base.describe_first(fired, self._describe),
            ranks={f"rank {tensor.rank or 0}" for tensor in fired},
        )

    def details(self, tensors: list[S], violated: list[S]) -> msgspec.Struct:
        """Return the numbers behind the sentences."""
        return base.TensorRuleDetails(
            tensor_count=len(tensors),
            tensors=[base.violations_of(tensor) for tensor in violated[: base.MAX_LISTED]],
        )

    def _describe(self, tensor: S) -> str:
        violation = tensor.extent[-1 if self.fires_on_last else 0]
        problem = tensor.problem if self.fires_on_last else tensor.first_problem
        on_rank = f", rank {tensor.rank}" if tensor.rank else ""
        share = f"{count(tensor.violation_count)} of {count_of(tensor.record_count, 'record')}"
        return f"{tensor.title}{on_rank}: {problem} at step {violation.step}; in {share}."


class RecentCounts(msgspec.Struct):
    """Sum of the newest counts: as many as are needed for a number of samples."""

    sums: Counter[Any] = msgspec.field(default_factory=Counter)
    sample_count: int = 0
    _parts: deque[tuple[Counter[Any], int]] = msgspec.field(default_factory=deque)

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


def has_name(matrix: analysis.TensorValues, kind: str) -> bool:
    """Return True for a name such as `confusion/train`, or `model 2/confusion/train`."""
    return kind in matrix.name.split("/")[:-1]


def is_searched(regex: str | None, matrix: analysis.TensorValues) -> bool:
    """Return True if a regular expression is found in the name, or there is none."""
    return regex is None or re.search(regex, matrix.name) is not None


def list_pairs(matrix: analysis.TensorValues) -> Iterator[tuple[str, str, int]]:
    """Yield true class, predicted class and number of the cells of a confusion matrix."""
    for row, numbers in zip(matrix.rows, matrix.values.tolist(), strict=True):
        for column, number in zip(matrix.columns, numbers, strict=True):
            if number > 0:
                yield row, column, int(number)


def in_order(classes: Iterable[str]) -> list[str]:
    """Sort names of classes by their numbers."""
    return sorted(classes, key=lambda name: (not name.isdigit(), len(name), name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusionParameters:
    """Limits of the shares in a confusion matrix."""

    category_no: Limit = None
    """Number of classes: only those with smaller numbers count. All that occur by default."""
    min_diag: Ratio = 0.9
    """The rule fires if less than this share of the labels of a class is predicted right."""
    max_off_diag: Ratio = 0.1
    """The rule fires if more than this share of the predictions of a class has one other label."""
    samples: Count = 500
    """Newest labels that are checked together, where they are recorded by batch."""
    legacy: Switch = False
    """Divide the right predictions of a class by those of all classes, as SageMaker Debugger
    does."""
    tensor_regex: Regex = None
    """Regular expression that is searched for in the names of the matrices; all by default."""


class ConfusionState(MatrixState, kw_only=True):
    """Confusion matrix under one name."""

    recent: RecentCounts = msgspec.field(default_factory=RecentCounts)


class Confusion(PerMatrixRule[ConfusionParameters, ConfusionState]):
    """Checks whether the model tells classes apart.

    ## What it checks
    The confusion matrices that `stepscope.record(labels=…, predictions=…)` recorded, summed over
    the newest `samples` labels, or that XGBoost's predictions for a data set gave. With `C[i][j]`
    labels of class `i` that are predicted as `j`: the share of right predictions in the labels of a
    class, `C[i][i] / sum_j C[i][j]`, must be at least `min_diag`, and the share of another label in
    the predictions of a class, `C[j][i] / sum_j C[j][i]`, at most `max_off_diag`. The rule fires if
    that is violated at the last recorded step, so it fires while a model is not yet trained.
    Datapoints are the checks, violations those that violate it.

    ## Why it matters
    The accuracy over all classes hides two that the model does not tell apart.

    ## What to do
    Look at samples and labels of the two classes: labels may be wrong, or the features may not
    differ. For a class that is rare see ClassImbalance.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger divides the right predictions of a class by those of all classes, which is at least 0.9
    for one class only; `legacy` does so. Its parameters for the names of labels and predictions are
    `tensor_regex`, because a matrix has both.
    """

    parameters_type = ConfusionParameters
    recommendation = "Look at samples and labels of the classes that are confused."
    state_type = ConfusionState
    collections = ("predictions",)
    unit = "labels with predictions"
    fires_on_last = True
    missing = "no confusion matrix was recorded"
    advice = (
        "call `stepscope.record(labels=…, predictions=…)` in the script, and run it with "
        "`--tensors labels,predictions`"
    )
    missing_in_traces = "imported traces have no confusion matrix"

    @property
    def required_count(self) -> int:
        return self.parameters.samples

    def selects(self, matrix: analysis.TensorValues) -> bool:
        is_confusion = has_name(matrix, "confusion") or has_name(matrix, "batch_confusion")
        return is_confusion and is_searched(self.parameters.tensor_regex, matrix)

    def judge(self, state: ConfusionState, matrix: analysis.TensorValues) -> Judgement | None:
        pairs = {(label, predicted): n for label, predicted, n in list_pairs(matrix)}
        total = sum(pairs.values())
        state.seen_count += total
        if has_name(matrix, "confusion"):  # of a whole data set
            return self._judge(Counter(pairs)) if total else None
        state.recent.add(Counter(pairs), total, self.parameters.samples)
        if state.recent.sample_count < self.parameters.samples:
            return None
        return self._judge(state.recent.sums)

    def _judge(self, pairs: Counter[tuple[str, str]]) -> Judgement:
        limit = self.parameters.category_no
        cells = {
            (label, predicted): n
            for (label, predicted), n in pairs.items()
            if limit is None or all(int(name) < limit for name in (label, predicted))
        }
        problems = [*self._find_unrecognized(cells), *self._find_confused(cells)]
        if problems:
            return max(problems, key=lambda problem: problem[0])[1]
        right = sum(n for (label, predicted), n in cells.items() if label == predicted)
        return Judgement(right / max(1, sum(cells.values())), "")

    def _find_unrecognized(
        self, cells: dict[tuple[str, str], int]
    ) -> Iterator[tuple[float, Judgement]]:
        """Yield the classes of which too little is predicted right, with the distance from the
        limit."""
        limit, is_legacy = self.parameters.min_diag, self.parameters.legacy
        totals: Counter[str] = Counter()
        for (label, _), n in cells.items():
            totals[label] += n
        right = {label: cells.get((label, label), 0) for label in in_order(totals)}
        right_total = sum(right.values())
        for label, right_count in right.items():
            denominator = right_total if is_legacy else totals[label]
            share = right_count / denominator if denominator else 0.0
            if share < limit:
                part = f"{percent(share)} of the {count(denominator)}"
                text = f"{part} newest labels of class {label} are predicted right"
                if is_legacy:
                    text = f"class {label} has {part} right predictions"
                yield limit - share, Judgement(share, f"{text} (minimum {percent(limit)})")

    def _find_confused(
        self, cells: dict[tuple[str, str], int]
    ) -> Iterator[tuple[float, Judgement]]:
        """Yield the pairs of classes of which too many predictions have the other label."""
        limit = self.parameters.max_off_diag
        totals: Counter[str] = Counter()
        for (_, predicted), n in cells.items():
            totals[predicted] += n
        for label, predicted in sorted(cells):
            share = cells[label, predicted] / totals[predicted]
            if label != predicted and share > limit:
                text = (
                    f"{percent(share)} of the {count(totals[predicted])} newest predictions of "
                    f"class {predicted} have the label {label} (limit {percent(limit)})"
                )
                yield share - limit, Judgement(share, text)
