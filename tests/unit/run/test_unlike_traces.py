"""Traces of one import compared with each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.run import Run, compare_traces, find_unlike_traces, list_run_doubts
from stepscope.run.traces import unlike
from tests.support.command import run_command
from tests.support.imported_runs import import_into
from tests.support.kineto_files import BASE_NS, Event, kernel, launch, op, span, trace

HOUR_US = 3_600 * 10**6


def step_events(first: int = 0, *, on_device: bool = True, on_host: bool = True) -> list[Event]:
    """Draw six steps of 10 ms, of which the device works for 6 ms."""
    events: list[Event] = []
    for n in range(6):
        start = 10_000 * n
        step = span("user_annotation", f"ProfilerStep#{first + n}", start, 9_999)
        host = [step, op("aten::mm", start + 100, 400), launch(start + 200, 10, n + 1)]
        host += [op("c10d::allreduce_", start + 700, 10)]
        events += host if on_host else []
        events += [kernel(start + 300, 6_000, n + 1)] if on_device else []
    return events


def write(path: Path, rank: int, events: list[Event], *, world: int = 2, hours: float = 0) -> None:
    base = BASE_NS + int(hours * HOUR_US) * 1000
    path.write_bytes(trace(*events, base=base, distributedInfo={"rank": rank, "world_size": world}))


def run_json(directory: Path, *arguments: str) -> Any:
    return json.loads(run_command(directory, *arguments, "--json").stdout)


def checks_of(run: Run) -> dict[str, str]:
    return {issue.check: issue.detail or "" for issue in compare_traces(run)}


def test_ranks_of_one_job_have_no_issue(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"{rank}.json", rank, [*step_events(), op(f"own{rank}", 70_000, 5)])
    run = import_into(tmp_path / "run", tmp_path / "0.json", tmp_path / "1.json")
    assert compare_traces(run) == []
    assert find_unlike_traces(run) == unlike.UnlikeTraces()


def test_what_cannot_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "a.json", 0, step_events())
    write(tmp_path / "b.json", 0, [*step_events(), op("b", 70_000, 5)])
    write(tmp_path / "c.json", 5, step_events(), world=4)
    write(tmp_path / "d.json", 1, step_events(), hours=3)
    run = import_into(tmp_path / "run", *(tmp_path / f"{name}.json" for name in "abcd"))
    assert checks_of(run) == {
        "missing_rank": "The run has no trace of ranks 2, 3; whether the others wait for them "
        "is unknown.",
        "world_size": "The traces state different world sizes, as those of several jobs: 2 in "
        "a.json, b.json, d.json; 4 in c.json.",
        "overlapping_rank": "One rank has several traces of the same time, as of several jobs: "
        "a.json (rank 0), b.json (rank 0).",
        "rank_outside_world": "The rank is not below the world size that the trace states: "
        "c.json (rank 5).",
        "other_times": "Ranks were recorded up to 3 h apart, although they share step numbers "
        "(rank 0, rank 5; rank 1): who waits for whom is unknown, and a mean over them is no step "
        "of the job.",
    }


def test_lost_ranks_and_files_are_the_first_doubt_everywhere(tmp_path: Path) -> None:
    """A rank is lost if its file was refused; files that no one takes for traces lack nothing."""
    write(tmp_path / "0.json", 0, [*step_events(), op("late", 10**13, 5)], world=4)
    (tmp_path / "1.json.lz4").write_bytes(b"\x04\x22\x4d\x18rank 1")
    (tmp_path / "2.json").write_bytes(b'{"schemaVersion": 1, "distributedInf')
    (tmp_path / "README").write_bytes(b"Traces of four ranks.")
    (tmp_path / "loss.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    names = ("0.json", "1.json.lz4", "2.json", "README", "loss.png")
    run = import_into(tmp_path / "run", *(tmp_path / name for name in names))
    doubts = [doubt.sentence for doubt in list_run_doubts(run)]
    assert doubts[0].startswith("2 of 3 files were not imported: ")
    assert "1.json.lz4 is compressed with LZ4. Decompress it with `lz4 -d`" in doubts[0]
    assert "2.json is not a trace that stepscope can read" in doubts[0]
    assert "README" not in doubts[0]
    assert doubts[1] == (
        "The run has no trace of ranks 1 to 3; whether the others wait for them is unknown."
    )
    for command in (["diagnose", "run"], ["show", "run", "kernels"], ["show", "run", "quality"]):
        assert run_json(tmp_path, *command)["doubts"] == doubts
        first, _, rest = run_command(tmp_path, *command).stdout.partition("\n! The")
        assert first.startswith("! 2 of 3 files were not imported:")
        assert rest.startswith(" run has no trace of ranks 1 to 3;")


@pytest.mark.parametrize(
    ("stated", "names", "check"),
    [
        ((1, 0), ("rank0", "rank1"), "rank_in_name"),
        ((0, 8), ("host0/rank0", "host1/rank0"), None),
        ((0.0, 1.0), ("rank0", "rank1"), None),
        ((0.5, 1.5), ("a", "b"), "unreadable_rank"),
        (("0", "one"), ("a", "b"), "unreadable_rank"),
    ],
)
def test_ranks_that_the_file_and_its_name_state(
    tmp_path: Path, stated: tuple[Any, ...], names: tuple[str, ...], check: str | None
) -> None:
    for n, (rank, name) in enumerate(zip(stated, names, strict=True)):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        write(path, rank, [*step_events(), op(f"of {n}", 70_000, 5)], world=0)
    run = import_into(tmp_path / "run", *(tmp_path / f"{name}.json" for name in names))
    assert [doubt.check for doubt in list_run_doubts(run)] == [check] * (check is not None)
    if check == "rank_in_name":
        assert list_run_doubts(run)[0].sentence == (
            "The names of these files state ranks of others; what the files state counts: "
            "rank1.json (rank 0), rank0.json (rank 1)."
        )
    if check == "unreadable_rank":
        name, rank = next((n, r) for n, r in zip("ab", stated, strict=True) if r not in {0, "0"})
        assert (f"{rank}), so the trace has none") in list_run_doubts(run)[0].sentence


def test_a_rank_without_device_work_is_not_averaged(tmp_path: Path) -> None:
    """The verdict is that of the ranks with a device, and a note says so."""
    write(tmp_path / "0.json", 0, step_events())
    write(tmp_path / "1.json", 1, step_events(on_device=False))
    both = import_into(tmp_path / "both", tmp_path / "0.json", tmp_path / "1.json")
    one = import_into(tmp_path / "one", tmp_path / "0.json")
    assert set(checks_of(one)) == {"missing_rank"}
    assert checks_of(both) == {
        "no_device_work": "rank 1 recorded no device work, which other traces have; shares are "
        "over the other traces."
    }
    verdicts = [run_json(tmp_path, "diagnose", name) for name in ("both", "one")]
    notes = [verdict.pop("notes") for verdict in verdicts]
    assert [len(verdict.pop("doubts")) for verdict in verdicts] == [1, 0]
    for verdict in verdicts:
        verdict.pop("run", None)
    assert verdicts[0] == verdicts[1]
    assert set(notes[0]) - set(notes[1]) == {
        "Left out of the shares: rank 1 recorded no device work, which other traces have."
    }
    (window,) = run_json(tmp_path, "show", "both", "distributed")["windows"]
    assert [rank["computation_ratio"] is None for rank in window["ranks"]] == [False, True]


@pytest.mark.parametrize(
    ("events", "check"),
    [(step_events(on_host=False), "no_host_work"), (step_events(100), "other_steps")],
)
def test_ranks_with_other_content(tmp_path: Path, events: list[Event], check: str) -> None:
    write(tmp_path / "0.json", 0, step_events(), world=3)
    write(tmp_path / "1.json", 1, events, world=3)
    write(tmp_path / "2.json", 2, [*step_events(1), op("own", 70_000, 5)], world=3)
    run = import_into(tmp_path / "run", *(tmp_path / f"{rank}.json" for rank in range(3)))
    assert set(checks_of(run)) == {check}
    assert checks_of(run)[check].startswith("rank 1 recorded no")
    notes = run_json(tmp_path, "diagnose", "run")["notes"]
    assert any(note.startswith("Left out") for note in notes) == (check == "other_steps")


@st.composite
def drawn_traces(draw: st.DrawFn) -> list[Any]:
    """Draw ranks and extents, in quarters of an hour."""
    quarter = unlike.MAX_DISTANCE_NS // 4
    rows = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 12))))
    return [
        SimpleNamespace(
            trace=n,
            process=None,
            rank=rank,
            base_ns=1,
            start_ns=start * quarter,
            end_ns=(start + length) * quarter,
        )
        for n, (rank, start, length) in enumerate(rows)
    ]


@given(drawn_traces())
@settings(max_examples=300, deadline=None)
def test_traces_compared_pair_by_pair(traces: list[Any]) -> None:
    overlapping: set[int] = set()
    group = {one.trace: {one.trace} for one in traces}
    for a, b in combinations(traces, 2):
        shared = min(a.end_ns, b.end_ns) - max(a.start_ns, b.start_ns)
        shorter = min(a.end_ns - a.start_ns, b.end_ns - b.start_ns)
        if a.rank == b.rank and shared > 0 and shared >= unlike.MIN_OVERLAP_RATIO * shorter:
            overlapping |= {a.trace, b.trace}
        if -shared <= unlike.MAX_DISTANCE_NS:
            joined = group[a.trace] | group[b.trace]
            group |= dict.fromkeys(joined, joined)
    assert {one.trace for one in unlike._find_overlapping(traces)} == overlapping
    ranks = {one.trace: one.rank for one in traces}
    is_apart = len(set(ranks.values())) > 1
    expected = {n for n, members in group.items() if len({ranks[m] for m in members}) == 1}
    apart = {one.trace for one in unlike._find_apart(traces)}
    assert apart == (expected if is_apart else set())


def join_pairs(traces: list[Any], belong: Callable[[Any, Any], bool]) -> dict[int, set[int]]:
    """Return the numbers of the traces that belong to each, by way of others, too."""
    group = {one.trace: {one.trace} for one in traces}
    for a, b in combinations(traces, 2):
        if belong(a, b):
            joined = group[a.trace] | group[b.trace]
            group |= dict.fromkeys(joined, joined)
    return group


def distance_of(a: Any, b: Any) -> int:
    return int(max(a.start_ns, b.start_ns) - min(a.end_ns, b.end_ns))


@given(drawn_traces(), st.data())
@settings(max_examples=300, deadline=None)
def test_traces_grouped_by_time_and_steps(traces: list[Any], data: st.DataObject) -> None:
    names = st.sets(st.sampled_from(["ProfilerStep#1", "ProfilerStep#2"]))
    steps = {one.trace: data.draw(names) for one in traces}
    run: Any = SimpleNamespace(whole_run=SimpleNamespace(derive=lambda _: steps))
    near = join_pairs(traces, lambda a, b: distance_of(a, b) < unlike.MAX_SKEW_NS)
    group = join_pairs(
        traces,
        lambda a, b: (
            a.rank == b.rank
            or distance_of(a, b) < 0
            or bool(steps[a.trace] & steps[b.trace] and b.trace in near[a.trace])
        ),
    )
    numbers = unlike.group_by_time(run, traces)
    for (a, of_a), (b, of_b) in combinations(zip(traces, numbers, strict=True), 2):
        assert (of_a == of_b) == (b.trace in group[a.trace])


@given(drawn_traces(), st.data())
@settings(max_examples=300, deadline=None)
def test_recordings_of_ranks(traces: list[Any], data: st.DataObject) -> None:
    """A recording has one trace of a rank; without evidence the n-th traces are together."""
    names = st.sets(st.sampled_from(["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]))
    steps = {one.trace: data.draw(names) for one in traces}
    for one in traces:
        one.label, one.window = f"rank {one.rank}", None
    run: Any = SimpleNamespace(whole_run=SimpleNamespace(derive=lambda _: steps))
    numbers = unlike.number_recordings(run, traces)
    keys = list(zip(numbers, (one.rank for one in traces), strict=True))
    assert len(set(keys)) == len(keys)

    def share_a_step(a: Any, b: Any) -> bool:
        repeated = {
            name
            for c, d in combinations(traces, 2)
            for name in steps[c.trace] & steps[d.trace]
            if c.rank == d.rank
        }
        return bool(steps[a.trace] & steps[b.trace] - repeated)

    together = join_pairs(traces, lambda a, b: distance_of(a, b) < 0 or share_a_step(a, b))
    ranks_of = [[traces[n].rank for n in group] for group in together.values()]
    several = len({one.rank for one in traces}) < len(traces)
    is_certain = all(len(set(ranks)) == len(ranks) for ranks in ranks_of)
    if several and is_certain and any(len(ranks) > 1 for ranks in ranks_of):
        for a, b in combinations(traces, 2):
            assert (numbers[a.trace] == numbers[b.trace]) == (b.trace in together[a.trace])
    else:
        order: dict[int, int] = {}
        for one, number in zip(traces, numbers, strict=True):
            assert number == order.setdefault(one.rank, 0)
            order[one.rank] += 1
