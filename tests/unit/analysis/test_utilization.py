"""Statistics of node metrics, and CPU contention."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.utilization import measure_contention, measure_usage


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
