"""Verdicts on runs that lack records: dropped, rounded, sampled from outside, without times."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.analysis import ThreadActivity, estimate_wait_share
from stepscope.comparison import compare_runs
from stepscope.cost import report_cost
from stepscope.diagnosis import Verdict, build_verdict, diagnose
from stepscope.quantities import duration, percent
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.traces import TraceJob
from stepscope.views import VIEWS, ViewOptions
from tests.support.drawn_verdicts import ELEMENTWISE, compute, draw_steps, judge as judge_traces
from tests.support.segmented_runs import segment_tables

RunMaker = Callable[..., RunBuilder]
STEPS = "forward 60 | backward 30 | optimizer 10"


CAUSES = {
    "spool_limit": "the spool was full; raise --spool-limit",
    "ENOSPC": "the file system of the spool was full",
    "EDQUOT": "the disk quota of the spool was exhausted",
    "EFBIG": "the limit on file sizes (ulimit -f)",
    "ENOENT": "the spool was deleted",
    "EMFILE": "too many files were open in one process; raise the limit (ulimit -n)",
    "ENFILE": "too many files were open on the machine; raise the limit (fs.file-max)",
    "EIO": "the spool could not be written: Input/output error",
}


@pytest.mark.parametrize(("cause", "words"), CAUSES.items())
def test_each_cause_of_dropped_records_has_its_sentence(
    new_run: RunMaker, cause: str, words: str
) -> None:
    run = new_run()
    run.rank(dropped_count=700, dropped_by_cause={cause: 700})
    verdict = diagnose(run.open())
    start = "No verdict: no training step was recorded: 700 of 700 records were dropped because "
    assert verdict.headline.startswith(start + words)
    assert f"700 records dropped because {words}" in verdict.notes[0]


def test_most_of_the_dropped_records_give_the_reason(new_run: RunMaker) -> None:
    """Too few steps are not advice to run longer when most records were dropped."""
    run = new_run()
    causes = {"EFBIG": 1, "ENOSPC": 99}
    run.rank(dropped_count=100, dropped_by_cause=causes).draw(STEPS, 5)  # 15 records
    headline = diagnose(run.open()).headline
    assert "100 of 115 records were dropped because the file system" in headline


def test_a_run_without_steps_says_why(tmp_path: Path) -> None:
    def headline(name: str, draw: Callable[[RunBuilder], object] = lambda run: None) -> str:
        run = RunBuilder(tmp_path / name)
        draw(run)
        return diagnose(run.open()).headline

    refused = headline("refused", lambda run: run.rank(refusal="ENOSPC"))
    assert "could not be recorded because the file system of the spool was full" in refused

    def lose(run: RunBuilder) -> None:
        run.rank()
        run.status(JobState.COMPLETED, losses=["the spool was deleted while the job ran"])

    assert headline("lost", lose) == (
        "No verdict: no training step was recorded: the spool was deleted while the job ran."
    )

    def skip(run: RunBuilder) -> None:
        run.status(JobState.FAILED, unrecorded=["process 7 was not recorded: -I"], reason="it died")

    assert headline("unrecorded", skip) == (
        "No verdict: no training step was recorded: process 7 was not recorded: -I; it died."
    )

    def fail(run: RunBuilder) -> None:
        reason = "the job exited with status 1: ModuleNotFoundError: No module named 'x'"
        run.status(JobState.FAILED, reason=reason)

    assert headline("failed", fail) == (
        "No verdict: no training step was recorded before the job exited with status 1: "
        "ModuleNotFoundError: No module named 'x'."
    )
    now: dict[str, Any] = {"heartbeat_ns": time.time_ns(), "ended_ns": None}
    assert headline("running", lambda run: run.status(JobState.IN_PROGRESS, **now)) == (
        "No verdict: not yet: no process of the job has recorded anything so far."
    )
    nothing = headline("nothing")
    assert "no process of the job recorded anything" in nothing
    assert "imports PyTorch, TensorFlow, Keras, JAX or XGBoost" in nothing


@pytest.mark.parametrize("has_processes", [True, False])
def test_records_that_are_still_in_the_spool(new_run: RunMaker, has_processes: bool) -> None:
    run = new_run()
    if has_processes:
        run.rank()
    silent: dict[str, Any] = {"heartbeat_ns": time.time_ns() - 3600 * 10**9, "monitor_pid": 4711}
    run.status(JobState.IN_PROGRESS, ended_ns=None, **silent)
    headline = diagnose(run.open()).headline
    assert headline == (
        "No verdict: no training step is in the run: its last records are still in the spool."
    )


def test_a_further_process_that_is_not_recorded_is_a_note(new_run: RunMaker) -> None:
    run = new_run()
    run.status(JobState.COMPLETED, unrecorded=["process 7 was not recorded: -I"])
    run.rank().draw(STEPS, 200)
    verdict = diagnose(run.open())
    assert verdict.headline.startswith("Probably no bottleneck: ")
    assert "Process 7 was not recorded: -I." in verdict.notes


def test_a_verdict_begins_with_the_loss(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(dropped_count=3, dropped_by_cause={"ENOSPC": 3}).draw(STEPS, 200)
    verdict = diagnose(run.open())
    assert verdict.suspect == "healthy"
    assert verdict.headline.startswith("3 of 603 records were dropped because the file system of ")
    assert ". Probably no bottleneck: " in verdict.headline


LOADING_STEPS = "wait 60 | forward 12 | backward 20 | optimizer 8"
FETCH = "fetch ( samples ( do:decode 118 ) | collate 2 )"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run before and after its tables were rounded as far as possible."""
    path = tmp_path_factory.mktemp("rounded") / "run"
    builder = RunBuilder(path, code={"decode": "fetch > Rows.__getitem__ > decode"})
    rank = builder.rank(workers=2)
    rank.draw(LOADING_STEPS, 400, jitter=0.1)
    for worker in rank.workers:
        worker.draw(FETCH, 300, jitter=0.1)
    builder.metric("outside_cpu_cores", lambda seconds: seconds % 3)
    builder.write()
    info = path / "run.json"
    options = {**msgspec.json.decode(info.read_bytes()), "options": {"max_run_size_bytes": 2**22}}
    info.write_bytes(msgspec.json.encode(options))
    segment_tables(path, ("spans", "metrics"))
    exact = Path(shutil.copytree(path, path.with_name("exact")))
    with RunWriter(path, "n0") as writer:
        writer.limit_size(0)
    return Run(open_run(exact)), Run(open_run(path))


def figures(value: Any) -> dict[str, float]:
    """Return the numbers of a payload by their path."""
    numbers: dict[str, float] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                visit(inner, f"{path}.{name}")
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                visit(inner, f"{path}.{number}")
        elif isinstance(value, int | float):
            numbers[path] = value

    visit(msgspec.to_builtins(value), "")
    return numbers


def test_steps_and_phases_are_equal(runs: tuple[Run, Run]) -> None:
    before, after = (run.ranks[0].steps for run in runs)
    assert len(before) == len(after) == 400
    assert before.wall_ns.sum() == after.wall_ns.sum()
    assert before.fetches.tolist() == after.fetches.tolist()
    for phase, times in before.phase_ns.items():
        assert times.sum() == after.phase_ns[phase].sum()


def test_the_verdict_is_equal(runs: tuple[Run, Run]) -> None:
    before, after = map(diagnose, runs)
    assert before.headline == after.headline
    assert figures(after) == pytest.approx(figures(before), rel=1e-3)
    assert before.notes == []


@pytest.mark.parametrize("view", ["steps", "system", "timeline"])
def test_verdict_and_views_name_the_rounded_time(runs: tuple[Run, Run], view: str) -> None:
    exact, rounded = runs
    sentence = VIEWS[view](rounded, ViewOptions()).rounding
    assert sentence.startswith("Spans and samples of the first 40.")
    assert "to keep the run within 4 MiB (--max-run-size)" in sentence
    assert diagnose(rounded).notes == [sentence]
    assert VIEWS[view](exact, ViewOptions()).rounding is None


def test_cost_and_comparison_name_the_rounded_time(runs: tuple[Run, Run]) -> None:
    exact, rounded = runs
    (sentence,) = diagnose(rounded).notes
    assert report_cost(rounded).rounding == sentence
    assert report_cost(exact).rounding is None
    assert compare_runs([exact], [rounded]).notes == [f"run: {sentence}"]
    assert compare_runs([exact], [exact]).notes == []


def test_a_range_after_the_rounded_time_is_exact(runs: tuple[Run, Run]) -> None:
    _, rounded = runs
    later = ViewOptions(from_ns=3600 * 10**9, to_ns=3601 * 10**9)
    assert VIEWS["system"](rounded, later).rounding is None


CODE = {
    "next": "main > _BaseDataLoaderIter.__next__@torch/utils/data/dataloader.py > "
    "poll@python:selectors.py",
    "backward": "main > Tensor.backward@torch/_tensor.py",
    "update": "main > Optimizer.profile_hook_step.<locals>.wrapper@torch/optim/optimizer.py",
    "crop": "_worker_loop@torch/utils/data/_utils/worker.py > fetch > Rows.__getitem__ > crop",
    "idle": "_worker_loop@torch/utils/data/_utils/worker.py > Queue.get@python:queue.py",
    "inline": "main > _BaseDataLoaderIter.__next__@torch/utils/data/dataloader.py > fetch > "
    "Rows.__getitem__ > crop",
    "prices": "main > solve",
}
SECONDS = 20


def judge(
    path: Path, training: str, worker: str = "", *, gpu: float | None = None, repeats: int = SECONDS
) -> Verdict:
    """Diagnose a job of which stacks were drawn, one second at a time."""
    builder = RunBuilder(path, code=CODE, sampling_ms=100)
    rank = builder.rank(workers=1 if worker else None)
    rank.draw(training, repeats)
    for process in rank.workers:
        process.draw(worker, repeats)
    if gpu is not None:
        builder.metric("gpu_busy_ratio", gpu, device="0")
    run = builder.write()
    description = json.loads((run / "run.json").read_text())
    description["options"] = {"attached_pid": rank.info.pid}
    (run / "run.json").write_text(json.dumps(description))
    return diagnose(Run(open_run(run)))


def test_waiting_for_busy_workers_is_the_pipeline(tmp_path: Path) -> None:
    verdict = judge(
        tmp_path / "run", "do:next 700 | do:backward 200 | do:update 100", "do:crop 1000"
    )
    assert verdict.suspect == "data_pipeline"
    assert verdict.cause == "slow_augmentation"
    assert verdict.share_ratio == pytest.approx(0.7)
    assert verdict.phases == pytest.approx({"data_wait": 0.7, "backward": 0.2, "optimizer": 0.1})
    assert "1 DataLoader worker created batches in 100% of the samples" in verdict.evidence[2].text
    assert verdict.headline.startswith("Attached from outside: ")
    assert verdict.confidence_ratio <= 0.5  # no such verdict was ever checked


def test_the_cause_is_unknown_where_workers_idle(tmp_path: Path) -> None:
    verdict = judge(tmp_path / "run", "do:next 700 | do:backward 300", "do:idle 900 | do:crop 100")
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "unknown")
    assert "stepscope run -- CMD" in verdict.fixes[0].instructions


def test_batches_of_the_training_thread_itself(tmp_path: Path) -> None:
    verdict = judge(tmp_path / "run", "do:inline 600 | do:backward 400")
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "slow_augmentation")
    assert "The training thread itself created batches in 60%" in verdict.evidence[2].text


def test_waiting_that_hides_behind_busy_gpus_is_none(tmp_path: Path) -> None:
    training = "do:next 700 | do:backward 300"
    verdict = judge(tmp_path / "run", training, "do:crop 1000", gpu=0.95)
    assert verdict.suspect == "insufficient_evidence"
    assert "waited for batches in 70% of 200 stack samples" in verdict.headline
    assert "GPUs were busy for 95%" in verdict.headline
    idle = judge(tmp_path / "idle", training, "do:crop 1000", gpu=0.3)
    assert idle.suspect == "data_pipeline"
    assert "The GPUs in use had no work for 70% of the time." in idle.evidence[2].text


@pytest.mark.parametrize(
    ("training", "repeats", "obstacle"),
    [
        ("do:next 100 | do:backward 900", SECONDS, "waited for batches in 10%"),
        ("do:next 250 | do:backward 750", 12, "waited for batches in"),  # not surely above 20%
        ("do:next 900 | do:backward 100", 5, "a verdict needs 10; attach for longer"),
        ("do:prices 1000", SECONDS, "no process ran a DataLoader, a module"),
        ("", 1, "no stacks were sampled"),
    ],
)
def test_abstains_with_the_recording_that_would_tell(
    training: str, repeats: int, obstacle: str, tmp_path: Path
) -> None:
    verdict = judge(tmp_path / "run", training, repeats=repeats)
    assert verdict.suspect == "insufficient_evidence"
    assert verdict.headline.startswith("No verdict: attached from outside: ")
    assert obstacle in verdict.headline
    assert "start the job with `stepscope run -- CMD`" in verdict.headline


def test_a_window_tells_what_stacks_do_not(tmp_path: Path) -> None:
    verdict = judge(tmp_path / "run", "do:next 50 | do:backward 150 | op:aten::mm 800")
    assert verdict.evidence_kind == "traced"
    assert verdict.suspect == "healthy"
    assert verdict.share_of.endswith("in the traces")


def test_the_error_of_a_share_follows_from_seconds() -> None:
    """s / sqrt(n) for the shares 0, 1, 0, 1 of four seconds: s² = 1/3, so 1 / sqrt(12)."""
    thread = ThreadActivity(
        sample_count=40, counts={"data_wait": 20, "backward": 20}, wait_blocks=[0, 1, 0, 1]
    )
    share = estimate_wait_share([thread])
    assert share.ratio == 0.5
    assert share.standard_error == pytest.approx(12**-0.5)


# --- traces --------------------------------------------------------------------------------------


def draw_tiny_kernels(job: TraceJob, _: float) -> None:
    for _ in range(500):
        job.operator("aten::add", 15, kernel=(ELEMENTWISE, 3))
    job.wait()


def judge_below(directory: Path, job: TraceJob) -> Verdict:
    directory.mkdir()
    return judge_traces(directory, job)


def test_times_that_cannot_be_come_first(tmp_path: Path) -> None:
    """Without the times of a third of the events there is no verdict; of a few, there is one."""
    for job_name, distance, has_verdict in (("third", 3, False), ("few", 100, True)):
        job = draw_steps(draw_tiny_kernels, 1.0)
        ranges = [event for event in job.events if event["ph"] == "X"]
        for event in ranges[50::distance]:
            event["ts"] = event["dur"] = 0
        verdict = judge_below(tmp_path / job_name, job)
        count = len(ranges[50::distance])
        (doubt,) = verdict.doubts
        assert doubt.startswith(
            f"{count:,} of {len(job.events):,} events have no possible time, and are in no figure ("
        )
        assert (verdict.suspect != "insufficient_evidence") == has_verdict
        assert verdict.headline.startswith(f"No verdict: {count:,} of ") != has_verdict


LOST_TIMES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "huge": (lambda event: event.update(dur=10**18), "an impossible duration"),
    "negative": (lambda event: event.update(dur=-event["dur"]), "an impossible duration"),
    "no duration": (lambda event: event.pop("dur"), "an impossible duration"),
    "no start": (lambda event: event.update(ts=0), "no possible time"),
    "no end": (lambda event: event.update(ph="B"), "no partner"),
}


@pytest.mark.parametrize("form", list(LOST_TIMES))
def test_fetches_whose_times_were_lost_count_as_nothing_else(tmp_path: Path, form: str) -> None:
    """The steps of lost fetches are left out; if those of all are lost, the verdict abstains."""
    lose, words = LOST_TIMES[form]

    def draw(job: TraceJob, _: float) -> None:
        job.wait()
        job.fetch(20_000)
        compute(job)

    intact = judge_below(tmp_path / "intact", draw_steps(draw, 1.0))
    assert intact.doubts == []
    for name, numbers in (("some", (1, 3)), ("all", range(6))):
        job = draw_steps(draw, 1.0)
        fetches = [event for event in job.events if event["name"].startswith("enumerate(")]
        for number in numbers:
            lose(fetches[number])
        verdict = judge_below(tmp_path / name, job)
        assert words in verdict.doubts[0]
        count = f"_SingleProcessDataLoaderIter.__next__: {len(numbers)} of {len(fetches)}"
        assert f"(enumerate(DataLoader)#{count}" in verdict.doubts[0]
        assert (
            f"Left out of the shares: {len(numbers)} of 6 steps, in which a fetch of a batch has "
            "no known time." in verdict.notes
        )
        if name == "some":
            assert (verdict.suspect, verdict.step_count) == ("data_pipeline", 4)
            assert verdict.share_ratio == pytest.approx(intact.share_ratio, abs=0.01)
            assert verdict.phases == pytest.approx(intact.phases, abs=0.01)
        else:
            assert verdict.headline.startswith(
                "No verdict: in each step a fetch of a batch has no known time"
            )


def test_a_kernel_that_overflows_changes_no_verdict(tmp_path: Path) -> None:
    verdicts = []
    for name, added_us in (("intact", 0), ("too long", 1_600_000)):
        job = draw_steps(draw_tiny_kernels, 1.0)
        kernels = [event for event in job.events if event.get("cat") == "kernel"]
        for event in kernels[10 :: len(kernels) // 5]:
            event["dur"] += added_us
        verdicts.append(judge_below(tmp_path / name, job))
    intact, damaged = verdicts
    assert intact.doubts == []
    assert "last beyond the start of the next one of their stream, by up to 1.6 s" in str(
        damaged.doubts
    )
    assert (damaged.suspect, damaged.cause) == (intact.suspect, intact.cause)
    assert damaged.share_ratio == pytest.approx(intact.share_ratio, abs=0.01)


def test_a_clock_that_is_set_back_leaves_no_verdict(tmp_path: Path) -> None:
    """By 100 ms between two steps; by 30 s in a job without named steps, whose calls tell it."""
    for name, back_us, has_steps in (("steps", 100_000, True), ("calls", 30_000_000, False)):
        job = draw_steps(draw_tiny_kernels, 1.0)
        marks = [event for event in job.events if event["name"].startswith("ProfilerStep#")]
        border = marks[3]["ts"]
        for event in job.events:
            event["ts"] -= back_us if event.get("ts", 0) >= border else 0
        if not has_steps:
            job.events[:] = [event for event in job.events if event not in marks]
        verdict = judge_below(tmp_path / name, job)
        assert verdict.suspect == "insufficient_evidence"
        assert (
            "The clock was set back during the recording (setbacks: 1, by up to"
            in verdict.doubts[0]
        )
        assert ("step 3 starts before the end of step 2" in verdict.headline) == has_steps


def test_ranges_of_unknown_categories_are_named(tmp_path: Path) -> None:
    job = TraceJob()
    times = ({"ts": 100.5 * n, "dur": 80, "pid": 5, "tid": 5} for n in range(50))
    job.events[:] = [{"ph": "X", "cat": "FEE", "name": "f (t.py:1)"} | time for time in times]
    verdict = judge_traces(tmp_path, job)
    assert "ranges of other categories: FEE (50 events); `stepscope show" in verdict.headline
    for event in job.events:
        event["pid"] = "/host:CPU"
    verdict = judge_below(tmp_path / "xla", job)
    assert "draws them; the file *.xplane.pb next to it tells more" in verdict.headline


def test_a_cycle_of_the_profiler_after_the_last_iteration(tmp_path: Path) -> None:
    """As a schedule of wait=1, warmup=1, active=2 writes after ten iterations."""
    job = TraceJob()
    with job.step():
        job.python(30)
    verdict = judge_traces(tmp_path, job)
    assert "the only step of the trace is empty: the profiler's cycle began" in verdict.headline


def test_notes_of_processes_are_written_once(new_run: RunMaker) -> None:
    """Processes of several nodes may have one number."""
    run = new_run()
    for rank, node in enumerate(["algo-1", "algo-2"]):
        run.rank(rank, node=node)
    opened = run.open()
    for process in opened.processes:
        process.notes.append("It is so.")
    pids = [process.pid for process in opened.processes]
    assert build_verdict._list_process_notes(opened) == [
        f"Processes {pids[0]} on algo-1, {pids[1]} on algo-2: It is so."
    ]


def test_the_time_between_steps_is_named(tmp_path: Path) -> None:
    """Of 5 validations of 60 ms between 6 steps of 40 ms; a step in a longer range is no other."""
    job = TraceJob()
    with job.range("epoch 1"):
        for number in range(6):
            with job.step():
                job.fetch(20_000)
                compute(job, 20_000)
                job.wait()
            if number < 5:
                with job.range(f"validation step {number}"):
                    compute(job, 59_000)
                    job.wait()
    verdict = judge_traces(tmp_path, job)
    assert (verdict.suspect, verdict.step_count) == ("data_pipeline", 6)
    (note,) = (note for note in verdict.notes if note.startswith("The time between the steps, "))
    validations = [event for event in job.events if event["name"].startswith("validation")]
    steps = [event for event in job.events if event["name"].startswith("ProfilerStep#")]
    between_us = sum(event["dur"] for event in validations)
    share = between_us / (between_us + sum(event["dur"] for event in steps))
    assert f"is in no share; it is {percent(share)} of the time from the first step" in note
    assert note.endswith(f" “validation step *” takes {duration(round(between_us) * 1000)} of it.")
