"""Steps of several ranks side by side."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from stepscope.analysis.rank_steps import build_step_matrix, downsample_columns, find_stragglers


def test_matrix_by_number() -> None:
    first, matrix = build_step_matrix([2, 4], [np.array([10, 11, 12, 13]), np.array([20, 21])])
    assert first == 2
    assert_array_equal(matrix, [[10, 11, 12, 13], [np.nan, np.nan, 20, 21]])


def test_stragglers() -> None:
    nan = np.nan
    stragglers = find_stragglers(
        np.array([[10.0, 10, 10, 99], [12, 9, nan, nan], [11, 20, 30, nan]])
    )
    assert stragglers.step_count == 3  # the last step is of one rank alone
    assert stragglers.slowest_count.tolist() == [0, 1, 2]
    # Medians: 11, 10, 20.
    assert_array_equal(stragglers.excess_ns, [(-1 + 0 - 10) / 3, (1 - 1) / 2, (0 + 10 + 10) / 3])


def test_alone() -> None:
    stragglers = find_stragglers(np.array([[1.0, 2.0]]))
    assert (stragglers.step_count, stragglers.slowest_count.tolist()) == (0, [0])
    assert np.isnan(stragglers.excess_ns).all()


def test_columns_are_averaged() -> None:
    matrix = np.array([[1.0, 3, 5, np.nan, 7], [np.nan, np.nan, 2, 4, 6]])
    together, means = downsample_columns(matrix, 3)
    assert together == 2
    assert_array_equal(means, [[2, 5, 7], [np.nan, 3, 6]])
    assert downsample_columns(matrix, 5)[0] == 1
