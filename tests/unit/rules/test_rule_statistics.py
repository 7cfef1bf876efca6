"""Small functions against slow twins that do the same the obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.rules import Series
from stepscope.rules.inputs import SNAPSHOT_NS, sampling_times, snapshots
from stepscope.rules.profiler.dataloader import _distinct
from stepscope.rules.tally import DURATIONS, SHARES, Linear, Tally, box
from stepscope.rules.trailing import Tail, quantiles_at_scans, windowed_quantiles

hundredths = st.lists(st.integers(0, 10_000), min_size=1, max_size=200)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 20), shares)
def test_windowed_quantiles(values: list[float], window: int, chosen: list[float]) -> None:
    ends = np.arange(len(values))
    found = windowed_quantiles(np.array(values), ends, window, chosen)
    for end in ends:
        twin = np.quantile(values[max(0, end + 1 - window) : end + 1], chosen)
        assert found[end] == pytest.approx(twin, abs=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_quantiles_at_scans_do_not_depend_on_portions(
    values: list[float], window: int, patience: int, cut: int
) -> None:
    scans = np.arange(len(values)) // 7
    cut = min(len(values), cut // 7 * 7)
    whole = quantiles_at_scans(
        Tail(window), np.array(values), scans, (0.95, 0.05), patience=patience
    )
    tail = Tail(window)
    rows = [
        quantiles_at_scans(
            tail, np.array(values[part]), scans[part], (0.95, 0.05), patience=patience
        )
        for part in (slice(0, cut), slice(cut, None))
        if len(values[part])
    ]
    assert np.concatenate([r[0] for r in rows]).tolist() == whole[0].tolist()
    assert np.concatenate([r[1] for r in rows]).tolist() == whole[1].tolist()
    ends = [np.flatnonzero(scans == scan)[-1] for scan in np.unique(scans)]
    assert whole[0].tolist() == [scans[end] for end in ends if end + 1 > patience]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([-5, 0, 1, 2, 3, 10**9]), max_size=20), max_size=5),
    st.lists(st.floats(-10, 2e9), min_size=1, max_size=5),
)
def test_a_tally_counts_whatever_lies_between(
    portions: list[list[int]], thresholds: list[float]
) -> None:
    tally = Tally(Linear(1.0))
    for portion in portions:
        tally.add(np.array(portion))
    values = np.array([value for portion in portions for value in portion])
    keys, counts = np.unique(values, return_counts=True)
    assert tally.keys.tolist() == keys.tolist()
    assert tally.counts.tolist() == counts.tolist()
    above = [int((values > threshold).sum()) for threshold in thresholds]
    assert tally.counts_above(np.array(thresholds)).tolist() == above


@settings(deadline=None)
@given(hundredths, shares)
def test_quantiles_of_readings_in_hundredths_are_exact(counts: list[int], q: list[float]) -> None:
    values = np.array(counts) / 10_000
    tally = Tally(SHARES)
    tally.add(values)
    assert tally.quantiles(q) == pytest.approx(np.quantile(values, q), abs=1e-12)
    assert tally.mean == pytest.approx(values.mean())
    assert tally.standard_deviation == pytest.approx(values.std(), abs=1e-9)
    for threshold in values[:5].tolist():
        assert tally.count_above(threshold) == (values > threshold).sum()


@settings(deadline=None)
@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=100), shares)
def test_durations_are_off_by_a_twenty_thousandth_at_most(
    values: list[float], q: list[float]
) -> None:
    tally = Tally(DURATIONS)
    tally.add(np.array(values))
    assert tally.quantiles(q) == pytest.approx(np.quantile(values, q), rel=6e-5)


@settings(deadline=None)
@given(hundredths, hundredths)
def test_tallies_add_up(one: list[int], other: list[int]) -> None:
    together, first, second = Tally(), Tally(), Tally()
    together.add(np.array(one + other) / 10_000)
    first.add(np.array(one) / 10_000)
    second.add(np.array(other) / 10_000)
    second.merge(first)
    assert second.keys.tolist() == together.keys.tolist()
    assert second.counts.tolist() == together.counts.tolist()
    assert len(second) == len(one) + len(other)


def test_readings_in_per_cent_keep_their_value() -> None:
    readings = np.arange(101) / 100
    assert SHARES.values(SHARES.keys(readings)).tolist() == readings.tolist()
    assert Linear(1.0).values(np.array([3])).tolist() == [3.0]


def test_whiskers_end_at_the_extremes() -> None:
    tally = Tally()
    tally.add(np.array([0.0, 0.40, 0.41, 0.42, 0.43, 1.0]))
    figures = box(tally, 100)
    low, high = np.quantile([0, 40, 41, 42, 43, 100], [0.25, 0.75])
    assert figures["whisker_low"] == pytest.approx(low - 1.5 * (high - low))
    assert figures["whisker_high"] == pytest.approx(high + 1.5 * (high - low))
    narrow = Tally()
    narrow.add(np.array([0.4, 0.5, 0.6]))
    assert box(narrow)["whisker_low"] == 0.4


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=50), st.integers(20, 300))
def test_snapshots(milliseconds: list[int], scan_ms: int) -> None:
    t_ns = np.sort(np.array(milliseconds)) * 1_000_000
    scans = t_ns // (scan_ms * 1_000_000)
    number, first, twin = -1, None, []
    for time, scan in zip(t_ns.tolist(), scans.tolist(), strict=True):
        if first is None or time - first[0] > SNAPSHOT_NS or scan != first[1]:
            number, first = number + 1, (time, scan)
        twin.append(number)
    assert snapshots(t_ns, scans).tolist() == twin


class _Scans:
    """Signals, as far as one asks for the scan of a time."""

    origin_ns = 0

    def __init__(self, scan_ns: int) -> None:
        self.scan_ns = scan_ns


milliseconds_of_one = st.lists(st.integers(0, 200), min_size=1, max_size=20)


@settings(deadline=None)
@given(
    st.lists(milliseconds_of_one, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(20, 300),
)
def test_snapshots_of_several_series(
    times: list[list[int]], chosen: list[int], scan_ms: int
) -> None:
    """Some of them bear the same times, as those of one monitor do."""
    drawn = [np.sort(times[each % len(times)]) * 1_000_000 for each in chosen]
    found = sampling_times(
        _Scans(scan_ms * 1_000_000),  # type: ignore[arg-type]
        [Series(t_ns, np.zeros(len(t_ns))) for t_ns in drawn],
    )
    merged = np.sort(np.concatenate(drawn))
    scans = merged // (scan_ms * 1_000_000)
    number = snapshots(merged, scans)
    twin = dict(zip(merged.tolist(), number.tolist(), strict=True))
    assert [place.tolist() for place in found.place] == [
        [twin[time] for time in t_ns.tolist()] for t_ns in drawn
    ]
    first = [number.tolist().index(each) for each in range(number[-1] + 1)]
    assert found.t_ns.tolist() == merged[first].tolist()
    assert found.scan.tolist() == scans[first].tolist()


@given(st.lists(st.tuples(st.integers(-5, 10**10), st.integers(-1, 600)), max_size=40))
def test_distinct_pairs(pairs: list[tuple[int, int]]) -> None:
    given_pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    assert list(map(tuple, _distinct(given_pairs).tolist())) == sorted(set(pairs))
