"""Counters of recordings and of machines, piece by piece."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.testing.runs import METRIC_PERIOD_NS, RunBuilder
from stepscope.timeline.counters import Curve
from tests.support.drawn_timelines import recorded, tracks_in, view
from tests.support.kineto_files import Event, kernel, memory, op


@given(
    values=st.lists(st.tuples(st.integers(0, 300), st.integers(-50, 50)), max_size=12),
    begin=st.integers(-20, 300),
    length=st.integers(1, 200),
    width=st.sampled_from([1, 2, 7, 64]),
)
def test_pieces_of_a_curve(
    values: list[tuple[int, int]], begin: int, length: int, width: int
) -> None:
    values = sorted(dict(values).items())
    curve = Curve(
        time=np.array([at for at, _ in values], dtype=np.int64),
        value=np.array([value for _, value in values], dtype=np.float64),
    )
    pieces = curve.pieces((begin, begin + length), width)
    for place in range(-(-length // width)):
        edge = begin + place * width
        held = [last_before(values, at) for at in range(edge, edge + width)]
        known = [value for value in held if value is not None]
        (row,) = np.flatnonzero(pieces.piece == place).tolist() or [None]
        if not known:
            assert row is None
            continue
        assert math.isclose(pieces.mean[row], sum(known) / len(known), abs_tol=1e-9)
        assert (pieces.least[row], pieces.largest[row]) == (min(known), max(known))


def last_before(values: list[tuple[int, int]], at: int) -> int | None:
    return next((value for time, value in reversed(values) if time <= at), None)


def series(signals: object, name: str, **options: object) -> object:
    tracks = {track.name: track.id for track in tracks_in(view(signals, "timeline").groups)}
    found = view(signals, "timeline-counters", tracks=tracks[name], **options)
    return found, found.series[0] if found.series else None


def test_memory_that_the_allocator_holds(tmp_path: Path) -> None:
    events: list[Event] = [op("f", 0, 1_000_000)]
    events += [
        memory(at, 1, **{"Total Allocated": total, "Total Reserved": 4_096})
        for at, total in ((100_000, 1_000), (300_000, 3_000), (500_000, 0))
    ]
    signals = recorded(tmp_path / "run", events)
    found, its = series(
        signals, "memory allocated on device 0", from_ns=0, to_ns=1_000_000, pixels=16
    )
    assert found.piece_ns == 65_536
    assert (its.unit, its.full) == ("bytes", 3_000)
    by_start = dict(zip(its.after_ns, its.largest, strict=True))
    assert min(by_start) == 65_536
    assert by_start[65_536] == 1_000
    assert by_start[5 * 65_536] == 3_000
    assert by_start[10 * 65_536] == 0
    _, reserved = series(signals, "memory reserved on device 0", from_ns=600_000, to_ns=600_010)
    assert set(reserved.mean) == {4_096}


def test_how_busy_a_device_was(tmp_path: Path) -> None:
    blocks = {"blocks per SM": 0.5, "registers per thread": 32}
    events = [op("f", 0, 1_000), kernel(0, 250, None, blocks), kernel(500, 500, None, blocks)]
    signals = recorded(tmp_path / "run", events)
    options = {"from_ns": 0, "to_ns": 1_024, "pixels": 4}
    found, its = series(signals, "GPU utilisation of device 0", **options)
    assert (found.piece_ns, its.unit, its.full) == (256, "ratio", 1)
    assert its.mean == [250 / 256, 12 / 256, 1, 232 / 256]
    _, efficiency = series(signals, "SM efficiency (estimated) of device 0", **options)
    assert efficiency.mean == pytest.approx([125 / 256, 6 / 256, 0.5, 116 / 256])


def test_samples_of_a_node(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 500 | optimizer 500", 10)
    run.metric("gpu_power_watt", lambda second: 100 + second, device="3")
    run.metric("cpu_busy_ratio", lambda second: 0.25 if second < 5 else math.nan)
    signals = run.open()
    found, its = series(signals, "power", pixels=20)
    assert its.unit == "watt"
    assert its.full == max(value for value in its.largest if value is not None)
    assert all(a <= b <= c for a, b, c in zip(its.least, its.mean, its.largest, strict=True))
    _, near = series(signals, "power", from_ns=3 * 10**9, to_ns=3 * 10**9 + METRIC_PERIOD_NS // 10)
    # What was sampled just outside is there too, so that a line can be drawn through the window.
    assert near.after_ns[0] <= 0 < near.after_ns[-1]
    _, busy = series(signals, "cpu busy", from_ns=0, to_ns=10 * 10**9)
    assert busy.full == 1
    assert {value for value in busy.mean if value is not None} == {0.25}
    assert max(busy.after_ns) < 6 * 10**9
    assert found.to_after_ns > found.from_after_ns


def test_a_gap_is_none(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 500 | optimizer 500", 30)
    run.metric("cpu_busy_ratio", lambda second: math.nan if 10 < second < 20 else 0.5)
    _, its = series(run.open(), "cpu busy", pixels=10_000)
    assert its.mean.count(None) == 1
    gap = its.mean.index(None)
    assert 9 * 10**9 < its.after_ns[gap] < 11 * 10**9
    assert its.after_ns == sorted(its.after_ns)
