"""Sampling ticks and heat maps, compared with direct counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stepscope.analysis.sampling_ticks import (
    TICK_NS,
    average_devices,
    build_heatmap,
    group_into_ticks,
)
from stepscope.analysis.series import Series, numeric_sort_key

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
