"""Inputs with the statistics of a known report of SageMaker Debugger: 1802 seconds, eight cores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def with_quantiles(count: int, knots: Sequence[tuple[float, float]]) -> np.ndarray:
    """Make ascending values with given quantiles (linear interpolation).

    Values are constant around each quantile, so that its position between two values has no
    influence.
    """
    values = np.empty(count)
    values[:] = np.nan
    for share, value in knots:
        position = share * (count - 1)
        values[int(np.floor(position)) : int(np.ceil(position)) + 1] = value
    fixed = np.flatnonzero(~np.isnan(values))
    return np.interp(np.arange(count), fixed, values[fixed])


def shuffled(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).permutation(values)


TABLE = {
    "cpu_percent": (99.5, 76.06, 68.15, 57.09, 0.0),
    "memory_percent": (24.46, 19.67, 12.88, 8.33, 4.27),
    "io_wait_percent": (52.02, 1.99, 0.5, 0.0, 0.0),
    "network_bytes_per_s": (0.0, 0.0, 0.0, 0.0, 0.0),
}
FIGURES = ("max", "p99", "p95", "p50", "min")

OPERATORS = {
    "aten::conv2d": (3502179, 18.86),
    "aten::convolution": (3500909, 18.86),
    "aten::_convolution": (3499802, 18.85),
    "aten::mkldnn_convolution": (3496067, 18.83),
    "aten::batch_norm": (1135272, 6.11),
    "aten::_batch_norm_impl_index": (1132567, 6.10),
    "aten::native_batch_norm": (1130751, 6.09),
    "aten::max_pool2d": (589375, 3.17),
    "aten::max_pool2d_with_indices": (579515, 3.12),
}


def step_durations() -> np.ndarray:
    """Make 2111 steps: 11 long ones, the others between .36 and .88, with a short tail below."""
    knots = [(0, 0.36), (0.03, 0.37), (0.06, 0.58), (0.25, 0.65), (0.5, 0.67), (0.75, 0.74)]
    knots += [(0.95, 0.80), (0.985, 0.85), (0.99, 0.86), (1, 0.90)]
    values = with_quantiles(2111, knots)
    values[-11:] = np.linspace(1.2, 2.53, 11)
    return values


def batch_durations() -> np.ndarray:
    """Make the creation times of 118 batches, ascending."""
    quantiles = [(0, 20.0), (0.25, 27.3181), (0.5, 28.4398), (0.95, 163.573), (1, 170.0)]
    return with_quantiles(118, quantiles)
