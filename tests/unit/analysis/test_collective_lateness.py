"""Lateness at collectives, compared with a plain reference."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, strategies as st

from stepscope.analysis import Lateness, RankArrivals, measure_lateness, summarize_lateness

Row = tuple[int, int, int, int, int]
"""Rank, group, number, kind, time."""

rows = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 2), st.integers(1, 4), st.integers(0, 1),
        st.integers(0, 50),
    ),
    max_size=40,
    unique_by=lambda row: row[:3],
)  # fmt: skip


def measure(table: list[Row]) -> Lateness:
    rank, group, number, kind, t_ns = np.array(table, dtype=np.int64).reshape(-1, 5).T
    return measure_lateness(
        RankArrivals(rank=rank, group=group, number=number, kind=kind, t_ns=t_ns)
    )


@given(rows)
def test_lateness_is_that_of_a_plain_reference(table: list[Row]) -> None:
    lateness = measure(table)
    collectives = defaultdict(list)
    for index, row in enumerate(table):
        collectives[row[1:3]].append(index)
    mismatches = 0
    for indices in collectives.values():
        calls = [table[index] for index in indices]
        has_one_kind = len({call[3] for call in calls}) == 1
        mismatches += not has_one_kind
        first = min(call[4] for call in calls)
        order = sorted(indices, key=lambda index: (table[index][4], table[index][0]))
        for index in indices:
            is_matched = has_one_kind and len(calls) > 1
            is_last = is_matched and index == order[-1]
            wait = table[order[-1]][4] - table[order[-2]][4] if is_last else 0
            assert lateness.is_matched[index] == is_matched
            assert lateness.lateness_ns[index] == (table[index][4] - first if is_matched else 0)
            assert lateness.is_last[index] == is_last
            assert lateness.caused_wait_ns[index] == wait
    assert lateness.mismatch_count == mismatches


@given(rows)
def test_summaries_count_every_call_once(table: list[Row]) -> None:
    lateness = measure(table)
    summaries = summarize_lateness(np.array([row[0] for row in table], dtype=np.int64), lateness, 4)
    assert sum(summary.call_count for summary in summaries) == len(table)
    assert sum(summary.last_count for summary in summaries) == int(lateness.is_last.sum())
    for rank, summary in enumerate(summaries):
        values = [
            int(late)
            for row, late, matched in zip(
                table, lateness.lateness_ns, lateness.is_matched, strict=True
            )
            if row[0] == rank and matched
        ]
        assert summary.matched_count == len(values)
        assert summary.mean_ns == (sum(values) / len(values) if values else None)


def test_a_rank_that_is_always_late_is_the_one_that_others_wait_for() -> None:
    table = [(rank, 0, n, 0, 100 * n + 7 * (rank == 2)) for n in range(1, 9) for rank in range(4)]
    summaries = summarize_lateness(np.array([row[0] for row in table]), measure(table), 4)
    assert [summary.last_count for summary in summaries] == [0, 0, 8, 0]
    assert [summary.median_ns for summary in summaries] == [0, 0, 7, 0]
    assert summaries[2].caused_wait_ns == 8 * 7
