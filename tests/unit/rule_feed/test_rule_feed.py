"""A run directory as signals of rules, finished and growing."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.analysis import PHASES, Device, Series
from stepscope.rule_feed import feed as rule_signals, steps as rule_steps
from stepscope.rule_feed.feed import LAG_NS, RuleFeed
from stepscope.rule_feed.steps import StepFinder
from stepscope.rules import Evaluation, RankStepTimes
from stepscope.rules.inputs import scan_indices
from stepscope.rules.profiler import RULES
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import DictColumn, RunReader, RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support import store_rows

SECOND_NS = 1_000_000_000
STEP = "wait 100 | forward 300 | backward 400 | optimizer 150"


def drawn(path: Path, steps: int = 300, **options: object) -> RunReader:
    run = RunBuilder(path, sampling_ms=1000, **options)
    for number in (0, 1):
        rank = run.rank(number, workers=1, node=f"n{number}").draw(
            STEP, steps, jitter=0.1, seed=number
        )
        rank.workers[0].draw("fetch 700 | do 300", steps)
        for gpu in ("0", "1"):
            run.metric("gpu_busy_ratio", lambda s: s % 1, device=gpu, node=f"n{number}")
        for core in ("0", "1", "2"):
            run.metric("core_busy_ratio", int(core) / 2, device=core, node=f"n{number}")
        run.metric("cpu_busy_ratio", 0.5, node=f"n{number}")
    run.write()
    return open_run(path)


def test_series_are_those_of_the_samples(tmp_path: Path) -> None:
    reader = drawn(tmp_path / "run", 60)
    (signals,) = RuleFeed(reader).ranges(final=True)
    metrics = Run(reader).metrics
    busy = signals.series("gpu_busy_ratio")
    assert set(busy) == {Device(f"n{n}", g) for n in (0, 1) for g in "01"}
    for device, series in busy.items():
        order = np.argsort(series.t_ns)
        twin = metrics[device.node].series("gpu_busy_ratio", device.number)
        assert series.value[order].tolist() == twin.tolist()
    assert set(signals.series("cpu_busy_ratio")) == {Device("n0", ""), Device("n1", "")}
    assert signals.series("gpu_power_watt") == {}
    assert signals.origin_ns == EPOCH_NS


def find_in_pieces(reader: RunReader, last: int, pieces: int) -> dict[str, list[RankStepTimes]]:
    """Find the steps of each rank in several ranges of time."""
    finder, result = StepFinder(reader), {}
    for number, end in enumerate(np.linspace(EPOCH_NS, last, pieces + 1)[1:].astype(np.int64)):
        final = number + 1 == pieces
        end_ns = last if final else int(end)
        mains = [p for p in reader.processes() if p.role == "main"]
        for steps in finder.find(finder.read(mains, end_ns, final=final)):
            result.setdefault(steps.rank, []).append(steps)
    return result


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_steps_found_piece_by_piece_are_those_of_the_whole_run(tmp_path: Path, pieces: int) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 40, jitter=0.3).evaluation(5).draw(f"{STEP} | save 200", 40, jitter=0.3)
    run.rank(1).draw(
        "forward 100 | backward 300 | optimizer:a 20 | backward 80 | optimizer:b 20", 120
    )
    run.rank(2).draw(f"{STEP} | mark", 60)
    run.rank(3).draw(STEP, 10).draw(f"window ( {STEP} | {STEP} )").draw(STEP, 20)
    boosting = run.rank(4)
    for _ in range(3):
        boosting.draw("do 700 | new_model 30").draw("optimizer 100 | do 90", 15, jitter=0.3)
    agent = run.rank(5)
    for _ in range(80):  # fewer elements at a time than it trains on
        agent.draw("predict:Net=1 5 | do 5", 40).draw(
            "forward:Net=32 20 | backward 20 | optimizer 5", 9
        )
    reader = open_run(run.write())
    result = find_in_pieces(reader, run.end_ns + 1, pieces)
    for rank in Run(reader).ranks:
        parts = result[rank.name]
        assert [part.first for part in parts] == np.cumsum(
            [0, *(len(p) for p in parts[:-1])]
        ).tolist()
        for name, twin in (("start_ns", "start"), ("end_ns", "end"), ("wall_ns", "wall_ns")):
            joined = np.concatenate([getattr(part, name) for part in parts])
            assert joined.tolist() == getattr(rank.steps, twin).tolist(), (rank.name, name)
        for phase in PHASES:
            joined = np.concatenate([part.phase_ns[phase] for part in parts])
            assert joined.tolist() == rank.steps.phase_ns[phase].tolist(), (rank.name, phase)
        profiled = np.concatenate([part.profiled for part in parts])
        assert profiled.tolist() == rank.steps.profiled.tolist()


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize(
    ("source", "loop", "end"),
    [
        ("backward", "forward 10 | hand 20 | do 5", "do 1"),
        (
            "forward",
            "wait 10 | infer:Encoder 20 | infer:Decoder 5 | infer:Decoder 5",
            "exhausted 1",
        ),
        ("forward", "infer:Encoder 20 | infer:Decoder 5 | do 5", "do 1"),
        ("forward", "infer 20 | do 5", "wait 2 | infer 4 | infer 4 | exhausted 1"),
    ],
)
def test_steps_without_an_optimizer_are_found_in_pieces(
    tmp_path: Path, source: str, loop: str, end: str, pieces: int
) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(loop, 60).draw(end)
    reader = open_run(run.write())
    (parts,) = find_in_pieces(reader, run.end_ns + 1, pieces).values()
    (rank,) = Run(reader).ranks
    assert rank.steps.source == source
    assert [part.first for part in parts] == np.cumsum([0, *map(len, parts[:-1])]).tolist()
    assert np.concatenate([part.end_ns for part in parts]).tolist() == rank.steps.end.tolist()


def test_a_growing_job_that_begins_with_predictions_trains_from_its_first_training_step(
    tmp_path: Path,
) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw("wait 10 | infer 20", 300).draw("exhausted 1").draw(STEP, 30)
    reader = open_run(run.write())
    parts = find_in_pieces(reader, run.end_ns + 1, 9)["rank 0"]
    (rank,) = Run(reader).ranks
    starts = [number for number, part in enumerate(parts) if part.first == 0]
    assert len(starts) == 2, "the numbers begin again with the training"
    trained = parts[starts[-1] :]
    assert np.concatenate([part.end_ns for part in trained]).tolist() == rank.steps.end.tolist()


def test_a_rank_that_pauses_keeps_its_last_step(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw(STEP, 10).pause(1_800_000)
    run.rank(1).draw(STEP, 2300)
    run.rank(2).draw("wait 100 | forward 300", 10)  # it makes no step
    reader = open_run(run.write())
    feed, counts = RuleFeed(reader), {"rank 0": 0, "rank 1": 0}
    for signals in one_scan_at_a_time(feed):
        for steps in signals.steps:
            counts[steps.rank] += len(steps)
    assert counts == {"rank 0": 10, "rank 1": 2300}


def test_a_scan_opens_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_steps, "LOOK_BACK_NS", 10 * SECOND_NS)
    monkeypatch.setattr(rule_signals, "MAX_DURATION_NS", 10 * SECOND_NS)
    reader = drawn(tmp_path / "run")
    opened: list[tuple[int, int] | None] = []
    ask = RunReader.sql

    def spy(self: RunReader, query: str, parameters: object = (), **options: object) -> object:
        opened.append(options.get("within"))
        return ask(self, query, parameters, **options)

    monkeypatch.setattr(RunReader, "sql", spy)
    feed = RuleFeed(reader)
    evaluation = Evaluation(rule() for rule in RULES)
    scans = queries = 0
    for signals in one_scan_at_a_time(feed):
        evaluation.feed(signals)
        # Those of this scan, and as many of the next as have been asked meanwhile.
        queries_now = opened.copy()
        del opened[: len(queries_now)]
        if signals.start_ns > EPOCH_NS:
            since = signals.start_ns - 15 * SECOND_NS
            assert all(within is not None and within[0] >= since for within in queries_now)
        scans, queries = scans + 1, queries + len(queries_now)
    assert scans > 3
    assert queries > 3 * scans


def test_every_sample_is_handed_out_once(tmp_path: Path) -> None:
    reader = drawn(tmp_path / "run")
    feed = RuleFeed(reader, scan_ns=7 * SECOND_NS)
    ranges = list(feed.ranges(final=False))
    ranges += feed.ranges(final=True)
    assert list(feed.ranges(final=True)) == []
    for one, following in itertools.pairwise(ranges):
        assert following.start_ns >= one.end_ns
        assert (one.end_ns - one.origin_ns) % feed.scan_ns == 0
    result = np.concatenate([r.series("gpu_busy_ratio")[Device("n0", "0")].t_ns for r in ranges])
    count = len(Run(reader).metrics["n0"].series("gpu_busy_ratio", "0"))
    assert len(result) == len(set(result.tolist())) == count
    batches = np.concatenate([b.start_ns for r in ranges for b in r.batches])
    assert len(batches) == 2 * 300


def test_findings_of_a_growing_run_are_those_of_the_finished_one(tmp_path: Path) -> None:
    reader = drawn(tmp_path / "run")
    small = {"patience": 20, "window": 20}

    def rules():
        for rule in RULES:
            names = rule.parameters_type.__dataclass_fields__
            yield rule(**{n: v for n, v in small.items() if n in names})

    growing, complete = Evaluation(rules()), Evaluation(rules())
    feed = RuleFeed(reader)
    for signals in RuleFeed(reader).ranges(final=True):
        complete.feed(signals)
    for signals in one_scan_at_a_time(feed):
        growing.feed(signals)
    assert growing.findings() == complete.findings()
    assert any(finding.fired for finding in complete.findings())


def one_scan_at_a_time(feed: RuleFeed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_signals, "SCANS_AT_ONCE", 1)
        yield from feed.ranges(final=True)


def test_records_from_before_the_monitor_was_ready_do_not_move_the_scans(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.status(JobState.IN_PROGRESS, started_ns=EPOCH_NS + 5 * SECOND_NS).write()
    growing = RuleFeed(open_run(tmp_path / "run"))
    assert list(growing.ranges(final=False)) == []
    samples(tmp_path / "run", "n0", [EPOCH_NS + 4 * SECOND_NS, EPOCH_NS + 6 * SECOND_NS])
    for feed in (growing, RuleFeed(open_run(tmp_path / "run"))):
        (inputs,) = feed.ranges(final=True)
        times = inputs.series("gpu_busy_ratio")[Device("n0", "0")].t_ns
        assert scan_indices(inputs, times).tolist() == [0, 0]


def test_a_node_that_has_written_less_holds_the_scan_back(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 130)  # two minutes
    for node in ("n0", "n1"):
        run.metric("gpu_busy_ratio", 0.5, device="0", node=node)
        run.status(JobState.IN_PROGRESS, node=node, heartbeat_ns=run.end_ns)
    run.write()
    last = run.end_ns
    samples(tmp_path / "run", "late", [EPOCH_NS + 70 * SECOND_NS])
    with RunWriter(tmp_path / "run", "late") as writer:
        writer.put_status(run.statuses["n0"])
    reader = open_run(tmp_path / "run")
    feed = RuleFeed(reader)
    (first,) = feed.ranges(final=False)
    assert first.end_ns == EPOCH_NS + 60 * SECOND_NS
    assert list(feed.ranges(final=False)) == []
    samples(tmp_path / "run", "late", [last])
    (second,) = feed.ranges(final=False)
    whole_scans = (last - LAG_NS - EPOCH_NS) // (60 * SECOND_NS)
    assert second.end_ns == EPOCH_NS + whole_scans * 60 * SECOND_NS


def test_no_table_is_read_before_a_scan_can_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 130)  # two minutes
    run.metric("gpu_busy_ratio", 0.5, device="0")
    run.status(JobState.IN_PROGRESS, heartbeat_ns=run.end_ns).write()
    feed = RuleFeed(open_run(tmp_path / "run"))
    assert len(list(feed.ranges(final=False))) == 1
    monkeypatch.delattr(RunReader, "times")
    assert list(feed.ranges(final=False)) == []
    later = msgspec.structs.replace(run.statuses["n0"], heartbeat_ns=run.end_ns + 60 * SECOND_NS)
    with RunWriter(tmp_path / "run", "n0") as writer:
        writer.put_status(later)
    with pytest.raises(AttributeError):
        list(feed.ranges(final=False))


@pytest.mark.seed("DBU-15")
def test_a_node_whose_samples_do_not_arrive_is_not_waited_for_long(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 250)  # four minutes
    run.metric("gpu_busy_ratio", 0.5, device="0")
    for node in ("n0", "mute"):
        run.status(JobState.IN_PROGRESS, node=node, heartbeat_ns=run.end_ns)
    run.write()
    with RunWriter(tmp_path / "run", "mute") as writer:
        writer.put_status(run.statuses["mute"])
    (result,) = RuleFeed(open_run(tmp_path / "run")).ranges(final=False)
    assert result.end_ns == EPOCH_NS + 120 * SECOND_NS


def test_a_jump_of_decades_is_stepped_over(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 30)
    run.metric("gpu_busy_ratio", 0.5, device="0")
    run.write()
    later = EPOCH_NS + 40 * 365 * 86_400 * SECOND_NS
    samples(tmp_path / "run", "n9", [later])
    ranges = list(RuleFeed(open_run(tmp_path / "run")).ranges(final=True))
    assert len(ranges) == 2
    result = ranges[1].series("gpu_busy_ratio")[Device("n9", "0")]
    assert result.t_ns.tolist() == [later]


def test_a_run_without_anything(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.write()
    feed = RuleFeed(open_run(tmp_path / "run"))
    assert list(feed.ranges(final=True)) == []
    signals = feed.from_start(EPOCH_NS + 1)
    assert signals.series("gpu_busy_ratio") == {}
    assert (signals.steps, signals.batches, signals.traces) == ([], [], [])
    assert signals.from_start().steps == []


def test_the_whole_run_can_be_asked_for_at_any_time(tmp_path: Path) -> None:
    reader = drawn(tmp_path / "run", 100)
    feed = RuleFeed(reader, scan_ns=10 * SECOND_NS)
    *_, last = feed.ranges(final=True)
    assert len(last.from_start().steps[0]) == 100


def samples(path: Path, node: str, times: list[int]) -> None:
    rows = store_rows.samples(times, ["gpu_busy_ratio"] * len(times), node=node)
    rows |= {"device": DictColumn.constant("0", len(times)), "seq": np.array(times)}
    with RunWriter(path, node) as writer:
        writer.append("metrics", rows)


def test_stacks_in_a_compiler_are_found(tmp_path: Path) -> None:
    code = {"compile": "main > step@torch/_dynamo/convert_frame.py", "other": "main > train"}
    run = RunBuilder(tmp_path / "run", code=code, sampling_ms=100)
    run.rank(0).draw("forward 1000 ( do:other 500 | do:compile 400 ) | optimizer 100", 5)
    (signals,) = RuleFeed(open_run(run.write())).ranges(final=True)
    result: Series = signals.compiler_time["rank 0"]
    assert result.value.sum() == pytest.approx(5 * 400 * 1e6)


@pytest.mark.parametrize("failing", ["late", "early"])
def test_one_that_begins_late_or_ends_early_makes_nobody_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(rule_steps, "LOOK_BACK_NS", 10 * SECOND_NS)
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 600)
    if failing == "late":
        run.rank(1).pause(500_000).draw(STEP, 50)
    else:
        run.rank(1).draw(STEP, 50)
    reader = open_run(run.write())
    read: list[int] = []
    ask = rule_steps.read_spans

    def spy(*arguments: object, **options: object) -> object:
        rows = ask(*arguments, **options)
        read.append(sum(len(process) for result in rows.values() for process in result["start_ns"]))
        return rows

    monkeypatch.setattr(rule_steps, "read_spans", spy)
    for signals in one_scan_at_a_time(RuleFeed(reader)):
        assert signals.steps is not None
    assert sum(read) < 1.2 * reader.row_count("spans")


def test_a_batch_that_ends_in_a_pause_is_handed_out(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    rank = run.rank(0, workers=1).draw(STEP, 50).pause(300_000).draw(STEP, 50)
    rank.workers[0].draw("fetch 500 | do 400", 60).draw("fetch 120000").pause(200_000)
    rank.workers[0].draw("fetch 500 | do 400", 20)
    reader = open_run(run.write())
    result = [b for s in one_scan_at_a_time(RuleFeed(reader)) for b in s.batches]
    assert sum(len(batches.start_ns) for batches in result) == 81
    assert max(batches.duration_ns.max() for batches in result) == 120 * SECOND_NS


def test_stacks_of_a_rank_that_was_started_again(tmp_path: Path) -> None:
    code = {"compile": "main > train > compile@torch/_dynamo/convert_frame.py"}
    run = RunBuilder(tmp_path / "run", code=code)
    for number in range(2):
        run.rank(number).draw(f"{STEP} | do:compile 500", 20)
    reader = open_run(run.write())
    (signals,) = RuleFeed(reader).ranges(final=True)
    counts = {name: len(series.t_ns) for name, series in signals.compiler_time.items()}
    processes = [msgspec.structs.replace(process, rank=0) for process in reader.processes()]
    again = next(iter(RuleFeed(reader).ranges(final=True)))
    again.run.whole_run.__dict__["processes"] = processes
    assert {n: len(s.t_ns) for n, s in again.compiler_time.items()} == {
        "rank 0": sum(counts.values())
    }
