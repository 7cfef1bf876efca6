"""Counters of traces and of nodes, bin by bin."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.run import Run
from stepscope.schema import IntervalChange
from stepscope.store import RunWriter, open_run
from stepscope.testing.runs import EPOCH_NS, METRIC_PERIOD_NS, RunBuilder
from stepscope.timeline.counters import Curve
from tests.support.drawn_timelines import import_run, tracks_in, view
from tests.support.kineto_files import Event, kernel, memory, op


@given(
    values=st.lists(st.tuples(st.integers(0, 300), st.integers(-50, 50)), max_size=12),
    start=st.integers(-20, 300),
    length=st.integers(1, 200),
    width=st.sampled_from([1, 2, 7, 64]),
)
def test_bins_of_a_curve(
    values: list[tuple[int, int]], start: int, length: int, width: int
) -> None:
    values = sorted(dict(values).items())
    curve = Curve(
        time=np.array([time for time, _ in values], dtype=np.int64),
        value=np.array([value for _, value in values], dtype=np.float64),
    )
    bins = curve.bin_values((start, start + length), width)
    for index in range(-(-length // width)):
        edge = start + index * width
        values_before = [last_before(values, time) for time in range(edge, edge + width)]
        values_in_bin = [value for value in values_before if value is not None]
        (row,) = np.flatnonzero(bins.index == index).tolist() or [None]
        if not values_in_bin:
            assert row is None
            continue
        assert math.isclose(bins.mean[row], sum(values_in_bin) / len(values_in_bin), abs_tol=1e-9)
        assert (bins.minimum[row], bins.maximum[row]) == (min(values_in_bin), max(values_in_bin))


def last_before(values: list[tuple[int, int]], at: int) -> int | None:
    return next((value for time, value in reversed(values) if time <= at), None)


def series(run: object, name: str, **options: object) -> object:
    tracks = {track.name: track.id for track in tracks_in(view(run, "timeline").groups)}
    payload = view(run, "timeline-counters", tracks=tracks[name], **options)
    return payload, payload.series[0] if payload.series else None


def test_memory_that_the_allocator_holds(tmp_path: Path) -> None:
    events: list[Event] = [op("f", 0, 1_000_000)]
    events += [
        memory(at, 1, **{"Total Allocated": total, "Total Reserved": 4_096})
        for at, total in ((100_000, 1_000), (300_000, 3_000), (500_000, 0))
    ]
    run = import_run(tmp_path / "run", events)
    payload, allocated = series(
        run, "memory allocated on device 0", from_ns=0, to_ns=1_000_000, pixels=16
    )
    assert payload.piece_ns == 65_536
    assert (allocated.unit, allocated.full) == ("bytes", 3_000)
    by_start = dict(zip(allocated.after_ns, allocated.largest, strict=True))
    assert min(by_start) == 65_536
    assert by_start[65_536] == 1_000
    assert by_start[5 * 65_536] == 3_000
    assert by_start[10 * 65_536] == 0
    _, reserved = series(run, "memory reserved on device 0", from_ns=600_000, to_ns=600_010)
    assert set(reserved.mean) == {4_096}


@pytest.mark.seed("PTP-06")
def test_how_busy_a_device_was(tmp_path: Path) -> None:
    blocks = {"blocks per SM": 0.5, "registers per thread": 32}
    events = [op("f", 0, 1_000), kernel(0, 250, None, blocks), kernel(500, 500, None, blocks)]
    run = import_run(tmp_path / "run", events)
    options = {"from_ns": 0, "to_ns": 1_024, "pixels": 4}
    payload, utilization = series(run, "GPU utilisation of device 0", **options)
    assert (payload.piece_ns, utilization.unit, utilization.full) == (256, "ratio", 1)
    assert utilization.mean == [250 / 256, 12 / 256, 1, 232 / 256]
    _, efficiency = series(run, "SM efficiency (estimated) of device 0", **options)
    assert efficiency.mean == pytest.approx([125 / 256, 6 / 256, 0.5, 116 / 256])


def test_samples_of_a_node(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 500 | optimizer 500", 10)
    run.metric("gpu_power_watt", lambda second: 100 + second, device="3")
    run.metric("cpu_busy_ratio", lambda second: 0.25 if second < 5 else math.nan)
    recorded_run = run.open()
    payload, power = series(recorded_run, "power", pixels=20)
    assert power.unit == "watt"
    assert power.full == max(value for value in power.largest if value is not None)
    assert all(
        a <= b <= c for a, b, c in zip(power.minimum, power.mean, power.largest, strict=True)
    )
    _, narrow = series(
        recorded_run, "power", from_ns=3 * 10**9, to_ns=3 * 10**9 + METRIC_PERIOD_NS // 10
    )
    # Samples just outside are included, so that a line can be drawn through the window.
    assert narrow.after_ns[0] <= 0 < narrow.after_ns[-1]
    _, busy = series(recorded_run, "CPU busy", from_ns=0, to_ns=10 * 10**9)
    assert busy.full == 1
    assert {value for value in busy.mean if value is not None} == {0.25}
    assert max(busy.after_ns) < 6 * 10**9
    assert payload.to_after_ns > payload.from_after_ns


@pytest.mark.seed("DBP-10")
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_longer_interval_is_no_gap(tmp_path: Path, is_recorded: bool) -> None:
    """Samples every 0.5 s, from 10 s on every 5 s, and none from 20 s to 45 s."""
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 500 | optimizer 500", 60)
    run.metric(
        "cpu_busy_ratio",
        lambda second: 0.5 if second < 10 or (second % 5 == 0 and not 20 < second < 45) else np.nan,
    )
    path = run.write()
    if is_recorded:
        info = open_run(path).nodes()["n0"]
        change = IntervalChange(t_ns=EPOCH_NS + 10 * 10**9, interval_ns=5 * 10**9)
        with RunWriter(path, "n0") as writer:
            writer.put_node(msgspec.structs.replace(info, interval_changes=[change]))
    _, busy = series(Run(open_run(path)), "CPU busy", pixels=10_000)
    gaps = [busy.after_ns[index] for index, mean in enumerate(busy.mean) if mean is None]
    if is_recorded:
        (gap_ns,) = gaps
        assert 20 * 10**9 <= gap_ns < 21 * 10**9
    else:
        assert len(gaps) > 1


def test_a_gap_is_none(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 500 | optimizer 500", 30)
    run.metric("cpu_busy_ratio", lambda second: math.nan if 10 < second < 20 else 0.5)
    _, busy = series(run.open(), "CPU busy", pixels=10_000)
    assert busy.mean.count(None) == 1
    gap = busy.mean.index(None)
    assert 9 * 10**9 < busy.after_ns[gap] < 11 * 10**9
    assert busy.after_ns == sorted(busy.after_ns)
