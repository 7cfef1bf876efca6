"""Quantile sketches, rolling windows and snapshots against slow reference implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import Series
from stepscope.rules.profiler.dataloader import _unique_pairs
from stepscope.rules.quantile_sketch import DURATION_GRID, RATIO_GRID, LinearGrid, QuantileSketch
from stepscope.rules.samples import (
    SNAPSHOT_NS,
    RollingWindow,
    find_snapshots,
    quantiles_at_scan_ends,
    rolling_quantiles,
    snapshot_indices,
)

hundredths = st.lists(st.integers(0, 10_000), min_size=1, max_size=200)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 20), shares)
def test_rolling_quantiles(values: list[float], window: int, quantiles: list[float]) -> None:
    ends = np.arange(len(values))
    rows = rolling_quantiles(np.array(values), ends, window, quantiles)
    for end in ends:
        expected = np.quantile(values[max(0, end + 1 - window) : end + 1], quantiles)
        assert rows[end] == pytest.approx(expected, abs=1e-12)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_quantiles_at_scan_ends_do_not_depend_on_ranges(
    values: list[float], window: int, patience: int, cut: int
) -> None:
    scans = np.arange(len(values)) // 7
    cut = min(len(values), cut // 7 * 7)
    at_once = quantiles_at_scan_ends(
        RollingWindow(window), np.array(values), scans, (0.95, 0.05), patience=patience
    )
    rolling = RollingWindow(window)
    rows = [
        quantiles_at_scan_ends(
            rolling, np.array(values[part]), scans[part], (0.95, 0.05), patience=patience
        )
        for part in (slice(0, cut), slice(cut, None))
        if len(values[part])
    ]
    assert np.concatenate([r[0] for r in rows]).tolist() == at_once[0].tolist()
    assert np.concatenate([r[1] for r in rows]).tolist() == at_once[1].tolist()
    ends = [np.flatnonzero(scans == scan)[-1] for scan in np.unique(scans)]
    assert at_once[0].tolist() == [scans[end] for end in ends if end + 1 > patience]


@given(
    st.lists(st.lists(st.sampled_from([-5, 0, 1, 2, 3, 10**9]), max_size=20), max_size=5),
    st.lists(st.floats(-10, 2e9), min_size=1, max_size=5),
)
def test_a_sketch_counts_dense_and_sparse_values(
    batches: list[list[int]], thresholds: list[float]
) -> None:
    sketch = QuantileSketch(LinearGrid(1.0))
    for batch in batches:
        sketch.add(np.array(batch))
    values = np.array([value for batch in batches for value in batch])
    keys, counts = np.unique(values, return_counts=True)
    assert sketch.keys.tolist() == keys.tolist()
    assert sketch.counts.tolist() == counts.tolist()
    above = [int((values > threshold).sum()) for threshold in thresholds]
    assert sketch.counts_above(np.array(thresholds)).tolist() == above


@given(hundredths, shares)
def test_quantiles_of_readings_in_hundredths_are_exact(counts: list[int], q: list[float]) -> None:
    values = np.array(counts) / 10_000
    sketch = QuantileSketch(RATIO_GRID)
    sketch.add(values)
    assert sketch.quantiles(q) == pytest.approx(np.quantile(values, q), abs=1e-12)
    assert sketch.mean == pytest.approx(values.mean())
    assert sketch.standard_deviation == pytest.approx(values.std(), abs=1e-9)
    for threshold in values[:5].tolist():
        assert sketch.count_above(threshold) == (values > threshold).sum()


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=100), shares)
def test_durations_are_off_by_a_twenty_thousandth_at_most(
    values: list[float], q: list[float]
) -> None:
    sketch = QuantileSketch(DURATION_GRID)
    sketch.add(np.array(values))
    assert sketch.quantiles(q) == pytest.approx(np.quantile(values, q), rel=6e-5)


@given(hundredths, hundredths)
def test_sketches_merge(counts: list[int], more_counts: list[int]) -> None:
    combined, first, second = QuantileSketch(), QuantileSketch(), QuantileSketch()
    combined.add(np.array(counts + more_counts) / 10_000)
    first.add(np.array(counts) / 10_000)
    second.add(np.array(more_counts) / 10_000)
    second.merge(first)
    assert second.keys.tolist() == combined.keys.tolist()
    assert second.counts.tolist() == combined.counts.tolist()
    assert len(second) == len(counts) + len(more_counts)


def test_readings_in_whole_percent_keep_their_value() -> None:
    readings = np.arange(101) / 100
    assert RATIO_GRID.values(RATIO_GRID.keys(readings)).tolist() == readings.tolist()
    assert LinearGrid(1.0).values(np.array([3])).tolist() == [3.0]


def test_whiskers_end_at_the_extremes() -> None:
    sketch = QuantileSketch()
    sketch.add(np.array([0.0, 0.40, 0.41, 0.42, 0.43, 1.0]))
    plot = sketch.box_plot(100)
    low, high = np.quantile([0, 40, 41, 42, 43, 100], [0.25, 0.75])
    assert plot.whisker_low == pytest.approx(low - 1.5 * (high - low))
    assert plot.whisker_high == pytest.approx(high + 1.5 * (high - low))
    narrow = QuantileSketch()
    narrow.add(np.array([0.4, 0.5, 0.6]))
    assert narrow.box_plot().whisker_low == 0.4


@given(st.lists(st.integers(0, 200), min_size=1, max_size=50), st.integers(20, 300))
def test_snapshots(milliseconds: list[int], scan_ms: int) -> None:
    t_ns = np.sort(np.array(milliseconds)) * 1_000_000
    scans = t_ns // (scan_ms * 1_000_000)
    number, first, expected = -1, None, []
    for time, scan in zip(t_ns.tolist(), scans.tolist(), strict=True):
        if first is None or time - first[0] > SNAPSHOT_NS or scan != first[1]:
            number, first = number + 1, (time, scan)
        expected.append(number)
    assert snapshot_indices(t_ns, scans).tolist() == expected


class _Scans:
    """The part of RuleInputs that the scan of a time depends on."""

    origin_ns = 0

    def __init__(self, scan_ns: int) -> None:
        self.scan_ns = scan_ns


series_milliseconds = st.lists(st.integers(0, 200), min_size=1, max_size=20)


@given(
    st.lists(series_milliseconds, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(20, 300),
)
def test_snapshots_of_several_series(
    times: list[list[int]], series_times: list[int], scan_ms: int
) -> None:
    """Some series have the same times, as those of one monitor do."""
    drawn = [np.sort(times[index % len(times)]) * 1_000_000 for index in series_times]
    snapshots = find_snapshots(
        _Scans(scan_ms * 1_000_000),  # type: ignore[arg-type]
        [Series(t_ns, np.zeros(len(t_ns))) for t_ns in drawn],
    )
    merged = np.sort(np.concatenate(drawn))
    scans = merged // (scan_ms * 1_000_000)
    number = snapshot_indices(merged, scans)
    number_at = dict(zip(merged.tolist(), number.tolist(), strict=True))
    assert [numbers.tolist() for numbers in snapshots.snapshot_of_sample] == [
        [number_at[time] for time in t_ns.tolist()] for t_ns in drawn
    ]
    first = [number.tolist().index(n) for n in range(number[-1] + 1)]
    assert snapshots.t_ns.tolist() == merged[first].tolist()
    assert snapshots.scan.tolist() == scans[first].tolist()


@given(st.lists(st.tuples(st.integers(-5, 10**10), st.integers(-1, 600)), max_size=40))
def test_unique_pairs(pairs: list[tuple[int, int]]) -> None:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    assert list(map(tuple, _unique_pairs(array).tolist())) == sorted(set(pairs))
