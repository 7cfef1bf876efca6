"""The track of the critical path: its pieces, their kinds, and the events that they are part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.testing import RunBuilder
from stepscope.timeline import get_path_timeline
from stepscope.views import VIEWS, ViewOptions
from tests.support.drawn_timelines import view
from tests.support.kineto_files import launch, op, trace
from tests.unit.run.test_causal_graphs import CASES
from tests.unit.run.test_causal_graphs_of_ranks import rank_job

Imported = Callable[..., Run]
TRACK = "critical-path"
FINE = 1_000_000
"""Pixels at which each piece is drawn alone."""


def pieces_of(run: Run, pixels: int = FINE) -> list[dict[str, Any]]:
    payload = view(run, "timeline-slices", tracks=TRACK, pixels=pixels)
    (track,) = payload.tracks
    columns = ("row", "after_ns", "duration_ns", "count", "event")
    return [
        dict(zip(columns, values, strict=True))
        | {"name": payload.names[name], "kind": payload.names[kind]}
        for name, kind, *values in zip(
            track.name, track.kind, *(getattr(track, column) for column in columns), strict=True
        )
    ]


@pytest.mark.parametrize("name", ["fetch", "event recorded", "launch-bound", "backward at once"])
def test_pieces_have_the_times_of_the_critical_path(imported: Imported, name: str) -> None:
    run = imported(trace=CASES[name].content)
    pieces = pieces_of(run)
    (path,) = VIEWS["critical-path"](run, ViewOptions(top=0)).paths
    kinds: Counter[str] = Counter()
    names: Counter[tuple[str, str]] = Counter()
    for piece in pieces:
        kinds[piece["kind"]] += piece["duration_ns"]
        names[piece["name"], piece["kind"]] += piece["duration_ns"]
    assert kinds == pytest.approx({s.category: s.step_ns * path.step_count for s in path.shares})
    expected: Counter[tuple[str, str]] = Counter()
    for row in path.activities:
        expected[row.name, row.category] += row.step_ns * path.step_count
    assert names == pytest.approx(expected)
    for one, following in pairwise(pieces):
        assert one["after_ns"] + one["duration_ns"] == following["after_ns"]
    assert {piece["row"] for piece in pieces} == {0}
    summaries = pieces_of(run, pixels=20)
    assert sum(piece["count"] for piece in summaries) == len(pieces) > len(summaries)


def test_a_piece_leads_to_its_event_and_to_what_it_waits_for(imported: Imported) -> None:
    run = imported(trace=CASES["fetch"].content)
    pieces = pieces_of(run)
    for piece in pieces:
        details = view(run, "timeline-slice", track=TRACK, event=piece["event"])
        assert (details.name, details.kind) == (piece["name"], piece["kind"])
        assert details.after_ns == piece["after_ns"]
        links = {link.relation: link for link in details.links}
        assert links.get("waits for") is None or links["waits for"].event == piece["event"] - 1
        event = links.get("piece of")
        if details.args["kind_of_event"] in {"delay", "Python"}:
            assert event is None
            continue
        assert event is not None
        assert event.name == piece["name"]
        assert event.after_ns <= piece["after_ns"]
        assert piece["after_ns"] + piece["duration_ns"] <= event.after_ns + event.duration_ns
        shown = view(run, "timeline-slice", track=event.track, event=event.event)
        assert shown.name == piece["name"]
    kernels = [piece for piece in pieces if piece["name"] == "gemm"]
    details = view(run, "timeline-slice", track=TRACK, event=kernels[0]["event"])
    assert details.args["waits_for"] == "the work itself, which runs on the device"
    with pytest.raises(UsageError, match=f"{TRACK} has no event {len(pieces)}"):
        view(run, "timeline-slice", track=TRACK, event=len(pieces))


def test_the_path_is_computed_when_it_is_drawn(imported: Imported) -> None:
    """The tree names the track without a graph; no default list of tracks includes it."""
    run = imported(trace=CASES["fetch"].content)
    group = view(run, "timeline").critical_path
    assert [(track.id, track.kind) for track in group.tracks] == [(TRACK, "path")]
    drawn = view(run, "timeline-slices", pixels=FINE)
    assert TRACK not in [track.track for track in drawn.tracks]
    assert all(track.kind == [] for track in drawn.tracks)
    assert get_path_timeline not in run._derived
    assert get_path_timeline(run) is get_path_timeline(run)


def test_paths_of_several_ranks(imported: Imported) -> None:
    """Ranks that collectives tie have one path; the others are below each other."""
    jobs = [rank_job(rank) for rank in range(2)]
    tied = imported(**{f"rank{rank}": job.encode() for rank, job in enumerate(jobs)})
    pieces = pieces_of(tied)
    assert {piece["row"] for piece in pieces} == {0}
    ranks = Counter(
        view(tied, "timeline-slice", track=TRACK, event=piece["event"]).args.get("rank")
        for piece in pieces
    )
    assert ranks[0] < ranks[1]  # the straggler
    alone = imported(one=CASES["fetch"].content, other=CASES["device-bound"].content)
    rows = Counter(piece["row"] for piece in pieces_of(alone))
    assert set(rows) == {0, 1}


def test_runs_without_a_path(tmp_path: Path, imported: Imported) -> None:
    job = RunBuilder(tmp_path / "job")
    job.rank().draw("forward 20 | backward 15", 5)
    unknown = imported(trace=trace(op("aten::mm", 0, 90_000), launch(10_000, 5_000, 1)))
    for run in (job.open(), unknown):
        assert view(run, "timeline").critical_path is None
        assert pieces_of(run) == []
