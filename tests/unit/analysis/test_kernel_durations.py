"""Kernels by classes of duration, against a count by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import SHORT_NS, count_kernels_by_duration

DURATIONS = st.lists(st.integers(0, 30_000_000) | st.sampled_from([1_999, 2_000, 9_999, SHORT_NS]))


@given(durations=DURATIONS)
def test_every_kernel_is_in_one_class(durations: list[int]) -> None:
    classes = count_kernels_by_duration(np.array(durations, dtype=np.int64))
    assert (classes == []) == (not durations)
    for row in classes:
        inside = [ns for ns in durations if row.from_ns <= ns < (row.to_ns or np.inf)]
        assert (row.calls, row.total_ns) == (len(inside), sum(inside))
        assert row.calls_ratio == pytest.approx(len(inside) / len(durations))
        assert row.share_ratio == pytest.approx(sum(inside) / (sum(durations) or 1))
    assert sum(row.calls for row in classes) == len(durations)
    edges = [(row.from_ns, row.to_ns) for row in classes]
    assert all(to == following for (_, to), (following, _) in pairwise(edges))


def test_the_limit_of_short_kernels_is_an_edge() -> None:
    classes = count_kernels_by_duration(np.array([1], dtype=np.int64))
    assert classes[0].from_ns == 0
    assert classes[-1].to_ns is None
    assert SHORT_NS in {row.to_ns for row in classes}
