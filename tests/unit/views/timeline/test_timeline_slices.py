"""Slices against what a reader of the file would draw, event by event."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings, strategies as st

from stepscope.run import Run
from stepscope.timeline.tracks import parse_track
from stepscope.timeline.window import read_window
from tests.support.drawn_timelines import Drawn, drawn, import_run, small_blocks, track_ids, view
from tests.support.kineto_files import Event, kernel, launch, op, python, span

MAKERS = (
    op,
    python,
    lambda name, start, length: launch(start, length, None, name=name),
    lambda name, start, length: span("user_annotation", name, start, length),
    lambda name, start, length: span("overhead", name, start, length),
)
NAMES = ("a", "b", "<b>c</b>", "d" * 700)
SPAN_NS = 3_000_000
IN_GRAPH = {"graph node id": 1}
"""Arguments of work that may overlap other work of its stream."""


def make_file(seed: int, count: int) -> list[Event]:
    """Make host ranges of every kind, nested or not, overlapping kernels, and shadows."""
    chance = random.Random(seed)
    events: list[Event] = [op("first", 0, 10)]  # so that the base of the file is its origin
    for _ in range(count):
        name, start = chance.choice(NAMES), chance.randrange(SPAN_NS)
        length = chance.randrange(chance.choice([1, 400, 40_000, 2_000_000]))
        choice = chance.random()
        if choice < 0.3:
            events.append(kernel(start, length, None, IN_GRAPH, name=name))
        elif choice < 0.4:
            more = {"args": {"device": 0, "stream": 7}}
            events.append(span("gpu_user_annotation", name, start, length, pid=0, tid=7, **more))
        else:
            events.append(chance.choice(MAKERS)(name, start, length))
            inner = chance.randrange(length + 1)
            events.append(chance.choice(MAKERS)(name, start + (length - inner) // 2, inner))
    return events


FILES = st.tuples(st.integers(0, 10**6), st.integers(0, 60))
"""Arguments of `make_file`."""


def read_slices(run: Run, start: int, end: int, width: int) -> Any:
    ids = track_ids(run)
    tracks = [parse_track(track) for track in ids.values()]
    return list(ids), read_window(run, tracks, (start, end), width=width)


def listed(kinds: list[str], slices: Any) -> Counter[Drawn]:
    return Counter(
        Drawn(kinds[line], slices.names[name], start, start + length)
        for line, name, start, length in zip(
            slices.line.tolist(),
            slices.name.tolist(),
            slices.start.tolist(),
            slices.duration.tolist(),
            strict=True,
        )
    )


def overlaps(slices: Any) -> int:
    """Count slices that start before the previous one on their row ends."""
    order = np.lexsort((slices.duration, slices.start, slices.row, slices.line))
    end = (slices.start + slices.duration)[order]
    same = np.diff(slices.line[order]) == 0
    same &= np.diff(slices.row[order]) == 0
    return int((same & (slices.start[order][1:] < end[:-1])).sum())


@pytest.mark.slow("forty drawn timelines, read by a twin")
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    file=FILES,
    levels=st.booleans(),
    window=st.tuples(st.integers(0, 3_500_000), st.integers(1, 3_500_000)),
    width=st.integers(0, 21),
)
@example(file=(109856, 52), levels=True, window=(562, 403), width=0).via("two instants at one time")
def test_slices_are_the_events(
    file: tuple[int, int], levels: bool, window: tuple[int, int], width: int
) -> None:
    events = make_file(*file)
    truth = [drawn(event) for event in events]
    start, end = window[0], window[0] + window[1]
    with tempfile.TemporaryDirectory() as directory, small_blocks(levels=levels, slice_rows=10**6):
        run = import_run(Path(directory) / "run", events)
        kinds, narrow = read_slices(run, start, end, 1)
        assert listed(kinds, narrow) == Counter(e for e in truth if e.overlaps(start, end))
        _, all_slices = read_slices(run, 0, 10**8, 1)
        assert listed(kinds, all_slices) == Counter(truth)
        rows = dict(zip(all_slices.event.tolist(), all_slices.row.tolist(), strict=True))
        assert {e: rows[e] for e in narrow.event.tolist()} == dict(
            zip(narrow.event.tolist(), narrow.row.tolist(), strict=True)
        )
        for slices in (narrow, all_slices):
            assert not overlaps(slices)
        for pixels in (1, 1 << width):
            _, wide = read_slices(run, 0, 10**8, pixels)
            assert wide.count.sum() == len(truth)
            assert wide.busy.sum() == sum(e.end - e.start for e in truth)
            assert not overlaps(wide)
        _, partial = read_slices(run, start, end, 1 << width)
        inside = [e for e in truth if e.overlaps(start, end)]
        assert partial.count.sum() >= len(inside)
        single = listed(kinds, partial.take(partial.event >= 0))
        long = Counter(e for e in inside if e.end - e.start >= 1 << width)
        assert all(single[e] == count for e, count in long.items())


@settings(
    max_examples=6,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(file=FILES, pixels=st.integers(1, 3_000), slice_rows=st.sampled_from([12, 40, 10**6]))
def test_the_view_counts_every_event_once(
    file: tuple[int, int], pixels: int, slice_rows: int
) -> None:
    events = make_file(*file)
    with (
        tempfile.TemporaryDirectory() as directory,
        small_blocks(levels=True, slice_rows=slice_rows),
    ):
        run = import_run(Path(directory) / "run", events)
        payload = view(run, "timeline-slices", pixels=pixels)
        kinds = {id_: kind for kind, id_ in track_ids(run).items()}
        counts = {kinds[t.track]: sum(t.count) for t in payload.tracks if t.track in kinds}
        truth = Counter(drawn(event).track for event in events)
        assert {kind: count for kind, count in counts.items() if count} == dict(truth)
        for track in payload.tracks:
            assert track.row_count == max(track.row, default=-1) + 1
            assert list(zip(track.row, track.after_ns, strict=True)) == sorted(
                zip(track.row, track.after_ns, strict=True)
            )
            assert all(0 <= ratio <= 1 for ratio in track.busy_ratio)
            assert all(len(payload.names[name]) <= 500 for name in track.name)


def test_a_long_event_is_drawn_whole_at_every_zoom(tmp_path: Path) -> None:
    events = [span("user_annotation", "epoch", 0, 50_000_000)]
    events += [op("short", 10_000 + 5_000 * n, 2_000) for n in range(9_000)]
    with small_blocks(levels=True, slice_rows=2_000):
        run = import_run(tmp_path / "run", events)
        (track,) = track_ids(run).values()
        for start, length in ((0, 50_000_000), (20_000_000, 1_000_000), (20_000_000, 3_000)):
            payload = view(
                run, "timeline-slices", tracks=track, from_ns=start, to_ns=start + length
            )
            slices = payload.tracks[0]
            assert (slices.after_ns[0], slices.duration_ns[0]) == (-start, 50_000_000)
            assert payload.names[slices.name[0]] == "epoch"
            assert slices.row[0] == 0
            assert set(slices.row[1:]) <= {1}
            assert len(slices.row) <= 1 + 2 * 1500


def test_never_more_slices_than_can_be_drawn(tmp_path: Path) -> None:
    events = [op("f", 10 * n, 6, tid=n % 50) for n in range(60_000)]
    run = import_run(tmp_path / "run", events)
    payload = view(run, "timeline-slices", pixels=100_000)
    assert sum(len(track.row) for track in payload.tracks) <= 20_000
    assert sum(sum(track.count) for track in payload.tracks) == len(events)
    assert payload.omitted_tracks == []


def test_overlapping_kernels_are_drawn_below_each_other(tmp_path: Path) -> None:
    starts = [(0, 100), (50, 100), (60, 10), (120, 100), (300, 5)]
    events = [kernel(start * 1000, length * 1000, None, IN_GRAPH) for start, length in starts]
    with small_blocks(levels=True):
        run = import_run(tmp_path / "run", [op("f", 0, 10), *events])
        track = track_ids(run)["device"]
        rows = [0, 1, 2, 0, 0]
        for start_ns, end in ((0, 400_000), (55_000, 65_000), (130_000, 140_000)):
            payload = view(run, "timeline-slices", tracks=track, from_ns=start_ns, to_ns=end)
            slices = payload.tracks[0]
            assert sorted(zip(slices.row, slices.after_ns, strict=True)) == sorted(
                (row, start * 1000 - start_ns)
                for row, (start, length) in zip(rows, starts, strict=True)
                if start * 1000 < end and (start + length) * 1000 > start_ns
            )
        tree = [t for t in view(run, "timeline").groups[0].groups[0].tracks if t.id == track]
        assert tree[0].row_count == 3


@pytest.mark.parametrize("duration", [-5_000, 10**19])
def test_impossible_durations_take_no_room(tmp_path: Path, duration: int) -> None:
    events = [op("f", 0, 50_000), op("odd", 10_000, duration), op("g", 20_000, 1_000)]
    run = import_run(tmp_path / "run", events)
    payload = view(run, "timeline-slices")
    lengths = {
        payload.names[name]: length
        for track in payload.tracks
        for name, length in zip(track.name, track.duration_ns, strict=True)
    }
    assert lengths == {"f": 50_000, "odd": 0, "g": 1_000}


def test_an_empty_run_has_no_slices(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run")
    assert view(run, "timeline-slices").tracks == []
    assert view(run, "timeline-slices", tracks="trace:1:2,spans:p:1c").names == []
