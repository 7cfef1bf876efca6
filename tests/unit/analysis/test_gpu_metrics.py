"""Utilization of devices and nodes over time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import DeviceWork, find_recorded_kernels, measure_recorded_utilization
from stepscope.analysis.arrays.histograms import cut_into_buckets
from stepscope.analysis.devices.gpu_metrics import (
    DeviceKernels,
    measure_gpu_metrics,
    read_occupancy,
    split_by_device,
)
from stepscope.analysis.machines import measure_contention, measure_usage
from stepscope.store import DictColumn

NAN = float("nan")
Drawn = tuple[int, int, float, float]
"""Start, end, blocks per multiprocessor, occupancy."""


def kernels(*drawn: Drawn, tensor_cores: list[int] | None = None) -> DeviceKernels:
    rows = np.array(drawn, dtype=np.float64).reshape(-1, 4)
    flags = np.zeros(len(rows), dtype=np.bool_)
    flags[tensor_cores or []] = True
    return DeviceKernels(
        start=rows[:, 0].astype(np.int64),
        end=rows[:, 1].astype(np.int64),
        blocks=rows[:, 2],
        occupancy_ratio=rows[:, 3],
        tensor_cores=flags,
        hidden_cores=np.zeros(len(rows), dtype=np.bool_),
    )


US = 1_000
WORKED = (
    (130 * US, 140 * US, 0.5, 0.6),
    (135 * US, 150 * US, 0.6, 0.1),
    (145 * US, 170 * US, 0.3, 1.0),
    (200 * US, 220 * US, 10.5, 0.3),
    (150 * US, 150 * US, 3.0, 0.9),  # of no duration
)


def test_worked_example() -> None:
    """Range 100 to 220: by hand, (0.5 * 5 + 1 * 5 + 0.6 * 5 + 0.9 * 5 + 0.3 * 20 + 20) / 120."""
    cut = cut_into_buckets(100 * US, 220 * US)
    metrics = measure_gpu_metrics(kernels(*WORKED, tensor_cores=[2]), 100 * US, 220 * US, cut)
    assert metrics.utilization_ratio == 0.5
    assert metrics.sm_efficiency_ratio == pytest.approx(41 / 120)
    assert metrics.occupancy_ratio == pytest.approx((6 + 1.5 + 25 + 6) / 70)
    assert metrics.tensor_core_ratio == pytest.approx(25 / 70)
    assert metrics.utilization_curve == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    assert metrics.sm_efficiency_curve == pytest.approx(
        [0, 0, 0, 0.75, 0.75, 0.3, 0.3, 0, 0, 0, 1, 1]
    )


def test_time_outside_the_range_does_not_count() -> None:
    metrics = measure_gpu_metrics(kernels((-50, 50, 1, 0.5), (90, 190, 1, 1)), 0, 100, None)
    assert metrics.utilization_ratio == 0.6
    assert metrics.sm_efficiency_ratio == 0.6
    assert metrics.occupancy_ratio == pytest.approx((50 * 0.5 + 10) / 60)
    assert (metrics.utilization_curve, metrics.sm_efficiency_curve) == ([], None)


def test_without_grids_there_is_no_estimate() -> None:
    metrics = measure_gpu_metrics(
        kernels((0, 50, NAN, NAN), (60, 70, NAN, NAN)), 0, 100, cut_into_buckets(0, 100, 50)
    )
    assert metrics.utilization_ratio == 0.6
    assert metrics.sm_efficiency_ratio is None
    assert metrics.sm_efficiency_curve is None
    assert metrics.occupancy_ratio is None
    assert metrics.utilization_curve == [1, 0.2]


def test_time_of_kernels_without_positive_block_counts_is_left_out() -> None:
    metrics = measure_gpu_metrics(
        kernels((0, 50, 0, 0.2), (50, 100, 0.5, 0.4), (0, 9, NAN, 0.2)), 0, 100, None
    )
    assert metrics.sm_efficiency_ratio == 0.5
    assert metrics.unknown_grid_ratio == pytest.approx(59 / 109)


def test_zeros_that_the_profiler_could_not_estimate_are_unknown() -> None:
    """Of 64 warps, 12 per multiprocessor are 19 %, and 0.3 are rounded to 0 %."""
    occupancy = read_occupancy(
        {
            "occupancy_percent": np.array([0.0, 0.0, 0.0, 30.0, NAN]),
            "warps_per_multiprocessor": np.array([12.0, 0.3, NAN, 20.0, 20.0]),
        }
    )
    assert occupancy.tolist() == pytest.approx([NAN, 0, NAN, 30, NAN], nan_ok=True)


@given(
    drawn=st.lists(
        st.tuples(st.integers(-20, 90), st.integers(1, 40), st.integers(0, 2_000_000)), min_size=1
    ),
    width=st.integers(1, 70),
)
def test_efficiency_equals_a_count_per_nanosecond(
    drawn: list[tuple[int, int, int]], width: int
) -> None:
    device_kernels = kernels(
        *((start, start + duration, blocks / 1e6, NAN) for start, duration, blocks in drawn)
    )
    cut = cut_into_buckets(0, 70, width)
    metrics = measure_gpu_metrics(device_kernels, 0, 70, cut)
    running = [
        [blocks for start, duration, blocks in drawn if start <= t < start + duration]
        for t in range(70)
    ]
    level = [min(1_000_000, sum(blocks)) / 1e6 if all(blocks) else NAN for blocks in running]

    def average(values: list[float]) -> float | None:
        present = [value for value in values if not np.isnan(value)]
        return float(np.mean(present)) if present else None

    if not any(blocks for _, _, blocks in drawn):
        assert metrics.sm_efficiency_ratio is metrics.sm_efficiency_curve is None
        return
    assert metrics.sm_efficiency_ratio == pytest.approx(average(level))
    busy = sum(
        any(start <= t < start + duration for start, duration, _ in drawn) for t in range(70)
    )
    assert metrics.utilization_ratio == pytest.approx(busy / 70)
    edges = cut.edges.tolist()
    assert metrics.sm_efficiency_curve == pytest.approx(
        [average(level[a:b]) for a, b in itertools.pairwise(edges)]
    )


def test_devices_are_split_and_blocks_follow_from_the_grid() -> None:
    columns = {
        "device": np.array([0, 1, 1]),
        "name": DictColumn.encode(["volta_h884gemm", "add", "add"]),
        "start_ns": np.array([0, 0, 10]),
        "duration_ns": np.array([5, 5, 5]),
        "grid_x": np.array([1, 8, -1]),
        "grid_y": np.array([1, 4, -1]),
        "grid_z": np.array([1, 2, -1]),
        "blocks_per_multiprocessor": np.array([0.25, NAN, NAN]),
        "occupancy_percent": np.array([50.0, NAN, 100.0]),
        "warps_per_multiprocessor": np.array([NAN, NAN, NAN]),
    }
    devices = split_by_device(columns, {1: 80})
    assert devices[0].blocks.tolist() == [0.25]
    assert devices[0].tensor_cores.tolist() == [True]
    assert devices[0].occupancy_ratio.tolist() == [0.5]
    assert devices[1].blocks[0] == 0.8  # 64 blocks on 80 multiprocessors
    assert np.isnan(devices[1].blocks[1])


@pytest.mark.parametrize(
    ("length", "width", "count"),
    [
        (100 * US, US, 100),
        (101 * US, 10 * US, 10),
        (500_000 * US, 10_000 * US, 50),  # 10 ms from 0.1 s to 1 s
        (1_000_000 * US, 10_000 * US, 100),
        (1_065_553 * US, 100_000 * US, 10),
        (3, US, 1),
    ],
)
def test_automatic_buckets(length: int, width: int, count: int) -> None:
    cut = cut_into_buckets(7, 7 + length)
    assert (cut.width_ns, cut.count) == (width, count)
    assert (cut.edges[0], cut.edges[-1]) == (7, 7 + length)


def test_no_range_no_buckets() -> None:
    assert cut_into_buckets(5, 5) is None


def test_shares_of_an_empty_range_are_unknown() -> None:
    metrics = measure_gpu_metrics(kernels((5, 9, 1, 0.5)), 7, 7, None)
    assert metrics.kernel_count == 1
    assert (metrics.utilization_ratio, metrics.sm_efficiency_ratio) == (None, None)
    assert metrics.occupancy_ratio is None


END = 100
Piece = tuple[int, int, int, int]
"""Start, duration, kind and device of a piece of work."""


def make_work(pieces: list[Piece]) -> DeviceWork:
    start, duration, kind, device = np.array(pieces, dtype=np.int64).reshape(-1, 4).T
    nothing = np.zeros(len(start), dtype=np.int64)
    return DeviceWork(
        track=nothing,
        device=device,
        start=start,
        end=start + duration,
        kind=kind.astype(np.int8),
        communication=nothing.astype(np.bool_),
        carry_over=nothing.astype(np.bool_),
        launch=nothing,
    )


pieces = st.tuples(
    st.integers(0, END - 1), st.integers(0, 40), st.integers(0, 2), st.integers(0, 1)
)
recordings = st.tuples(
    st.lists(pieces, max_size=8), st.integers(0, 60), st.integers(1, 40), st.integers(-5, 50)
)


@given(st.lists(recordings, min_size=1, max_size=3), st.integers(1, 30))
def test_each_bucket_is_the_share_of_its_recorded_nanoseconds(
    traces: list[tuple[list[Piece], int, int, int]], width_ns: int
) -> None:
    devices, busy_ns, recorded_ns = [], np.zeros(400), np.zeros(400)
    for work, start, length, shift in traces:
        recorded = slice(start + shift + 100, start + shift + length + 100)
        for device in (0, 1):
            devices.append(
                find_recorded_kernels(
                    make_work(work), device, (start, start + length), shift_ns=shift
                )
            )
            is_busy = np.zeros(400)
            for first, duration, kind, number in work:
                if kind == 0 and number == device:
                    is_busy[first + shift + 100 : first + duration + shift + 100] = 1
            busy_ns[recorded] += is_busy[recorded]
            recorded_ns[recorded] += 1
    buckets = cut_into_buckets(-100, 300, width_ns)
    edges = buckets.edges + 100
    expected = [
        busy_ns[a:b].sum() / recorded_ns[a:b].sum() if recorded_ns[a:b].any() else None
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    assert measure_recorded_utilization(devices, buckets) == pytest.approx(expected)


class Means(dict[tuple[str, str], float]):
    def mean(self, metric: str, device: str = "") -> float | None:
        return self.get((metric, device))


def test_missing_is_not_zero() -> None:
    assert measure_contention(Means({}), [1]) is None


def test_contention_is_of_the_training_processes() -> None:
    means = {
        ("outside_cpu_cores", ""): 3.0,
        ("job_cpu_cores", ""): 1.0,
        ("cgroup_throttled_ratio", ""): 0.5,
        ("process_runqueue_ratio", "10"): 0.2,
        ("process_runqueue_ratio", "11"): 0.4,
        ("process_runqueue_ratio", "99"): 1.0,
    }
    contention = measure_contention(Means(means), [10, 11, 12])
    assert (contention.outside_cores, contention.job_cores, contention.throttled_ratio) == (
        3,
        1,
        0.5,
    )
    assert contention.waiting_ratio == pytest.approx(0.3)
    assert (contention.stolen_cores, contention.stolen_ratio) == (0, 0)


@pytest.mark.parametrize("runs", [0.8, 3.0])
def test_stolen_time_of_a_running_thread_is_waiting(runs: float) -> None:
    """The machine had three of four cores: a running thread loses a third of its running time."""
    means = {
        ("outside_cpu_cores", ""): 1.4,
        ("stolen_cpu_cores", ""): 1.0,
        ("job_cpu_cores", ""): 2.5,
        ("own_cpu_cores", ""): 0.1,
        ("process_runqueue_ratio", "10"): 0.1,
        ("process_cpu_cores", "10"): runs,
    }
    contention = measure_contention(Means(means), [10])
    stolen = min(1, runs) / 3
    assert (contention.stolen_cores, contention.stolen_ratio) == (1, pytest.approx(stolen))
    assert contention.waiting_ratio == pytest.approx(0.1 + stolen)


def test_shares_of_usage_include_the_limits_in_the_middle() -> None:
    shares = measure_usage(np.array([0.0, 0.1, 0.5, 0.9, 1.0]), low=0.1, high=0.9)
    assert (shares.count, shares.low_ratio, shares.middle_ratio, shares.high_ratio) == (
        5,
        0.2,
        0.6,
        0.2,
    )
