"""Summaries and flame graphs against sums over every nanosecond."""

from __future__ import annotations

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import Phase, given, settings, strategies as st

from stepscope.run import Run
from stepscope.views.timeline.payload import FlameNode
from tests.support.drawn_timelines import Drawn, drawn, import_run, small_blocks, track_ids, view
from tests.support.kineto_files import Event, kernel, op, python

SPAN_NS = 600
NAMES = ("a", "b", "c")


def nested_file(seed: int, count: int) -> list[Event]:
    """Make nested calls, and kernels in sequence or in parallel."""
    chance = random.Random(seed)
    events: list[Event] = [op("first", 0, 10)]

    def fill(first: int, end: int, depth: int) -> None:
        at = first
        while depth < 4 and at < end and len(events) < count:
            start = chance.randrange(at, end)
            length = chance.randrange(1, end - start + 1)
            make = python if depth < 2 else op
            events.append(make(chance.choice(NAMES), start, length))
            fill(start, start + length, depth + 1)
            at = start + length

    fill(10, SPAN_NS, 0)
    for _ in range(chance.randrange(6)):
        start = chance.randrange(SPAN_NS)
        events.append(kernel(start, chance.randrange(1, 80), None, name=chance.choice(NAMES)))
    return events


def cut(event: Drawn, start: int, end: int) -> int:
    return min(event.end, end) - max(event.start, start)


def owners(events: list[Drawn], start: int, end: int) -> Iterator[list[Drawn]]:
    """Yield the events that are open at each nanosecond, the outermost first."""
    for at in range(start, end):
        yield sorted((e for e in events if e.start <= at < e.end), key=lambda e: (e.start, -e.end))


@contextmanager
def nested_run(run: tuple[int, int], *, levels: bool) -> Iterator[tuple[Run, list[Drawn]]]:
    """Import a trace of `nested_file`; yields the run and the expected events."""
    events = nested_file(*run)
    with tempfile.TemporaryDirectory() as directory, small_blocks(levels=levels, slice_rows=10**6):
        yield import_run(Path(directory) / "run", events), [drawn(event) for event in events]


RUNS = st.tuples(st.integers(0, 10**6), st.integers(1, 40))
WINDOWS = st.tuples(st.integers(0, SPAN_NS), st.integers(1, SPAN_NS + 100))


@settings(max_examples=6, phases=[Phase.generate])
@given(run=RUNS, window=WINDOWS, levels=st.booleans())
def test_sums_are_those_of_every_nanosecond(
    run: tuple[int, int], window: tuple[int, int], levels: bool
) -> None:
    start, end = window[0], window[0] + window[1]
    with nested_run(run, levels=levels) as (trace_run, truth):
        ids = track_ids(trace_run)
        summary = view(trace_run, "timeline-summary", from_ns=start, to_ns=end, top=0)
        summaries = {track.track: track for track in summary.tracks}
        for kind, id_ in ids.items():
            inside = [e for e in truth if e.track == kind and e.overlaps(start, end)]
            if not inside:
                assert id_ not in summaries
                continue
            track = summaries[id_]
            busy = [bool(open_) for open_ in owners(inside, start, end)]
            assert track.busy_ns == sum(busy)
            assert track.busy_ratio == sum(busy) / (end - start)
            assert track.event_count == len(inside)
            gaps = gaps_of(busy)
            assert (track.gap_count, track.longest_gap_ns) == (len(gaps), max(gaps, default=0))
            assert {n.name: n.count for n in track.names} == Counter(e.name for e in inside)
            for name in track.names:
                named_events = [e for e in inside if e.name == name.name]
                durations = sum(cut(e, start, end) for e in named_events)
                is_open = [
                    any(e.name == name.name for e in open_) for open_ in owners(inside, start, end)
                ]
                assert name.total_ns == (sum(is_open) if kind == "host" else durations)
                assert name.max_ns <= max(cut(e, start, end) for e in named_events)
                assert name.mean_ns == durations / len(named_events)
            if kind == "host":
                selves = Counter(o[-1].name for o in owners(inside, start, end) if o)
                assert {n.name: n.self_ns for n in track.names if n.self_ns} == dict(selves)


@settings(max_examples=6, phases=[Phase.generate])
@given(run=RUNS, window=WINDOWS, levels=st.booleans())
def test_flame_graphs_are_paths_of_every_nanosecond(
    run: tuple[int, int], window: tuple[int, int], levels: bool
) -> None:
    start, end = window[0], window[0] + window[1]
    with nested_run(run, levels=levels) as (trace_run, truth):
        host = track_ids(trace_run)["host"]
        flame = view(trace_run, "timeline-flame", from_ns=start, to_ns=end, tracks=host)
    totals: dict[tuple[str, ...], int] = defaultdict(int)
    selves: dict[tuple[str, ...], int] = defaultdict(int)
    for open_ in owners([e for e in truth if e.track == "host"], start, end):
        path = tuple(e.name for e in open_)
        for depth in range(1, len(path) + 1):
            totals[path[:depth]] += 1
        if path:
            selves[path] += 1
    nodes = dict(walk(flame.roots, ()))
    assert {path: node.total_ns for path, node in nodes.items() if node.total_ns} == dict(totals)
    assert {path: node.self_ns for path, node in nodes.items() if node.self_ns} == dict(selves)
    assert flame.total_ns == sum(node.total_ns for node in flame.roots)
    assert flame.left_out_ns == 0
    assert [node.total_ns for node in flame.roots] == sorted(
        (node.total_ns for node in flame.roots), reverse=True
    )


def test_small_paths_are_left_out_of_a_flame_graph_and_summed(tmp_path: Path) -> None:
    events = [op("large", 0, 10_000_000), *(op(f"f{n}", 10 * n, 5) for n in range(50))]
    run = import_run(tmp_path / "run", events)
    flame = view(run, "timeline-flame")
    assert [node.name for node in flame.roots] == ["large"]
    assert (flame.roots[0].children, flame.left_out_ns) == ([], 250)
    assert flame.roots[0].self_ns == 10_000_000 - 250


def test_kernels_at_once_are_each_a_root(tmp_path: Path) -> None:
    events = [op("f", 0, 10), kernel(100, 100, None, name="long"), kernel(120, 20, None, name="k")]
    run = import_run(tmp_path / "run", events)
    device = track_ids(run)["device"]
    (track,) = view(run, "timeline-summary", tracks=device).tracks
    assert {name.name: name.self_ns for name in track.names} == {"long": 100, "k": 20}
    assert track.busy_ns == 100
    flame = view(run, "timeline-flame", tracks=device)
    assert {node.name: node.total_ns for node in flame.roots} == {"long": 100, "k": 20}


def test_brackets_and_marks_of_profilers_are_in_no_sum(tmp_path: Path) -> None:
    names = ("PyTorch Profiler (0)", "ProfilerStep#3", "Iteration Start: PyTorch Profiler")
    run = import_run(tmp_path / "run", [*(op(name, 0, 900) for name in names), op("f", 100, 20)])
    (track,) = view(run, "timeline-summary").tracks
    assert ([name.name for name in track.names], track.busy_ns) == (["f"], 20)
    assert [node.name for node in view(run, "timeline-flame").roots] == ["f"]


def test_the_top_names_are_listed(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run", [op(f"f{n}", 1000 * n, 10 + n) for n in range(9)])
    (track,) = view(run, "timeline-summary", top=2).tracks
    assert [name.name for name in track.names] == ["f8", "f7"]
    assert track.name_count == 9


def gaps_of(busy: list[bool]) -> list[int]:
    """Return the lengths of the idle gaps between busy nanoseconds."""
    if not any(busy):
        return []
    text = "".join("x" if is_busy else "." for is_busy in busy).strip(".")
    return [len(gap) for gap in text.split("x") if gap]


def walk(
    nodes: list[FlameNode], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], FlameNode]]:
    for node in nodes:
        yield (*above, node.name), node
        yield from walk(node.children, (*above, node.name))
