"""Searching for events, and details of one event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import UsageError
from stepscope.importers.kineto.gather import MAX_TEXT_CHARACTERS
from stepscope.run import Run
from stepscope.testing.runs import RunBuilder
from tests.support.drawn_timelines import import_run, small_blocks, track_ids, view
from tests.support.kineto_files import Event, kernel, memory, op, python, span, training


def events() -> list[Event]:
    return [
        op("first", 0, 10),
        *(op(["aten::Mul", "aten::add"][n % 2], 1_000 * n + 100, 10 + n) for n in range(20)),
        kernel(5_050, 300, None, name="mul_kernel<float>"),
    ]


def test_matches_come_in_order_of_time_whatever_their_case(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run", events())
    payload = view(run, "timeline-search", name="MUL", top=4)
    assert (payload.match_count, payload.before_count) == (11, 0)
    assert payload.total_ns == sum(10 + n for n in range(0, 20, 2)) + 300
    assert [match.after_ns for match in payload.matches] == [100, 2_100, 4_100, 5_050]
    ids = track_ids(run)
    assert [match.track for match in payload.matches] == [ids["host"]] * 3 + [ids["device"]]
    assert payload.matches[3].name == "mul_kernel<float>"


@pytest.mark.parametrize(
    ("around", "listed", "before"),
    [
        (0, [100, 2_100, 4_100, 5_050], 0),
        (6_000, [4_100, 5_050, 6_100, 8_100], 2),
        (6_100, [4_100, 5_050, 6_100, 8_100], 2),
        (10**9, [16_100, 18_100], 9),
    ],
)
def test_around_a_time_the_next_ones_are_listed(
    tmp_path: Path, around: int, listed: list[int], before: int
) -> None:
    run = import_run(tmp_path / "run", events())
    payload = view(run, "timeline-search", name="mul", top=4, around_ns=around)
    assert [match.after_ns for match in payload.matches] == listed
    assert (payload.match_count, payload.before_count) == (11, before)


def test_a_search_may_be_narrowed(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run", events())
    device = track_ids(run)["device"]
    assert view(run, "timeline-search", name="mul", tracks=device).match_count == 1
    ranged = view(run, "timeline-search", name="aten", from_ns=2_100, to_ns=5_100)
    assert [match.after_ns for match in ranged.matches] == [2_100, 3_100, 4_100]
    assert view(run, "timeline-search", name="nothing").matches == []
    assert view(run, "timeline-search", name="%").match_count == 0
    with pytest.raises(UsageError, match="--name"):
        view(run, "timeline-search")


def test_a_match_is_where_it_is_drawn(tmp_path: Path) -> None:
    nested = [python("outer", 0, 10_000), op("middle", 100, 9_000), op("inner", 200, 50)]
    for levels in (False, True):
        with small_blocks(levels=levels):
            run = import_run(tmp_path / f"run{levels}", nested)
            matches = view(run, "timeline-search", name="r").matches
            assert {match.name: match.row for match in matches} == {"outer": 0, "inner": 2}
            inner = matches[-1]
            payload = view(run, "timeline-slice", track=inner.track, event=inner.event)
            assert (payload.name, payload.row, payload.after_ns) == ("inner", 2, 200)


def find_slice(run: Run, name: str, kind: str | None = None) -> Any:
    for match in view(run, "timeline-search", name=name).matches:
        payload = view(run, "timeline-slice", track=match.track, event=match.event)
        if payload.name == name and kind in {None, payload.kind}:
            return payload
    raise AssertionError(name)


@pytest.mark.seed("SMP-26")
def test_details_of_an_event(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run", training())
    gemm = find_slice(run, "gemm")
    assert (gemm.kind, gemm.step, gemm.row, gemm.self_ns) == ("kernels", "3", 0, None)
    assert (gemm.args["grid_x"], gemm.args["grid_y"], gemm.args["block_x"]) == (2, 3, 64)
    relations = {(link.relation, link.name, link.row) for link in gemm.links}
    assert relations == {("launched by", "cudaLaunchKernel", 5), ("operator", "aten::addmm", 4)}
    assert gemm.stack == ["train.py(12): forward", "nn.Module: Net_0"]
    call = find_slice(run, "cudaLaunchKernel")
    assert {(link.relation, link.name) for link in call.links} == {
        ("launches", "gemm"),
        ("operator", "aten::addmm"),
        ("parent", "aten::addmm"),
    }
    linear = find_slice(run, "aten::linear")
    assert linear.args["input_dims"] == [[8, 4]]
    assert (linear.self_ns, linear.duration_ns) == (1_000, 4_000)
    assert [link.name for link in linear.links] == ["train.py(12): forward"]
    step = find_slice(run, "ProfilerStep#3", "annotations")
    assert step.self_ns == 1_000 or step.row == 0
    copied = find_slice(run, "Memcpy HtoD")
    assert copied.args["bytes"] == 64


@pytest.mark.seed("PTP-06")
def test_gradients_are_linked_both_ways(tmp_path: Path) -> None:
    forward = op("aten::mul", 0, 100, {"Sequence number": 9, "Fwd thread id": 0})
    backward = op("MulBackward0", 500, 100, {"Sequence number": 9, "Fwd thread id": 1}, tid=2)
    run = import_run(tmp_path / "run", [forward, backward])
    there = find_slice(run, "aten::mul")
    back = find_slice(run, "MulBackward0")
    assert [(link.relation, link.event) for link in there.links] == [("backward", back.event)]
    assert [(link.relation, link.event) for link in back.links] == [("forward", there.event)]
    assert back.links[0].track == there.track


@pytest.mark.parametrize("levels", [False, True])
def test_self_time_of_a_long_event_is_exact(tmp_path: Path, levels: bool) -> None:
    calls = [op("f", 1_000 + 977 * n, 1 + n % 700) for n in range(5_000)]
    edges = [op("before", 0, 999), op("after", 6_000_001, 999)]
    events = [span("user_annotation", "long", 1_000, 6_000_000 - 1_000), *calls, *edges]
    with small_blocks(levels=levels, slice_rows=10**6):
        run = import_run(tmp_path / "run", events)
        long = find_slice(run, "long")
        assert long.self_ns == 5_999_000 - sum(1 + n % 700 for n in range(5_000))


def test_names_that_are_markup_or_endless(tmp_path: Path) -> None:
    endless = "x" * 1_000_000
    run = import_run(
        tmp_path / "run", [op("<img src=x onerror=alert(1)>", 0, 5), op(endless, 9, 5)]
    )
    names = view(run, "timeline-slices").names
    assert "<img src=x onerror=alert(1)>" in names
    assert max(map(len, names)) == 500
    start = endless[:MAX_TEXT_CHARACTERS] + "…"
    assert find_slice(run, start).name == start


def test_missing_events_and_tracks_are_errors(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run", [op("f", 0, 5), memory(3, 64)])
    track = track_ids(run)["host"]
    for wrong in ({"track": track, "event": 99}, {"track": "spans:p:1c", "event": 0}):
        with pytest.raises(UsageError, match=r"Track .+ has no event \d"):
            view(run, "timeline-slice", **wrong)
    for wrong in ("x", "trace:1", "trace:a:b", "counter:1:2:n"):
        with pytest.raises(UsageError, match="is not a track of the timeline"):
            view(run, "timeline-slice", track=wrong, event=0)
    with pytest.raises(UsageError, match="--event"):
        view(run, "timeline-slice", track=track)


def test_spans_of_the_job(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    rank = builder.rank(0, workers=1)
    rank.draw("wait 5 | forward 12 | backward 20 | optimizer 8", 20)
    rank.workers[0].draw("fetch ( samples 8 | collate 2 )", 20)
    run = builder.open()
    payload = view(run, "timeline-search", name="backward", top=3)
    assert payload.match_count == 20
    assert payload.total_ns == 20 * 20_000_000
    backward = view(
        run, "timeline-slice", track=payload.matches[1].track, event=payload.matches[1].event
    )
    assert (backward.name, backward.kind, backward.step, backward.row) == (
        "backward",
        "backward",
        "1",
        0,
    )
    fetch = view(run, "timeline-search", name="fetch", top=1).matches
    collate = view(run, "timeline-search", name="collate", top=1).matches[0]
    inner = view(run, "timeline-slice", track=collate.track, event=collate.event)
    assert [link.relation for link in inner.links] == ["parent"]
    assert fetch or inner.links
