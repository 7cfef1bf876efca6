"""Spans of the job against what was drawn, at every zoom."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

from stepscope.run import Run
from stepscope.store import DictColumn, RunWriter, create_run, open_run
from stepscope.testing import RunBuilder
from stepscope.timeline.tracks import track_id
from stepscope.timeline.window import read_window
from stepscope.views.timeline.payload import FlameNode
from tests.support.drawn_timelines import INFO, view

Span = tuple[str, int, int | None, int]
"""Name, start, end, spans around it."""
SPAN_NS = 100_000
ORIGIN_NS = 1_700_000_000_000_000_000


def make_spans(seed: int, count: int) -> list[Span]:
    """Make nested spans of one thread; the last ones were open when the process ended."""
    chance = random.Random(seed)
    spans: list[Span] = [("first", 0, 1, 0)]

    def fill(first: int, end: int, depth: int) -> None:
        at = first
        while depth < 3 and at < end and len(spans) < count:
            start = chance.randrange(at, end)
            until = start + chance.randrange(0, end - start + 1)
            spans.append((chance.choice("abc"), start, until, depth))
            fill(start, until, depth + 1)
            at = until + 1

    fill(1, SPAN_NS, 0)
    if chance.random() < 0.5:
        spans.append(("open", SPAN_NS + 10, None, 0))
        spans.append(("inside", SPAN_NS + 20, None, 1))
    return spans


def make_run(
    path: Path, threads: dict[str, list[Span]], shuffle: random.Random | None = None
) -> Run:
    create_run(path, INFO)
    rows = [(log, seq, *span) for log, spans in threads.items() for seq, span in enumerate(spans)]
    if shuffle is not None:
        shuffle.shuffle(rows)
    log, seq, name, start, end, depth = (list(column) for column in zip(*rows, strict=True))
    missing = np.array([time is None for time in end])
    columns = {
        "node": DictColumn.constant("n0", len(rows)),
        "process": DictColumn.constant("7-1-0", len(rows)),
        "log": DictColumn.encode(log),
        "seq": np.array(seq),
        "kind": DictColumn.constant("annotation", len(rows)),
        "name": DictColumn.encode(name),
        "labels": DictColumn.constant(None, len(rows)),
        "start_ns": np.array(start) + ORIGIN_NS,
        "end_ns": np.ma.MaskedArray([ORIGIN_NS + (e or 0) for e in end], mask=missing),
        "depth": np.array(depth),
        "flags": np.zeros(len(rows), dtype=np.int64),
        "value": np.zeros(len(rows), dtype=np.int64),
    }
    with RunWriter(path, "n0") as writer:
        writer.append("spans", columns)
    return Run(open_run(path))


@pytest.mark.seed("SMP-24")
@settings(max_examples=10, phases=[Phase.generate])
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 60),
    window=st.tuples(st.integers(0, SPAN_NS), st.integers(1, SPAN_NS)),
    width=st.integers(0, 17),
)
def test_slices_are_the_spans(seed: int, count: int, window: tuple[int, int], width: int) -> None:
    threads = {"1c": make_spans(seed, count), "2c": make_spans(seed + 1, count)}
    with tempfile.TemporaryDirectory() as directory:
        run = make_run(Path(directory) / "run", threads)
        end_ns = run.clock.end_ns - run.clock.origin_ns
        tracks = [track_id("spans", "7-1-0", log) for log in ("2c", "1c")]
        start_ns, end = window[0], window[0] + window[1]
        slices = read_window(run, tracks, (start_ns, end))
        wide = read_window(run, tracks, (start_ns, end), width=1 << width)
        full = read_window(run, tracks, (0, end_ns + 1), width=1 << width)
    truth = Counter()
    span_count = 0
    for line, log in enumerate(("2c", "1c")):
        for name, start, stop, depth in threads[log]:
            until = end_ns if stop is None else stop
            span_count += 1
            if start < end and (until > start_ns or start >= start_ns):
                truth[line, depth, name, start, until - start] += 1
    names = [slices.names[code] for code in slices.name.tolist()]
    columns = (slices.line, slices.row, names, slices.start, slices.duration)
    assert truth == Counter(
        (int(line), int(row), name, int(start), int(length))
        for line, row, name, start, length in zip(*columns, strict=True)
    )
    assert wide.count.sum() == truth.total()
    assert full.count.sum() == span_count
    single = {int(start) for start in wide.start[wide.event >= 0]}
    assert {key[3] for key in truth if key[4] >= 1 << width} <= single


@pytest.mark.parametrize("pixels", [20, 1_000_000])
def test_a_picture_is_the_same_however_rows_lie_in_the_store(tmp_path: Path, pixels: int) -> None:
    threads = {log: make_spans(seed, 60) for seed, log in enumerate(("1c", "2c"))}
    options = {"tracks": ",".join(str(track_id("spans", "7-1-0", log)) for log in threads)}
    shuffled = make_run(tmp_path / "shuffled", threads, random.Random(1))
    payload = view(make_run(tmp_path / "run", threads), "timeline-slices", pixels=pixels, **options)
    assert payload == view(shuffled, "timeline-slices", pixels=pixels, **options)
    assert payload.names
    assert len(payload.names) == len(set(payload.names))


def test_spans_that_had_not_ended_are_flagged_and_classified(tmp_path: Path) -> None:
    spans = [("forward", 0, 10, 0), ("evaluate", 20, 90, 0), ("backward: loss", 50, None, 1)]
    id_ = str(track_id("spans", "7-1-0", "1c"))
    payload = view(make_run(tmp_path / "run", {"1c": spans}), "timeline-slices", tracks=id_)
    (track,) = payload.tracks
    names = [payload.names[number] for number in track.name]
    assert [names[index] for index in track.unfinished] == ["backward: loss"]
    kinds = {name: payload.kinds[number] for name, number in zip(names, track.name, strict=True)}
    assert kinds == {"forward": "forward", "evaluate": "annotations", "backward: loss": "backward"}


MS = 10**6
BATCH = (
    "fetch:Photos ( samples:Photos ( sample:Photos 30 | sample:Photos 8 | do 2 ) "
    "| transform:Crop=9 | transform:Blur=21 | collate 4 )"
)
"""A batch whose transforms take 30 of the 40 ms in which its samples are created."""
BATCHES = 5


@pytest.fixture
def loading(tmp_path: Path) -> Run:
    run = RunBuilder(tmp_path / "run")
    rank = run.rank(workers=1).draw(
        "wait=0 44 | forward:Net 20 | backward 15 | optimizer 5", BATCHES
    )
    rank.workers[0].draw(BATCH, BATCHES)
    return run.open()


def worker_track(run: Run) -> str:
    (worker,) = (p.process for p in run.processes if p.role == "dataloader_worker")
    (log,) = run.reader.sql("SELECT DISTINCT log FROM spans WHERE process = ?", [worker])["log"]
    return str(track_id("spans", worker, log))


def test_self_times_of_a_track_sum_to_its_busy_time(loading: Run) -> None:
    extent_ns = loading.clock.end_ns - loading.clock.origin_ns
    tracks = view(loading, "timeline-summary", top=0).tracks
    assert len(tracks) == 2
    for track in tracks:
        assert sum(name.self_ns for name in track.names) == track.busy_ns
        assert max(name.total_ns for name in track.names) <= extent_ns


def test_transforms_are_no_intervals(loading: Run) -> None:
    track = worker_track(loading)
    (summary,) = view(loading, "timeline-summary", tracks=track, top=0).tracks
    assert {name.name: (name.count, name.self_ns // MS) for name in summary.names} == {
        "fetch: Photos": (BATCHES, 0),
        "samples: Photos": (BATCHES, BATCHES * 2),
        "sample: Photos": (2 * BATCHES, BATCHES * 38),
        "collate": (BATCHES, BATCHES * 4),
    }
    flame = view(loading, "timeline-flame", tracks=track)
    assert names_in(flame.roots) == {name.name for name in summary.names}


def test_the_kind_of_a_slice_is_that_of_its_span(loading: Run) -> None:
    payload = view(loading, "timeline-slices", pixels=20_000)
    kinds = dict(zip(payload.names, payload.kinds, strict=True))
    assert {kinds[name] for name in ("fetch: Photos", "collate", "data_wait")} == {
        "fetching batches"
    }
    assert (kinds["forward: Net"], kinds["backward"]) == ("forward", "backward")


@pytest.mark.parametrize("pixels", [200, 20_000])
def test_transforms_are_parts_of_the_samples_of_their_batch(loading: Run, pixels: int) -> None:
    payload = view(loading, "timeline-slices", tracks=worker_track(loading), pixels=pixels)
    (track,) = payload.tracks
    drawn = Counter(
        (payload.names[track.name[index]], track.after_ns[index], payload.names[name], spent)
        for index, name, spent in zip(track.part_slice, track.part_name, track.part_ns, strict=True)
    )
    starts = [44 * MS * number for number in range(BATCHES)]
    parts = (("transform: Crop", 9 * MS), ("transform: Blur", 21 * MS))
    assert drawn == Counter(
        ("samples: Photos", start, name, spent) for start in starts for name, spent in parts
    )
    assert not {"transform: Crop", "transform: Blur"} & {payload.names[n] for n in track.name}


def test_parts_of_slices_that_are_too_narrow_are_not_sent(loading: Run) -> None:
    (track,) = view(loading, "timeline-slices", tracks=worker_track(loading), pixels=4).tracks
    assert (track.part_slice, track.part_name, track.part_ns) == ([], [], [])


def test_an_aggregate_that_is_found_shows_its_sum(loading: Run) -> None:
    result = view(loading, "timeline-search", name="blur")
    assert (result.match_count, result.total_ns) == (BATCHES, BATCHES * 21 * MS)
    match = result.matches[1]
    assert (match.after_ns, match.duration_ns, match.row) == (44 * MS, 21 * MS, 1)
    event = view(loading, "timeline-slice", track=match.track, event=match.event)
    assert (event.name, event.kind, event.row) == ("transform: Blur", "transform", 1)
    assert (event.duration_ns, event.spread_ns, event.self_ns) == (21 * MS, 40 * MS, None)
    samples = view(loading, "timeline-search", name="samples").matches[1]
    event = view(loading, "timeline-slice", track=samples.track, event=samples.event)
    assert event.parts == {"transform: Blur": 21 * MS, "transform: Crop": 9 * MS}
    assert (event.self_ns, event.spread_ns) == (2 * MS, None)


def test_time_without_a_core_is_part_of_the_interval_between_samples(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw(f"run_queue={3 * MS} 10", 4)
    run = run.open()
    payload = view(run, "timeline-slices", pixels=1000)
    (track,) = payload.tracks
    assert track.duration_ns == [10 * MS] * 4
    assert list(zip(track.part_slice, track.part_ns, strict=True)) == [
        (index, 3 * MS) for index in range(4)
    ]
    assert view(run, "timeline-summary").tracks == []
    assert view(run, "timeline-search", name="run_queue").total_ns == 12 * MS


def names_in(nodes: list[FlameNode]) -> set[str]:
    return {node.name for node in nodes}.union(*(names_in(node.children) for node in nodes))
