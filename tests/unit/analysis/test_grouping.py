"""Grouping of rows, compared with dictionaries."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, strategies as st

from stepscope.analysis.grouping import group_rows

keys = st.integers(-3, 3) | st.sampled_from([-(2**40), 2**40, 2**31])
rows = st.lists(st.tuples(keys, keys, st.integers(0, 2**40)), max_size=40)


@given(rows)
def test_sums_by_two_keys(drawn: list[tuple[int, int, int]]) -> None:
    first, second, values = (np.array([row[i] for row in drawn], dtype=np.int64) for i in range(3))
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (a, b, _) in enumerate(drawn):
        members[a, b].append(row)
    groups = group_rows(first, second)
    assert len(groups) == len(members)
    assert [(first[r], second[r]) for r in groups.first] == sorted(members)
    for group, (_, group_rows_) in enumerate(sorted(members.items())):
        of_group = [drawn[row][2] for row in group_rows_]
        assert groups.first[group] == group_rows_[0]
        assert (groups.group[group_rows_] == group).all()
        assert groups.counts()[group] == len(of_group)
        assert groups.sums(values)[group] == sum(of_group)
        assert groups.minima(values)[group] == min(of_group)
        assert groups.maxima(values)[group] == max(of_group)


def test_large_sums_are_exact() -> None:
    day = 86_400_000_000_000
    groups = group_rows(np.zeros(100, dtype=np.int64))
    assert groups.sums(np.full(100, day + 1)).tolist() == [100 * day + 100]
