"""Growth of memory over steps: leaks, and what looks like one, drawn as samples every half second.

The slope and its interval have a twin that compares all pairs in a loop.
"""

from __future__ import annotations

import math
from itertools import combinations
from statistics import median

import numpy as np
import pytest

from stepscope import analysis

MIB = 1 << 20
START_NS = 1_700_000_000_000_000_000
SAMPLE_NS = 500_000_000
STEP_NS = 50_000_000
STEP_COUNT = 4000
BASE = 400 * MIB
"""Memory at the start."""


def curve(step_ns: np.ndarray | None = None) -> analysis.StepCurve:
    """Return steps of some durations, by default 4,000 of 50 ms."""
    durations = np.full(STEP_COUNT, STEP_NS) if step_ns is None else step_ns
    steps = analysis.StepCurve()
    steps.add(START_NS + np.cumsum(durations), durations)
    return steps


def samples(use: np.ndarray, step_ns: np.ndarray | None = None) -> analysis.Series:
    """Return the samples of memory, given by step, every half second."""
    ends = np.cumsum(np.full(len(use), STEP_NS) if step_ns is None else step_ns)
    t_ns = np.arange(0, ends[-1], SAMPLE_NS, dtype=np.int64)
    return analysis.Series(
        START_NS + t_ns, BASE + use[np.minimum(np.searchsorted(ends, t_ns), len(use) - 1)]
    )


def trend_of(use: np.ndarray, step_ns: np.ndarray | None = None) -> analysis.MemoryTrend:
    trend = analysis.measure_memory_trend(samples(use, step_ns), curve(step_ns))
    assert trend is not None
    return trend


NUMBERS = np.arange(STEP_COUNT, dtype=np.float64)


def test_a_leak_has_its_rate_by_step_and_by_hour() -> None:
    trend = trend_of(0.25 * MIB * NUMBERS)
    assert trend.is_growing
    assert trend.per_step is not None
    assert trend.per_step.value == pytest.approx(0.25 * MIB, rel=1e-3)
    assert trend.per_step.low <= 0.25 * MIB <= trend.per_step.high
    assert trend.per_hour.value == pytest.approx(0.25 * MIB * 3600e9 / STEP_NS, rel=1e-3)
    evaluated = trend.last_step - trend.first_step  # type: ignore[operator]
    assert evaluated == pytest.approx((1 - 0.2 - 0.03) * STEP_COUNT, rel=0.05)
    assert trend.growth_bytes == pytest.approx(0.25 * MIB * evaluated, rel=0.02)


def test_spikes_within_steps_hide_no_leak_and_make_none() -> None:
    spikes = np.random.default_rng(0).exponential(200 * MIB, STEP_COUNT)
    leak = trend_of(0.25 * MIB * NUMBERS + spikes)
    assert leak.is_growing
    assert leak.per_step is not None
    assert leak.per_step.value == pytest.approx(0.25 * MIB, rel=0.1)
    assert not trend_of(spikes).is_growing


def test_a_leak_is_one_with_few_samples_and_with_an_allocator_that_grows_in_pieces() -> None:
    short = (STEP_NS * np.where(NUMBERS[:130] < 90, 0.6, 3)).astype(np.int64)  # 9 s
    steps = analysis.StepCurve()
    steps.add(START_NS + np.cumsum(short), short)
    use = samples(2 * MIB * NUMBERS[:130], short)
    trend = analysis.measure_memory_trend(use, steps)
    assert trend is not None
    assert trend.is_growing
    pieces = np.repeat([21, 2, 28, 5, 25, 20, 3, 19], STEP_COUNT // 8)  # MiB per section
    assert trend_of(np.cumsum(pieces) * MIB / (STEP_COUNT // 8)).is_growing


CACHE = 900 * MIB
HEALTHY = {
    "constant": np.zeros(STEP_COUNT),
    "warm-up cache": CACHE * np.minimum(1, NUMBERS / 2000),
    "cache that saturates": CACHE * (1 - np.exp(-NUMBERS / 500)),
    "one jump": np.where(NUMBERS < 2500, 0.0, CACHE),
    "saw-teeth per epoch": MIB * (NUMBERS % 1100),
    "teeth that end with a rise": MIB * ((NUMBERS + 600) % 1500),
    "allocator that keeps the largest": np.maximum.accumulate(
        np.random.default_rng(1).exponential(100 * MIB, STEP_COUNT)
    ),
    "given back at the end": np.where(NUMBERS < 3800, 0.25 * MIB * NUMBERS, 0.0),
    "too little": 1000 * NUMBERS,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_no_leak(name: str) -> None:
    assert not trend_of(HEALTHY[name]).is_growing


def test_inputs_that_become_longer_are_no_leak() -> None:
    length = 1 + NUMBERS / 1000  # from 1 to 5
    durations = (STEP_NS * length).astype(np.int64)
    trend = trend_of(150 * MIB * length, durations)
    assert trend.is_steady
    assert trend.follows_duration
    assert not trend.is_growing
    # A leak whose list makes steps a little slower is one.
    slower = (STEP_NS * (1 + NUMBERS / 20_000)).astype(np.int64)
    assert trend_of(0.5 * MIB * NUMBERS, slower).is_growing


def test_without_steps_time_takes_their_place() -> None:
    trend = analysis.measure_memory_trend(samples(0.25 * MIB * NUMBERS), None)
    assert trend is not None
    assert trend.is_growing
    assert (trend.per_step, trend.first_step, trend.last_step) == (None, None, None)
    assert analysis.measure_memory_trend(samples(NUMBERS[:100]), None) is None


def slope_by_loop(x: list[float], y: list[float]) -> tuple[float, float, float]:
    """Compute Sen's slope and its 95% interval, pair by pair."""
    slopes = sorted((y[j] - y[i]) / (x[j] - x[i]) for i, j in combinations(range(len(x)), 2))
    n = len(x)
    c = 1.959964 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = math.floor((len(slopes) - c) / 2)  # ranks, counted from 1
    high = math.ceil((len(slopes) + c) / 2) + 1
    return median(slopes), slopes[max(1, low) - 1], slopes[min(len(slopes), high) - 1]


@pytest.mark.parametrize("count", [3, 10, 41])
def test_the_slope_is_that_of_all_pairs(count: int) -> None:
    random = np.random.default_rng(count)
    x = np.cumsum(random.uniform(0.1, 2, count))
    y = 3 * x + random.normal(0, 5, count)
    assert analysis.estimate_slope(x, y) == pytest.approx(slope_by_loop(x.tolist(), y.tolist()))


def test_the_interval_contains_the_slope_in_19_of_20_cases() -> None:
    random = np.random.default_rng(5)
    x = np.arange(40.0)
    intervals = [analysis.estimate_slope(x, x + random.normal(0, 4, 40)) for _ in range(400)]
    covered = np.mean([estimate.low <= 1 <= estimate.high for estimate in intervals])
    # Binomial: 0.95 of 400 with a standard deviation of 0.011.
    assert covered >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400)


def test_a_limit_is_full_when_the_rate_has_used_what_is_left() -> None:
    half = STEP_COUNT // 2
    use = 0.25 * MIB * NUMBERS
    steps = analysis.StepCurve()
    ends = START_NS + np.cumsum(np.full(half, STEP_NS))
    steps.add(ends, np.full(half, STEP_NS))
    trend = analysis.measure_memory_trend(samples(use[:half]), steps)
    assert trend is not None
    assert trend.last_step is not None
    remaining = STEP_COUNT - trend.last_step
    forecast = analysis.forecast_full(trend, 0.25 * MIB * remaining, steps)
    assert forecast is not None
    assert forecast.step is not None
    assert forecast.step.value == pytest.approx(STEP_COUNT, rel=0.01)
    assert forecast.in_ns.value == pytest.approx(remaining * STEP_NS, rel=0.01)
    assert forecast.in_ns.low <= forecast.in_ns.value <= forecast.in_ns.high
    flat = trend_of(HEALTHY["constant"])
    assert analysis.forecast_full(flat, 1e9, curve()) is None


def test_the_time_of_a_forecast_follows_the_latest_pace() -> None:
    durations = np.where(NUMBERS < 3000, STEP_NS, STEP_NS // 4).astype(np.int64)
    trend = trend_of(0.25 * MIB * NUMBERS, durations)
    forecast = analysis.forecast_full(trend, 0.25 * MIB * 1000, curve(durations))
    assert forecast is not None
    # The last quarter of the steps from 800 to 3,880 is at the new pace in its last 750 of 770.
    assert forecast.in_ns.value == pytest.approx(1000 * STEP_NS / 4, rel=0.1)
    assert forecast.in_ns.low <= forecast.in_ns.value < forecast.in_ns.high
    assert forecast.in_ns.high == pytest.approx(1000 * STEP_NS * 0.8, rel=0.1)


def test_curves_of_bounded_size_do_not_depend_on_the_cuts() -> None:
    random = np.random.default_rng(2)
    durations = random.integers(1, 100_000_000, 9000)
    ends = START_NS + np.cumsum(durations)
    at_once, parts = analysis.StepCurve(), analysis.StepCurve()
    at_once.add(ends, durations)
    use = analysis.Series(ends, random.uniform(0, 1e9, 9000))
    minima, minima_by_part = analysis.LeastSamples(width_ns=1), analysis.LeastSamples(width_ns=1)
    minima.add(use)
    for start in range(0, 9000, 700):
        rows = slice(start, start + 700)
        parts.add(ends[rows], durations[rows])
        minima_by_part.add(analysis.Series(use.t_ns[rows], use.value[rows]))
    assert len(at_once.t_ns) <= 2048
    assert (at_once.total, at_once.total_ns) == (9000, int(durations.sum()))
    for name in ("t_ns", "count", "wall_ns"):
        assert np.array_equal(getattr(at_once, name), getattr(parts, name))
    assert at_once.count.tolist() == np.searchsorted(ends, at_once.t_ns, side="right").tolist()
    assert np.array_equal(minima.series, minima_by_part.series)
    assert minima.series.value.min() == use.value.min()
