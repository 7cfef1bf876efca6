"""Steps of several ranks side by side."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from stepscope.analysis.rank_steps import build_step_matrix, downsample_columns, find_stragglers


def test_matrix_by_number() -> None:
    first, found = build_step_matrix([2, 4], [np.array([10, 11, 12, 13]), np.array([20, 21])])
    assert first == 2
    assert_array_equal(found, [[10, 11, 12, 13], [np.nan, np.nan, 20, 21]])


def test_who_is_slow() -> None:
    nan = np.nan
    found = find_stragglers(np.array([[10.0, 10, 10, 99], [12, 9, nan, nan], [11, 20, 30, nan]]))
    assert found.step_count == 3  # the last step is of one rank alone
    assert found.slowest_count.tolist() == [0, 1, 2]
    # Medians: 11, 10, 20.
    assert_array_equal(found.excess_ns, [(-1 + 0 - 10) / 3, (1 - 1) / 2, (0 + 10 + 10) / 3])


def test_alone() -> None:
    found = find_stragglers(np.array([[1.0, 2.0]]))
    assert (found.step_count, found.slowest_count.tolist()) == (0, [0])
    assert np.isnan(found.excess_ns).all()


def test_thinned_to_means() -> None:
    matrix = np.array([[1.0, 3, 5, np.nan, 7], [np.nan, np.nan, 2, 4, 6]])
    together, found = downsample_columns(matrix, 3)
    assert together == 2
    assert_array_equal(found, [[2, 5, 7], [np.nan, 3, 6]])
    assert downsample_columns(matrix, 5)[0] == 1
