"""Numbers that describe a tensor, defined as in docs/tensors.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.event_files.values import Histogram

Statistics = dict[str, float]
"""Columns of `tensor_statistics` by name; those that are missing are unknown."""
_BLOCK_ELEMENTS = 1 << 20
_MAX_FACTORS = 4096


@np.errstate(over="ignore", invalid="ignore")
def describe_elements(elements: NDArray[Any]) -> Statistics:
    """Compute statistics of the elements of a tensor, in double precision.

    Args:
        elements: one-dimensional; of complex ones the absolute values are described.
    """
    element_count = len(elements)
    blocks = [
        elements[start : start + _BLOCK_ELEMENTS]
        for start in range(0, element_count, _BLOCK_ELEMENTS)
    ]
    nan_count = sum(int(np.isnan(block).sum()) for block in blocks)
    zero_count = sum(int((block == 0).sum()) for block in blocks)
    finite_count = sum(int(np.isfinite(block).sum()) for block in blocks)
    statistics: Statistics = {
        "element_count": element_count,
        "nan_count": nan_count,
        "infinite_count": element_count - finite_count - nan_count,
        "zero_count": zero_count,
    }
    if not finite_count:
        return statistics
    mean = sum(float(_finite(block).sum()) for block in blocks) / finite_count
    deviations = sum(float(((_finite(block) - mean) ** 2).sum()) for block in blocks)
    squares = sum(float((_finite(block) ** 2).sum()) for block in blocks)
    statistics |= {
        "min": min(float(_finite(block).min(initial=math.inf)) for block in blocks),
        "max": max(float(_finite(block).max(initial=-math.inf)) for block in blocks),
        "mean": mean,
        "std": math.sqrt(deviations / finite_count),
        "l1": sum(float(np.abs(_finite(block)).sum()) for block in blocks),
        "l2": math.sqrt(squares),
    }
    if element_count <= _MAX_FACTORS:
        statistics["product"] = float(np.prod(_finite(elements)))
    return statistics


def describe_histogram(histogram: Histogram) -> Statistics:
    """Return what a histogram states about its elements.

    The standard deviation follows from the sums of the elements and of their squares: of elements
    much larger than their differences it has few correct digits.
    """
    count = histogram.element_count
    if not 0 < count < 2**63:
        return {"element_count": 0} if count == 0 else {}
    mean = histogram.sum / count
    return {
        "element_count": round(count),
        "min": histogram.min,
        "max": histogram.max,
        "mean": mean,
        "std": math.sqrt(max(0.0, histogram.square_sum / count - mean * mean)),
        "l2": math.sqrt(max(0.0, histogram.square_sum)),
    }


_REDUCTIONS = {
    "min": "min", "max": "max", "mean": "mean", "std": "std", "prod": "product", "l1": "l1",
    "l2": "l2", "abs_sum": "l1", "abs_l1": "l1", "abs_l2": "l2",
}  # fmt: skip
"""Reductions of SageMaker Debugger and the columns with the same number."""


def describe_reductions(reductions: dict[str, float], element_count: int | None) -> Statistics:
    """Return the statistics that reductions of SageMaker Debugger give; others stay unknown.

    Args:
        reductions: values by name, such as `mean`, `abs_mean` or `l2`.
        element_count: elements of the tensor; None if unknown.
    """
    statistics = {
        _REDUCTIONS[name]: value for name, value in reductions.items() if name in _REDUCTIONS
    }
    variance = reductions.get("variance", math.nan)
    if variance >= 0:
        statistics.setdefault("std", math.sqrt(variance))
    if element_count:
        statistics["element_count"] = element_count
        if "sum" in reductions:
            statistics.setdefault("mean", reductions["sum"] / element_count)
        if "abs_mean" in reductions:
            statistics.setdefault("l1", reductions["abs_mean"] * element_count)
    return statistics


def _finite(block: NDArray[Any]) -> NDArray[np.float64]:
    """Return the finite elements, or absolute values of complex ones, as doubles."""
    values = np.abs(block) if block.dtype.kind == "c" else block
    finite: NDArray[np.float64] = values[np.isfinite(block)].astype(np.float64)
    return finite
