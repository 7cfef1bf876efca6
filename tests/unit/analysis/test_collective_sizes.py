"""Collectives by size and reach, against sums over the calls by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import RankCalls, group_collectives_by_size, match_calls
from stepscope.analysis.collectives import CollectiveCalls

KINDS = ["all_reduce", "all_gather"]
Row = tuple[int, int, int, int, int]
"""Rank, kind, group (-1 for unknown), size, duration."""
ROWS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 1), st.integers(-1, 1),
        st.sampled_from([-1, 0, 1, 1023, 1024, 2047, 2048, 2**40]), st.integers(1, 99),
    ),
    max_size=30,
)  # fmt: skip


def rank_calls(rows: list[Row], group_size: int = 4) -> RankCalls:
    rank, kind, group, size, duration = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    start = np.arange(len(rank)) * 100
    calls = CollectiveCalls(
        rank=rank,
        start=start,
        end=start + duration,
        kind=kind,
        kinds=KINDS,
        group=group,
        sequence=np.full(len(rank), -1),
        pair=np.full(len(rank), -1),
        size_bytes=size,
    )
    return RankCalls(
        calls=calls,
        group_names=["world", "pair", None],
        descriptions={},
        group_size=np.full(len(rank), group_size),
        dtype=np.full(len(rank), -1),
        dtypes=[],
    )


@given(rows=ROWS)
def test_every_call_is_in_one_row(rows: list[Row]) -> None:
    calls = rank_calls(rows)
    sizes = group_collectives_by_size(calls, match_calls(calls.calls), ["a", "a", "a", "b"])
    assert sum(size.call_count for size in sizes) == len(rows)
    total = sum(row[4] for row in rows)
    for size in sizes:
        if size.from_bytes is None:
            inside = {-1}
        else:
            assert size.to_bytes is not None
            inside = {row[3] for row in rows if size.from_bytes <= row[3] < size.to_bytes}
        members = [
            row
            for row in rows
            if KINDS[row[1]] == size.name and row[3] in inside and reach(rows, row[2]) == size.reach
        ]
        assert (size.call_count, size.total_ns) == (len(members), sum(row[4] for row in members))
        assert size.share_ratio == pytest.approx(size.total_ns / total)
        assert size.moved_bytes == (None if inside == {-1} else sum(row[3] for row in members))


def reach(rows: list[Row], group: int) -> str | None:
    """Find the reach of a group of four ranks, of which rank 3 is on another node."""
    ranks = {row[0] for row in rows if row[2] == group}
    return "between nodes" if group >= 0 and 3 in ranks and len(ranks) > 1 else None


@pytest.mark.parametrize(
    ("nodes", "group_size", "expected"),
    [
        (["a", "a"], 2, "within a node"),
        (["a", "b"], 2, "between nodes"),
        (["a", "b"], 8, "between nodes"),
        (["a", "a"], 8, None),  # six ranks were not recorded
        (["a", None], 2, None),
        ([None, None], 2, None),
    ],
)
def test_reach(nodes: list[str | None], group_size: int, expected: str | None) -> None:
    calls = rank_calls([(0, 0, 0, 1024, 5), (1, 0, 0, 1024, 7)], group_size)
    (size,) = group_collectives_by_size(calls, match_calls(calls.calls), nodes)
    assert size.reach == expected
    assert (size.from_bytes, size.to_bytes) == (1024, 2048)
    # The bus bandwidth of an all-reduce as in nccl-tests: S / t x 2 (n - 1) / n.
    factor = 2 * (group_size - 1) / group_size
    assert size.bus_bytes_per_s == pytest.approx(2 * 1024 / (2 * 5e-9) * factor)
