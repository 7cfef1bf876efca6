"""Memory: curves, blocks, what operators allocated, and the peak explained.

A drawn history is a line of events, `+a4` allocates 4 bytes at address a, `-a4` releases them;
one nanosecond apart.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.devices.memory_peak import (
    NO_BACKWARD,
    MemoryPeak,
    explain_peak,
    find_passes,
    is_backward,
    label_operators,
    list_largest_blocks,
    pair_blocks,
)
from stepscope.analysis.devices.memory_use import (
    DeviceMemory,
    downsample_curve,
    measure_step_memory,
    split_memory_by_device,
    summarize_memory_operators,
)
from stepscope.analysis.operators.operator_tree import build_operator_tree
from stepscope.intervals import Intervals
from tests.support.drawn_operators import Op, numbers, op, operator_columns, strings


def events(
    history: str, *, before: int | None = 0, times: list[int] | None = None, operators: Any = None
) -> dict[str, Any]:
    """Return the table of a drawn history on GPU 0; `before` bytes are allocated before it, None if
    totals are not recorded."""
    drawn = history.split()
    sizes = [int(word[2:]) * (1 if word[0] == "+" else -1) for word in drawn]
    count = len(drawn)
    unknown = numbers([-1] * count)
    return {
        "t_ns": numbers(times or range(count)),
        "device_type": numbers([1] * count),
        "device": numbers([0] * count),
        "size_bytes": numbers(sizes),
        "allocated_bytes": before + np.cumsum(numbers(sizes)) if before is not None else unknown,
        "reserved_bytes": numbers([64] * count),
        "address": numbers([ord(word[1]) for word in drawn]),
        "operator": unknown if operators is None else numbers(operators),
    }


def only(columns: dict[str, Any]) -> DeviceMemory:
    (device,) = split_memory_by_device(columns)
    return device


def test_a_curve_that_starts_with_memory_already_allocated() -> None:
    device = only(events("+a4 +b6 -a4 -z5", before=100))
    assert device.name == "GPU 0"
    assert device.absolute
    assert device.start_bytes == 100
    assert device.allocated_bytes.tolist() == [104, 110, 106, 101]
    assert device.peak_index == 1


def test_without_totals_a_curve_is_the_change() -> None:
    device = only(events("+a4 +b6 -a4", before=None))
    assert not device.absolute
    assert device.start_bytes == 0
    assert device.allocated_bytes.tolist() == [4, 10, 6]


def test_devices_are_separate_and_the_host_is_last() -> None:
    columns = events("+a1 +b2 +c4 +d8")
    columns["device_type"] = numbers([0, 1, 1, 0])
    columns["device"] = numbers([-1, 1, 0, -1])
    columns["t_ns"] = numbers([4, 2, 3, 1])
    devices = split_memory_by_device(columns)
    assert [device.name for device in devices] == ["GPU 0", "GPU 1", "CPU"]
    assert devices[2].size_bytes.tolist() == [8, 1]
    assert devices[2].reserved_bytes is None
    assert split_memory_by_device(events("")) == []


def test_reallocated_address_holds_one_block() -> None:
    history = events("+a4 +b6 +a2")
    device = only(history)
    blocks = pair_blocks(device, history["address"])
    assert blocks.size_bytes[blocks.alive_at(1)].tolist() == [4, 6]
    assert blocks.size_bytes[blocks.alive_at(2)].tolist() == [2, 6]


def test_largest_blocks_name_the_caller_of_allocators() -> None:
    columns = operator_columns(op("aten::mul", 9, op("aten::empty_like", 5, op("aten::empty", 1))))
    tree = build_operator_tree(columns)
    mul, _, empty = columns["id"].tolist()
    history = events("+a4 +b6 -a4 -y3", operators=[empty, -1, -1, mul], before=10)
    device = only(history)
    blocks = pair_blocks(device, history["address"])
    labels = label_operators(tree, tree.find_rows(history["operator"][device.rows[blocks.events]]))
    rows, count = list_largest_blocks(device, blocks, labels)
    assert count == 3
    assert [
        (r.operator, r.size_bytes, r.allocated_after_ns, r.released_after_ns, r.lifetime_ns)
        for r in rows
    ] == [
        (None, 6, 1, None, None),
        ("aten::mul (aten::empty)", 4, 0, 2, 2),
        ("aten::mul", 3, None, 3, None),
    ]
    rows, count = list_largest_blocks(device, blocks, labels, containing="empty", top=1)
    assert ([row.size_bytes for row in rows], count) == ([4], 1)


def test_allocations_of_operators() -> None:
    columns = operator_columns(
        op("conv", 9, op("empty", 1), op("empty", 1)), op("empty", 1, op("empty", 1)), op("idle", 1)
    )
    conv, first, second, _, inner, _ = columns["id"].tolist()
    history = events(
        "+a8 -a8 +b4 +c2 +d1 -z5", operators=[first, conv, second, inner, -1, -1], before=9
    )
    operators = summarize_memory_operators(only(history), history, build_operator_tree(columns))
    rows = {row.name: row for row in operators.rows}
    assert list(rows) == ["empty", "conv"]
    empty, conv_row = rows["empty"], rows["conv"]
    assert (empty.calls, empty.self_size_increase_bytes, empty.size_increase_bytes) == (3, 14, 14)
    assert (empty.self_allocation_count, empty.self_allocation_bytes) == (3, 14)
    assert (conv_row.self_size_increase_bytes, conv_row.size_increase_bytes) == (-8, 4)
    assert (conv_row.allocation_count, conv_row.allocation_bytes) == (2, 12)
    assert conv_row.self_allocation_count == 0
    assert (operators.outside_count, operators.outside_size_increase_bytes) == (2, -4)


def peak_of(history: dict[str, Any], columns: dict[str, Any], *, optimizer: Any = ()) -> MemoryPeak:
    device, tree = only(history), build_operator_tree(columns)
    ranges = {
        "name": strings(["Optimizer.step#SGD.step"] * len(optimizer)),
        "start_ns": numbers([start for start, _ in optimizer]),
        "duration_ns": numbers([end - start for start, end in optimizer]),
    }
    backward = is_backward(tree, columns["forward_thread"])
    passes = find_passes(tree, columns, ranges) if backward.any() else None
    return explain_peak(
        device,
        pair_blocks(device, history["address"]),
        history["operator"],
        tree,
        passes=passes,
        backward=backward,
    )


def test_peak_with_memory_from_before_the_trace() -> None:
    columns = operator_columns(op("a", 1), op("b", 1))
    a, b = columns["id"].tolist()
    history = events("+a4 -z1 +b6 -b6 +c5 +d7 -c5", operators=[a, -1, a, a, b, b, b], before=100)
    peak = peak_of(history, columns)
    assert (peak.after_ns, peak.allocated_bytes, peak.before_bytes) == (5, 115, 99)
    assert [(h.operator, h.held_bytes, h.block_count) for h in peak.holders] == [
        ("b", 12, 2),
        ("a", 4, 1),
    ]
    assert (peak.purposes, peak.missing) == ([], NO_BACKWARD)
    assert (peak.twice_low_bytes, peak.twice_high_bytes) == (None, None)


def test_purposes_of_memory_at_the_peak() -> None:
    engine = "autograd::engine::evaluate_function: MmBackward0"
    columns = operator_columns(
        op("mm", 10), op("drop", 10), op(engine, 20, op("mm", 10)), op("add_", 9)
    )
    columns["start_ns"] = numbers([0, 10, 20, 25, 60])
    mm, drop, _, inner, add = columns["id"].tolist()
    # Forward 0..20 (activations, a temporary), backward 20..60, optimizer 60..90.
    history = events(
        "+a1 +b2 -b2 +c4 +d8 +e16 -d8 -a1 +f32 -c4 -f32 +g64",
        times=[1, 11, 12, 13, 26, 27, 40, 41, 62, 63, 64, 65],
        operators=[mm, drop, drop, drop, inner, inner, inner, inner, add, add, add, add],
        before=1000,
    )
    history["allocated_bytes"][5] += 500  # the peak is in the backward pass
    peak = peak_of(history, columns, optimizer=[(60, 90)])
    assert {p.purpose: p.held_bytes for p in peak.purposes} == {
        "before_recording": 1500,
        "activations": 1 + 4,
        "gradients": 16,
        "temporary": 8,
    }
    # Twice the activations a and c, which are alive then, and perhaps the temporary d.
    assert peak.twice_low_bytes == peak.allocated_bytes + 1 + 4
    assert peak.twice_high_bytes == peak.allocated_bytes + 1 + 4 + 8
    history["allocated_bytes"][5] -= 500
    history["allocated_bytes"][11] += 500  # and now at the end
    peak = peak_of(history, columns, optimizer=[(60, 90)])
    assert {p.purpose: p.held_bytes for p in peak.purposes} == {
        "before_recording": 1500,
        "gradients": 16,
        "optimizer_state": 64,
    }


sizes = st.lists(
    st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(1, 9)), min_size=1, max_size=40
)


@given(sizes, st.integers(0, 50))
def test_holders_and_earlier_memory_sum_to_the_peak(
    drawn: list[tuple[str, bool, int]], before: int
) -> None:
    history = " ".join(f"{'+' if grows else '-'}{address}{size}" for address, grows, size in drawn)
    peak = peak_of(events(history, before=1000 + before), operator_columns(op("a", 1)))
    assert peak.before_bytes is not None
    assert (
        sum(holder.held_bytes for holder in peak.holders) + peak.before_bytes
        == peak.allocated_bytes
    )


@given(sizes)
def test_blocks_equal_a_simulation_event_by_event(drawn: list[tuple[str, bool, int]]) -> None:
    history = " ".join(f"{'+' if grows else '-'}{address}{size}" for address, grows, size in drawn)
    expected: set[tuple[int, int, int]] = set()
    open_blocks: dict[str, tuple[int, int]] = {}
    for event, (address, grows, size) in enumerate(drawn):
        if address in open_blocks:
            allocation, block_size = open_blocks.pop(address)
            expected.add((allocation, -1 if grows else event, block_size))
        elif not grows:
            expected.add((-1, event, size))
        if grows:
            open_blocks[address] = (event, size)
    expected |= {(allocation, -1, size) for allocation, size in open_blocks.values()}
    columns = events(history, before=1000)
    blocks = pair_blocks(only(columns), columns["address"])
    arrays = (blocks.allocation, blocks.release, blocks.size_bytes)
    assert set(zip(*(array.tolist() for array in arrays), strict=True)) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(-50, 50).filter(bool)), min_size=1, max_size=300
    ),
    st.integers(8, 60),
)
def test_downsampled_curve_keeps_ends_and_extremes(
    drawn: list[tuple[int, int]], points: int
) -> None:
    drawn = sorted(drawn, key=lambda event: event[0])
    columns = events(
        " ".join(f"{'+' if size > 0 else '-'}a{abs(size)}" for _, size in drawn), before=99999
    )
    columns["t_ns"] = numbers([t for t, _ in drawn])
    device = only(columns)
    curve = downsample_curve(device, points)
    all_points = list(zip(device.t_ns.tolist(), device.allocated_bytes.tolist(), strict=True))
    curve_points = list(zip(curve.t_ns.tolist(), curve.allocated_bytes.tolist(), strict=True))
    assert len(curve_points) <= points + 2
    assert [point for point in all_points if point in set(curve_points)][:1] == curve_points[:1]
    assert (curve_points[0], curve_points[-1]) == (all_points[0], all_points[-1])
    assert set(curve_points) <= set(all_points)
    assert max(value for _, value in curve_points) == device.allocated_bytes.max()
    assert min(value for _, value in curve_points) == device.allocated_bytes.min()


def test_bucket_width_can_be_requested() -> None:
    device = only(events("+a1 +b1 -b1 +c9 -c9 +d1"))
    assert downsample_curve(device, 1000).t_ns.tolist() == [0, 1, 2, 3, 4, 5]
    assert downsample_curve(device, 1000, bucket_ns=3).t_ns.tolist() == [0, 1, 3, 4, 5]


def test_unknown_device_type_is_named_by_number() -> None:
    columns = events("+a1")
    columns["device_type"] = numbers([20])
    assert only(columns).name == "device type 20 number 0"


@pytest.mark.parametrize(
    "name",
    ["MmBackward0", "torch::autograd::AccumulateGrad", "autograd::engine::evaluate_function: X"],
)
def test_backward_by_name(name: str) -> None:
    columns = operator_columns(op(name, 1), op("aten::convolution_backward", 1))
    assert is_backward(build_operator_tree(columns), columns["forward_thread"]).tolist() == [
        True,
        False,
    ]


changes = st.lists(st.integers(-9, 9).filter(bool), max_size=2)
names = st.sampled_from(["a", "b", "Optimizer.step#SGD.step"])
calls = st.recursive(
    st.builds(op, names, st.just(1), allocations=changes),
    lambda inner: st.builds(
        lambda name, inside, sizes: op(name, 1, *inside, allocations=sizes),
        names,
        st.lists(inner, max_size=3),
        changes,
    ),
    max_leaves=10,
)


@given(st.lists(calls, min_size=1, max_size=3))
def test_allocations_equal_a_count_call_by_call(roots: list[Op]) -> None:
    columns = operator_columns(*roots)
    drawn = [
        (size, call.id) for root in roots for call, _, _ in root.walk() for size in call.allocations
    ]
    if not drawn:
        return
    history = events(
        " ".join(f"{'+' if size > 0 else '-'}a{abs(size)}" for size, _ in drawn), before=999
    )
    history["operator"] = numbers([operator for _, operator in drawn])
    expected: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for root in roots:
        for call, _, _ in root.merged().walk():
            below = [size for inner, _, _ in call.walk() for size in inner.allocations]
            sums = [
                total(sizes)
                for sizes in (call.allocations, below)
                for total in (
                    sum,
                    lambda sizes: sum(s > 0 for s in sizes),
                    lambda sizes: sum(s for s in sizes if s > 0),
                )
            ]
            expected[call.name] = [a + b for a, b in zip(expected[call.name], sums, strict=True)]
    rows = {
        row.name: [
            row.self_size_increase_bytes,
            row.self_allocation_count,
            row.self_allocation_bytes,
            row.size_increase_bytes,
            row.allocation_count,
            row.allocation_bytes,
        ]
        for row in summarize_memory_operators(
            only(history), history, build_operator_tree(columns)
        ).rows
    }
    for name in ("a", "b"):
        assert rows.pop(name, [0] * 6) == expected[name]
    assert not rows


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.integers(-3, 10),
)
def test_memory_of_steps(sizes: list[int], lengths: list[int], start: int) -> None:
    """Twin: the level at each nanosecond of a step."""
    signs = [1 if number % 3 else -1 for number in range(1, len(sizes) + 1)]
    text = " ".join(f"{'+' if sign > 0 else '-'}a{n}" for sign, n in zip(signs, sizes, strict=True))
    (memory,) = split_memory_by_device(events(text, before=200))
    edges = np.cumsum([start, *lengths])
    extent = Intervals(edges[:-1], edges[1:])
    low, high = measure_step_memory(memory, extent)

    def level(t: int) -> int:
        return 200 + sum(
            sign * size for at, (sign, size) in enumerate(zip(signs, sizes, strict=True)) if at <= t
        )

    for row, (first, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        levels = [level(t) for t in range(first, max(end, first + 1))]
        assert (low[row], high[row]) == (min(levels), max(levels))
