"""Collectives of several ranks: matching by number or order, compared with a plain reference."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.collectives import (
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
