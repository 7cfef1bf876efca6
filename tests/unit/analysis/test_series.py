"""Series of samples, sampling ticks, grouped rows and ranks side by side."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.testing import assert_array_equal

from stepscope.analysis.arrays.columns import group_rows
from stepscope.analysis.machines import (
    TICK_NS,
    Device,
    Series,
    average_devices,
    build_heatmap,
    group_into_ticks,
    merge_series,
    numeric_sort_key,
)
from stepscope.analysis.ranks.rank_time import (
    build_step_matrix,
    downsample_columns,
    downsample_steps,
    find_stragglers,
)


def series(*samples: tuple[int, float]) -> Series:
    return Series(
        np.array([t for t, _ in samples], dtype=np.int64), np.array([value for _, value in samples])
    )


def test_sorting_keeps_the_order_of_equal_times() -> None:
    unsorted = series((5, 0.1), (2, 0.2), (5, 0.3), (2, 0.4))
    assert unsorted.sort().t_ns.tolist() == [2, 2, 5, 5]
    assert unsorted.sort().value.tolist() == [0.2, 0.4, 0.1, 0.3]
    ordered = unsorted.sort()
    assert ordered.sort() is ordered


def test_merged_samples_are_in_order_of_time() -> None:
    merged = merge_series([series((3, 0.3), (9, 0.9)), series((4, 0.4)), series()])
    assert list(zip(*(part.tolist() for part in merged), strict=True)) == [
        (3, 0.3),
        (4, 0.4),
        (9, 0.9),
    ]
    assert not len(merge_series([]).t_ns)


def test_mean_of_a_range_of_time() -> None:
    samples = series(*((t, float(t)) for t in range(10)))
    assert samples.mean_between(2, 5) == 3
    assert samples.mean_between(10, 20) is None


def test_devices() -> None:
    assert sorted(["10", "2", "", "eth0"], key=numeric_sort_key) == ["", "eth0", "2", "10"]
    assert (str(Device("n0", "3")), Device("n0", "3").gpu_label) == ("n0/3", "GPU 3 of node n0")


PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
S = 10**9


def samples_of(rows: list[tuple[int, str, str, float]]) -> dict[str, dict[str, Series]]:
    """Return rows of time, metric, device and value."""
    samples: dict[str, dict[str, Series]] = {}
    for name, device in sorted(
        {row[1:3] for row in rows}, key=lambda row: numeric_sort_key(row[1])
    ):
        part = sorted((t, value) for t, *key, value in rows if key == [name, device])
        samples.setdefault(name, {})[device] = Series(
            np.array([t for t, _ in part], dtype=np.int64), np.array([value for _, value in part])
        )
    return samples


@PATIENT
@given(st.lists(st.integers(0, 20 * TICK_NS), max_size=40).map(sorted))
def test_pause_separates_ticks(times: list[int]) -> None:
    first, tick = group_into_ticks(np.array(times, dtype=np.int64))
    number, expected = -1, []
    for index, time in enumerate(times):
        number += index == 0 or time - times[index - 1] > TICK_NS
        expected.append(number)
    assert tick.tolist() == expected
    assert first.tolist() == [expected.index(n) for n in range(number + 1)]


def test_mean_over_sampled_devices() -> None:
    rows = [(0, "gpu_busy_ratio", "0", 0.2), (1000, "gpu_busy_ratio", "1", 0.6),
            (S, "gpu_busy_ratio", "0", 0.4), (0, "gpu_busy_ratio", "", 0.9)]  # fmt: skip
    times, means = average_devices(samples_of(rows)["gpu_busy_ratio"])
    assert times.tolist() == [0, S]
    assert np.allclose(means, [0.4, 0.4])
    assert not len(average_devices({}).t_ns)


@pytest.mark.seed("DBU-06")
def test_a_heat_map_by_hand() -> None:
    rows = [
        (0, "gpu_busy_ratio", "10", 0.1),
        (3, "gpu_busy_ratio", "2", 0.2),
        (5, "core_busy_ratio", "0", 0.3),
        (5, "cpu_busy_ratio", "", 0.3),
        (7, "network_sent_bytes_per_s", "eth0", 50),
        (S, "gpu_busy_ratio", "2", 0.4),
        (S, "cpu_iowait_ratio", "", 0.05),
        (S, "core_iowait_ratio", "0", 0.05),
        (S, "network_sent_bytes_per_s", "eth0", 200),
        (S, "outside_cpu_cores", "", 3),
        (2 * S, "memory_used_ratio", "", 0.5),
    ]
    heatmap = build_heatmap({"n0": samples_of(rows)})
    assert [(row.metric, row.device, row.scale) for row in heatmap.rows] == [
        ("gpu_busy_ratio", "2", 1),
        ("gpu_busy_ratio", "10", 1),
        ("cpu_busy_ratio", "", 1),
        ("core_busy_ratio", "0", 1),
        ("memory_used_ratio", "", 1),
        ("cpu_iowait_ratio", "", 1),
        ("network_sent_bytes_per_s", "eth0", 200),
    ]
    assert heatmap.t_ns.tolist() == [0, S, 2 * S]
    nothing = np.nan
    expected = [
        [0.2, 0.4, nothing],
        [0.1, nothing, nothing],
        [0.3, nothing, nothing],
        [0.3, nothing, nothing],
        [nothing, nothing, 0.5],
        [nothing, 0.05, nothing],
        [0.25, 1, nothing],
    ]
    assert np.array_equal(heatmap.shades, expected, equal_nan=True)
    last = build_heatmap({"n0": samples_of(rows)}, last=2)
    assert last.t_ns.tolist() == [S, 2 * S]
    assert np.array_equal(last.values, heatmap.values[:, 1:], equal_nan=True)


def test_no_samples_give_an_empty_map() -> None:
    heatmap = build_heatmap({})
    assert (heatmap.rows, heatmap.values.shape, heatmap.shades.shape) == ([], (0, 0), (0, 0))


def test_nodes_share_the_ticks_of_the_one_with_most_samples() -> None:
    first = [(t * S, "cpu_busy_ratio", "", t / 10) for t in range(4)]
    second = [(t * S + S // 3, "cpu_busy_ratio", "", 0.5 + t / 10) for t in (1, 3)]
    heatmap = build_heatmap({"n0": samples_of(second), "n1": samples_of(first)})
    assert [(row.node, row.metric) for row in heatmap.rows] == [
        ("n0", "cpu_busy_ratio"),
        ("n1", "cpu_busy_ratio"),
    ]
    assert heatmap.t_ns.tolist() == [0, S, 2 * S, 3 * S]
    expected = [[np.nan, 0.6, np.nan, 0.8], [0, 0.1, 0.2, 0.3]]
    assert np.allclose(heatmap.values, expected, equal_nan=True)


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


def test_a_pause_between_steps_breaks_their_line() -> None:
    start = np.array([0, 10, 20, 30, 100, 200])
    time, means = downsample_steps(start, start + 10, np.arange(6.0), 3)
    assert_array_equal(time, [0, 20, 40, 100, 110])
    assert_array_equal(means, [0.5, 2.5, np.nan, 4.5, np.nan])
