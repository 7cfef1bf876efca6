"""Figures and statistics on their way to the spool."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepscope.capture import session
from stepscope.capture.frameworks.xgboost.tensors.figures import Figure, Float
from stepscope.capture.matrices import Matrix, intern, write_matrices

STATISTICS = (
    "element_count", "nan_count", "infinite_count", "zero_count",
    "min", "max", "sum", "deviation_square_sum", "abs_sum", "product", "update_square_sum",
)  # fmt: skip


class RowWriter:
    """Writer of the rows of one moment.

    Args:
        prefix: beginning of the names, of models after the first one.
        step: number of rounds of the model before.
        mode: TRAIN, or EVAL for data that the model is not trained on.
    """

    def __init__(self, prefix: str, step: int, mode: str) -> None:
        self._prefix = prefix
        self._fields: dict[str, Any] = {"t_ns": time.monotonic_ns(), "step": step, "mode": mode}

    def write_figures(self, figures: Sequence[Figure]) -> None:
        """Write the numbers of figures, one row each."""
        matrices = [
            Matrix(
                f"{self._prefix}{figure.name}",
                figure.collection,
                rows=figure.rows,
                columns=figure.columns,
                values=np.asarray(figure.values, np.float64).ravel().tolist(),
            )
            for figure in figures
        ]
        write_matrices(matrices, **self._fields)

    def write_statistics(self, tensors: Sequence[tuple[str, str, Float]]) -> None:
        """Write the statistics of tensors, given as name, collection and elements."""
        current = session.current()
        if current is None:
            return
        numbers = [
            intern(
                current,
                f"{self._prefix}{name}",
                {"collection": collection, "shape": [len(values)], "dtype": "float32"},
            )
            for name, collection, values in tensors
        ]
        statistics = np.array([summarize(values) for _, _, values in tensors])
        columns = [
            ("tensor", "q", 1, np.array(numbers, np.int64).tobytes()),
            ("statistics", "d", len(STATISTICS), statistics.tobytes()),
        ]
        current.row_log.write(len(tensors), columns, statistics=STATISTICS, **self._fields)


def summarize(values: Float) -> list[float]:
    """Return the values of `STATISTICS`; NaN where one is not known."""
    finite = values[np.isfinite(values)]
    nan_count = int(np.isnan(values).sum())
    counts = [len(values), nan_count, len(values) - len(finite) - nan_count, np.sum(finite == 0)]
    if not len(finite):
        return [*counts, *[math.nan] * 7]
    deviation = finite - finite.mean()
    return [
        *counts, finite.min(), finite.max(), finite.sum(), np.dot(deviation, deviation),
        np.abs(finite).sum(), math.nan, math.nan,
    ]  # fmt: skip
