"""Classes that the model confuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from stepscope.analysis import TensorValues
from stepscope.quantities import count, percent
from stepscope.rules.parameters import Count, Limit, Ratio, Regex, Switch
from stepscope.rules.tensor.matrices import (
    Judgement,
    MatrixState,
    PerMatrixRule,
    RecentCounts,
    has_name,
    in_order,
    is_searched,
    list_pairs,
)


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


@dataclass(slots=True, kw_only=True)
class ConfusionState(MatrixState):
    """Confusion matrix under one name."""

    recent: RecentCounts = field(default_factory=RecentCounts)


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

    def selects(self, matrix: TensorValues) -> bool:
        is_confusion = has_name(matrix, "confusion") or has_name(matrix, "batch_confusion")
        return is_confusion and is_searched(self.parameters.tensor_regex, matrix)

    def judge(self, state: ConfusionState, matrix: TensorValues) -> Judgement | None:
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
