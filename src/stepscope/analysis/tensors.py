"""Numbers over the steps of a job: tensors, what the script logs, scores of a classifier.

Scores of a classifier from its confusion matrix. Definitions are those of Sokolova and Lapalme,
https://doi.org/10.1016/j.ipm.2009.03.002, as scikit-learn uses them:
https://scikit-learn.org/stable/modules/model_evaluation.html
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.histograms import Float

STORED_REDUCTIONS = (
    "element_count", "nan_count", "infinite_count", "zero_count",
    "min", "max", "mean", "std", "l1", "l2", "product", "update_l2",
)  # fmt: skip
"""Names of the numbers that a run holds for a tensor at a step."""
REDUCTIONS = (*STORED_REDUCTIONS, "variance", "sum", "abs_mean", "update_ratio", "zero_ratio")
"""Names of the numbers that describe a tensor at a step."""


class TensorSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one tensor of one process in one mode, in order of steps."""

    name: str
    collection: str
    process: str
    rank: int | None
    mode: str
    shape: str
    """Sizes at the last step, such as 768x192; empty for a single number, or if unknown."""
    dtype: str
    """Empty if unknown."""
    step: intervals.Int
    """Number of steps of the process before each."""
    t_ns: intervals.Int
    """Epoch nanoseconds."""
    stored: dict[str, Float]
    """The stored numbers by name; NaN where unknown."""

    def reduction(self, name: str) -> Float:
        """Return one of `REDUCTIONS` at each step; NaN where it is not known.

        `variance` and `std` divide by the number of elements, and like `mean`, `sum`, `l1` and `l2`
        describe the finite ones. `abs_mean` is the mean of the absolute values, `update_ratio` the
        L2 norm of the change by the optimizer step as a share of that of the tensor after it, and
        `zero_ratio` the share of zeros in all elements.
        """
        stored = self.stored
        if name in stored:
            return stored[name]
        finite = stored["element_count"] - stored["nan_count"] - stored["infinite_count"]
        with np.errstate(divide="ignore", invalid="ignore"):
            match name:
                case "variance":
                    return stored["std"] ** 2
                case "sum":
                    return stored["mean"] * finite
                case "abs_mean":
                    return stored["l1"] / finite
                case "update_ratio":
                    return stored["update_l2"] / stored["l2"]
                case "zero_ratio":
                    return stored["zero_count"] / stored["element_count"]
        raise KeyError(name)


class TensorValues(msgspec.Struct, frozen=True, kw_only=True):
    """Small matrix with named rows and columns that one process recorded at one step, such as a
    confusion matrix."""

    name: str
    collection: str
    process: str
    rank: int | None
    mode: str
    step: int
    """Number of steps of the process before this one."""
    t_ns: int
    """Epoch nanoseconds."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Float
    """(row, column) -> number; NaN where it is not defined."""

    def column(self, name: str) -> Float:
        """Return the numbers of a column, in the order of the rows.

        Raises:
            KeyError: there is no such column.
        """
        if name not in self.columns:
            raise KeyError(name)
        numbers: Float = self.values[:, self.columns.index(name)]
        return numbers


class LoggedScalars(msgspec.Struct, frozen=True, kw_only=True):
    """Values that one process logged under one name, in order of time."""

    name: str
    process: str
    t_ns: intervals.Int
    """Epoch nanoseconds."""
    value: NDArray[np.float64]
    """NaN where the logged value was not a finite number."""
    step: intervals.Int | None = None
    """Steps that the values name: imported ones, and those of XGBoost; None if one names none."""

    @property
    def nan_count(self) -> int:
        """Number of values that were not finite."""
        return int(np.isnan(self.value).sum())

    def take(self, rows: NDArray[np.bool_]) -> LoggedScalars:
        """Return some of the values."""
        return LoggedScalars(
            name=self.name,
            process=self.process,
            t_ns=self.t_ns[rows],
            value=self.value[rows],
            step=None if self.step is None else self.step[rows],
        )

    def count_steps(self, step_ends: intervals.Int | None) -> intervals.Int | None:
        """Return the step of each value: the one that it names, or the number of steps of the
        process that had ended; None where neither is known.

        Args:
            step_ends: epoch nanoseconds at which they ended; None if they are not known.
        """
        if self.step is not None or step_ends is None:
            return self.step
        counts: intervals.Int = np.searchsorted(step_ends, self.t_ns, side="right")
        return counts

    def non_finite_groups(self, size: int) -> list[int]:
        """Return the groups of *size* consecutive values of which one was not finite."""
        groups: list[int] = np.unique(np.flatnonzero(np.isnan(self.value)) // size).tolist()
        return groups


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Precision, recall and F1: one number per class, or per average."""

    precision: Float
    """Share of the rows predicted as a class that are of it; NaN if none is predicted so."""
    recall: Float
    """Share of the rows of a class that are predicted as it; NaN if none is of it."""
    f1: Float
    """Harmonic mean of both, 2 TP / (2 TP + FP + FN); NaN if no row is of the class or predicted
    so."""


class ConfusionScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of a confusion matrix."""

    row_count: Float
    """Rows of each class."""
    predicted_count: Float
    """Rows predicted as each class."""
    classes: Scores
    macro: Scores
    """Means over the classes."""
    weighted: Scores
    """Means over the classes, weighted by their rows."""
    accuracy: float
    """Share of all rows that are predicted right; NaN without rows. For one class per row, the
    precision, recall and F1 of all classes together (the micro average) are the same number."""


def score_confusion(counts: Float) -> ConfusionScores:
    """Score a classifier.

    Averages are over the classes that occur, as labels or predictions; a score of theirs that is
    not defined counts as 0, as in scikit-learn by default.

    Args:
        counts: (true class, predicted class) -> number of rows.
    """
    right, row_count, predicted_count = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        classes = Scores(
            precision=right / predicted_count,
            recall=right / row_count,
            f1=2 * right / (row_count + predicted_count),
        )
        accuracy = float(right.sum() / counts.sum())
    occurs = row_count + predicted_count > 0
    return ConfusionScores(
        row_count=row_count,
        predicted_count=predicted_count,
        classes=classes,
        macro=_average(classes, occurs.astype(np.float64)),
        weighted=_average(classes, row_count),
        accuracy=accuracy,
    )


def _average(classes: Scores, weight: Float) -> Scores:
    def mean(scores: Float) -> Float:
        with np.errstate(invalid="ignore"):
            average: Float = np.dot(np.nan_to_num(scores), weight) / np.asarray([weight.sum()])
        return average

    return Scores(
        precision=mean(classes.precision), recall=mean(classes.recall), f1=mean(classes.f1)
    )
