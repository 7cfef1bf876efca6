"""Classes with far fewer labels than others, or that the model does not recognize."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stepscope.analysis import TensorValues
from stepscope.quantities import count, number, percent
from stepscope.rules.parameters import Count, Positive, Ratio, Regex
from stepscope.rules.tensor.matrices import (
    OTHER_CLASSES,
    Judgement,
    MatrixState,
    PerMatrixRule,
    RecentCounts,
    has_name,
    is_searched,
    list_pairs,
)

_WRONG, _ALL = "wrong", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassImbalanceParameters:
    """Limits of counts and of wrong predictions."""

    threshold_imbalance: Positive = 10.0
    """The rule fires if the class with the most labels has more than this many times those of the
    class with the fewest."""
    threshold_misprediction: Ratio = 0.7
    """The rule fires if more than this share of the labels of a class is predicted wrong."""
    samples: Count = 500
    """Labels before the first check, and newest labels with predictions that are checked."""
    labels_regex: Regex = None
    """Regular expression that is searched for in the names of the counts of labels; all by
    default."""
    predictions_regex: Regex = None
    """Regular expression that is searched for in the names of the confusion matrices of data sets;
    all by default."""


@dataclass(slots=True, kw_only=True)
class ClassState(MatrixState):
    """Labels under one name."""

    counts: Counter[str] = field(default_factory=Counter)
    recent: RecentCounts = field(default_factory=RecentCounts)


class ClassImbalance(PerMatrixRule[ClassImbalanceParameters, ClassState]):
    """Checks whether classes have similar numbers of labels, and each is recognized.

    ## What it checks
    The counts of labels that `stepscope.record(labels=…, predictions=…)` recorded, or XGBoost. From
    `samples` labels on, at each recorded step: the number of labels of the most frequent class as a
    multiple of that of the rarest one that occurred, over all labels so far; and for each class the
    share of wrong predictions in its labels, over the newest `samples` labels. The rule fires if at
    the last step one of them is above its threshold. Datapoints are the checks, violations those
    above a threshold.

    ## Why it matters
    A model that is trained mostly on some classes predicts those. The loss and the overall accuracy
    are good, and rare classes are wrong.

    ## What to do
    Sample rare classes more often (`WeightedRandomSampler`), give them a larger weight in the loss,
    or collect more of them. Compare wrong predictions by class, not the accuracy.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger counts wrong predictions from the start, where an untrained model makes many; here the
    newest ones count. `argmax` is not needed: scores have one more dimension than labels.
    """

    parameters_type = ClassImbalanceParameters
    recommendation = "Sample rare classes more often, or give them a larger weight in the loss."
    state_type = ClassState
    collections = ("labels", "predictions")
    unit = "labels"
    fires_on_last = True
    missing = "no counts of labels were recorded"
    advice = (
        "call `stepscope.record(labels=…, predictions=…)` in the script, and run it with "
        "`--tensors labels,predictions`"
    )
    missing_in_traces = "imported traces have no counts of labels"

    @property
    def required_count(self) -> int:
        return self.parameters.samples

    def selects(self, matrix: TensorValues) -> bool:
        if matrix.collection == "predictions":  # of whole data sets, which have no such column
            is_selected = is_searched(self.parameters.predictions_regex, matrix)
            return has_name(matrix, "confusion") and is_selected
        is_bin = "low" in matrix.columns  # of labels that are no classes
        return not is_bin and is_searched(self.parameters.labels_regex, matrix)

    def judge(self, state: ClassState, matrix: TensorValues) -> Judgement | None:
        if has_name(matrix, "confusion"):
            self._add_confusion(state, matrix)
        else:
            self._add_labels(state, matrix)
        if state.seen_count < self.parameters.samples:
            return None
        return self._judge_counts(state.counts) or self._judge_predictions(state.recent)

    def _add_confusion(self, state: ClassState, matrix: TensorValues) -> None:
        counts: Counter[tuple[str, str]] = Counter()
        for label, predicted, pair_count in list_pairs(matrix):
            counts[label, _ALL] += pair_count
            counts[label, _WRONG] += pair_count if predicted != label else 0
        state.recent = RecentCounts(counts, sum(counts[key] for key in counts if key[1] == _ALL))
        state.seen_count = max(state.seen_count, state.recent.sample_count)

    def _add_labels(self, state: ClassState, matrix: TensorValues) -> None:
        labels = dict(zip(matrix.rows, matrix.column("count").astype(int).tolist(), strict=True))
        state.seen_count += sum(labels.values())
        state.counts.update(labels)
        if "mispredicted" in matrix.columns:
            wrong = matrix.column("mispredicted").astype(int).tolist()
            counts = Counter({(label, _ALL): labels[label] for label in labels})
            counts.update({(row, _WRONG): n for row, n in zip(matrix.rows, wrong, strict=True)})
            state.recent.add(counts, sum(labels.values()), self.parameters.samples)

    def _judge_counts(self, counts: Counter[str]) -> Judgement | None:
        of_class = {label: n for label, n in counts.items() if label != OTHER_CLASSES and n}
        if not of_class:
            return None
        frequent, rare = (choose(of_class, key=of_class.__getitem__) for choose in (max, min))
        ratio, limit = (
            of_class[frequent] / of_class[rare],
            self.parameters.threshold_imbalance,
        )
        if ratio <= limit:
            return None
        return Judgement(
            ratio,
            f"class {frequent} has {count(of_class[frequent])} labels, {number(ratio)} times as "
            f"many as class {rare} with {count(of_class[rare])} (limit {number(limit)})",
        )

    def _judge_predictions(self, recent: RecentCounts) -> Judgement:
        shares = {
            label: recent.sums[label, _WRONG] / label_count
            for (label, kind), label_count in recent.sums.items()
            if kind == _ALL and label != OTHER_CLASSES and label_count
        }
        worst = max(shares, key=shares.__getitem__, default=None)
        if worst is None or shares[worst] <= self.parameters.threshold_misprediction:
            return Judgement(0.0 if worst is None else shares[worst], "")
        return Judgement(
            shares[worst],
            f"{percent(shares[worst])} of the {count(recent.sums[worst, _ALL])} newest labels of "
            f"class {worst} are predicted wrong (limit "
            f"{percent(self.parameters.threshold_misprediction)})",
        )
