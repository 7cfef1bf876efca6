"""Collectives of several ranks: matching, sizes and lateness, compared with references."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import (
    Lateness,
    RankArrivals,
    RankCalls,
    group_collectives_by_size,
    measure_lateness,
    summarize_lateness,
)
from stepscope.analysis.ranks.collectives import (
    CollectiveCalls,
    MatchedCalls,
    classify_collective,
    compute_bus_factor,
    look_up_element_bytes,
    match_calls,
    measure_bandwidth,
)

KINDS = ["all_reduce", "broadcast", "send_recv"]
Row = tuple[int, int, int, int, int, int]
"""Rank, start, duration, kind, group, number within the group."""


def calls(rows: list[Row], *, pair: int = -1, size: int = -1) -> CollectiveCalls:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    rank, start, duration, kind, group, sequence = columns
    return CollectiveCalls(
        rank=rank,
        start=start,
        end=start + duration,
        kind=kind,
        kinds=KINDS,
        group=group,
        sequence=sequence,
        pair=np.full(len(rank), pair),
        size_bytes=np.full(len(rank), size),
    )


def twin(rows: list[Row]) -> list[int | None]:
    """Compute the transfer of each call by the definition, None for an unmatched call."""
    kinds: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(range(len(rows)), key=lambda i: (rows[i][1], i)):
        rank, _, _, *key = rows[row]
        kinds[tuple(key)][rank].append(row)
    transfers: list[int | None] = [None] * len(rows)
    for (kind, _, sequence), ranks in kinds.items():
        lengths = {len(members) for members in ranks.values()}
        if sequence < 0 and (len(lengths) > 1 or KINDS[kind] == "send_recv"):
            continue
        for ordinal in range(max(lengths)):
            matched = [members[ordinal] for members in ranks.values() if ordinal < len(members)]
            if len(matched) > 1:
                shortest = min(rows[row][2] for row in matched)
                for row in matched:
                    transfers[row] = shortest
    return transfers


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 50),
            st.integers(0, 9),
            st.integers(0, 2),
            st.integers(-1, 1),
            st.integers(-1, 2),
        ),
        max_size=24,
    )
)
def test_matching_equals_the_plain_definition(rows: list[Row]) -> None:
    matches, expected = match_calls(calls(rows)), twin(rows)
    assert matches.matched.tolist() == [transfer is not None for transfer in expected]
    assert matches.transfer_ns.tolist() == [transfer or 0 for transfer in expected]
    duration = np.array([row[2] for row in rows])
    assert matches.last.tolist() == [
        transfer is not None and transfer == call_ns
        for transfer, call_ns in zip(expected, duration, strict=True)
    ]


def test_uneven_ranks_are_named() -> None:
    rows = [(0, 0, 5, 0, 0, -1), (0, 9, 5, 0, 0, -1), (1, 0, 5, 0, 0, -1), (2, 1, 5, 0, 0, -1)]
    matches = match_calls(calls(rows))
    assert not matches.matched.any()
    assert matches.uneven_kinds == {"all_reduce": [1, 2]}
    numbered = [(0, 0, 5, 0, 0, 7), (0, 9, 5, 0, 0, 8), (1, 3, 2, 0, 0, 8)]
    assert match_calls(calls(numbered)).uneven_kinds == {}


def test_bandwidth() -> None:
    rows = [(0, 0, 50, 0, 0, 1), (1, 30, 20, 0, 0, 1)]
    given_calls = calls(rows, size=1000)
    bandwidth = measure_bandwidth(given_calls, match_calls(given_calls), 4)
    # Two calls of 1000 bytes, each transferred in 20 ns.
    assert (bandwidth.moved_bytes, bandwidth.mean_bytes) == (2000, 1000)
    assert bandwidth.algorithm_bytes_per_s == pytest.approx(2000 / 40e-9)
    assert bandwidth.bus_bytes_per_s == pytest.approx(2000 / 40e-9 * 2 * 3 / 4)
    nothing = measure_bandwidth(calls(rows), match_calls(calls(rows)), 4)
    assert (nothing.moved_bytes, nothing.algorithm_bytes_per_s) == (None, None)


def test_unmatched_call_counts_with_its_duration() -> None:
    alone = calls([(0, 0, 50, 1, 0, 1)], size=100)
    matches: MatchedCalls = match_calls(alone)
    assert measure_bandwidth(alone, matches, 2).algorithm_bytes_per_s == pytest.approx(100 / 50e-9)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half", "reduce_scatter"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "send_recv"),
        ("send", "send_recv"),
        ("recv", "send_recv"),
        ("all_to_allv", "all_to_all"),
        ("gloo:broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("cross_device_reduce_1stage", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<true, 7168>", "all_to_all"),
        ("deep_ep::intranode::combine<__nv_bfloat16, 8>", "all_to_all"),
        ("multimem_all_reduce_kernel<c10::BFloat16, 16>", "all_reduce"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert classify_collective(name) == kind


def test_sizes_and_factors() -> None:
    assert [look_up_element_bytes(name) for name in ("Double", "c10", "Bool")] == [8, None, 1]
    assert compute_bus_factor("all_reduce", None) is None
    assert compute_bus_factor("send_recv", None) == 1


Arrival = tuple[int, int, int, int, int]
"""Rank, group, number, kind, time."""

rows = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 2), st.integers(1, 4), st.integers(0, 1),
        st.integers(0, 50),
    ),
    max_size=40,
    unique_by=lambda row: row[:3],
)  # fmt: skip


def measure(table: list[Arrival]) -> Lateness:
    rank, group, number, kind, t_ns = np.array(table, dtype=np.int64).reshape(-1, 5).T
    return measure_lateness(
        RankArrivals(rank=rank, group=group, number=number, kind=kind, t_ns=t_ns)
    )


@given(rows)
def test_lateness_is_that_of_a_plain_reference(table: list[Arrival]) -> None:
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
def test_summaries_count_every_call_once(table: list[Arrival]) -> None:
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


SIZED_KINDS = ["all_reduce", "all_gather"]
SizedCall = tuple[int, int, int, int, int]
"""Rank, kind, group (-1 for unknown), size, duration."""
SIZED_CALLS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 1), st.integers(-1, 1),
        st.sampled_from([-1, 0, 1, 1023, 1024, 2047, 2048, 2**40]), st.integers(1, 99),
    ),
    max_size=30,
)  # fmt: skip


def rank_calls(rows: list[SizedCall], group_size: int = 4) -> RankCalls:
    rank, kind, group, size, duration = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    start = np.arange(len(rank)) * 100
    calls = CollectiveCalls(
        rank=rank,
        start=start,
        end=start + duration,
        kind=kind,
        kinds=SIZED_KINDS,
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


@given(rows=SIZED_CALLS)
def test_every_call_is_in_one_row(rows: list[SizedCall]) -> None:
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
            if SIZED_KINDS[row[1]] == size.name
            and row[3] in inside
            and reach(rows, row[2]) == size.reach
        ]
        assert (size.call_count, size.total_ns) == (len(members), sum(row[4] for row in members))
        assert size.share_ratio == pytest.approx(size.total_ns / total)
        assert size.moved_bytes == (None if inside == {-1} else sum(row[3] for row in members))


def reach(rows: list[SizedCall], group: int) -> str | None:
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
