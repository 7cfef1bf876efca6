"""Jobs: states, durations, epochs, incarnations, changes, and recordings of a part."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from stepscope.cli.writers.live import pace_text
from stepscope.cost import PriceRequest, report_cost
from stepscope.diagnosis import diagnose
from stepscope.run import (
    Run,
    describe_changes,
    describe_schedule,
    explain_incarnations,
    explain_lost_node,
    explain_recording_end,
    find_recording_end,
    has_ended,
    job_state,
    job_statistics,
    node_state,
)
from stepscope.run.job.times import (
    NO_EPOCH,
    NO_LOADER,
    NO_STEPS,
    RESTARTED_LOADER,
    Epochs,
    find_epochs,
)
from stepscope.schema import JobConfiguration, JobState, JobStatus, RuleSelection, WindowSchedule
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS, DrawnProcess
from stepscope.views.job.jobs import make_job_row
from stepscope.views.job.overview import show_overview
from stepscope.watch import measure_pace
from tests.support.command import run_command

RUNNING, COMPLETED, FAILED = JobState.IN_PROGRESS, JobState.COMPLETED, JobState.FAILED
UNKNOWN, STOPPING = JobState.UNKNOWN, JobState.STOPPING


class Launcher(NamedTuple):
    """State of one launcher, and the age of its heartbeat."""

    state: JobState
    age_s: float = 0
    incarnation: int = 1

    def status(self) -> JobStatus:
        """Return its status as of now."""
        heartbeat_ns = time.time_ns() - round(1e9 * self.age_s)
        return JobStatus(
            state=self.state, heartbeat_ns=heartbeat_ns, started_ns=1, incarnation=self.incarnation
        )


@pytest.mark.parametrize(
    ("launchers", "expected"),
    [
        ([], None),
        ([Launcher(RUNNING), Launcher(COMPLETED)], RUNNING),
        ([Launcher(COMPLETED), Launcher(COMPLETED)], COMPLETED),
        ([Launcher(COMPLETED), Launcher(FAILED)], FAILED),
        # A host that was killed.
        ([Launcher(COMPLETED), Launcher(RUNNING, 60)], UNKNOWN),
        ([Launcher(FAILED), Launcher(RUNNING, 60)], FAILED),
        ([Launcher(RUNNING), Launcher(RUNNING, 60)], RUNNING),
        ([Launcher(STOPPING, 60), Launcher(JobState.STOPPED)], JobState.STOPPED),
        # Of a job that has no other node, a restart of the monitor may still tell.
        ([Launcher(RUNNING, 60)], RUNNING),
        ([Launcher(RUNNING, 60), Launcher(RUNNING, 90)], RUNNING),
        # The latest start counts.
        ([Launcher(FAILED), Launcher(COMPLETED, incarnation=2)], COMPLETED),
        ([Launcher(RUNNING, 60), Launcher(COMPLETED, incarnation=2)], COMPLETED),
        ([Launcher(COMPLETED), Launcher(RUNNING, 60, incarnation=2)], RUNNING),
    ],
)
def test_the_state_of_a_job(launchers: list[Launcher], expected: JobState | None) -> None:
    statuses = [launcher.status() for launcher in launchers]
    assert job_state(statuses) is expected
    assert has_ended(statuses) == (expected is None or expected.is_final)


def test_the_state_of_a_lost_node() -> None:
    lost, ended = Launcher(RUNNING, 3600).status(), Launcher(COMPLETED).status()
    assert node_state(lost, [lost, ended]) is UNKNOWN
    assert explain_lost_node(lost, [lost, ended]) == (
        "its monitor has sent no heartbeat for 1 h: the host, or stepscope on it, was killed or is "
        "cut off"
    )
    assert node_state(ended, [lost, ended]) is COMPLETED
    assert explain_lost_node(ended, [lost, ended]) is None
    # The only node keeps its state; readers say separately that its monitor is silent.
    assert node_state(lost, [lost]) is RUNNING


S = 1_000_000_000
HOUR_NS = 3600 * S
SET_BACK = {"started_ns": EPOCH_NS, "heartbeat_ns": EPOCH_NS + 5 * S - HOUR_NS}


def draw_steps(path: Path) -> RunBuilder:
    """Draw 20 steps of 100 ms."""
    builder = RunBuilder(path)
    builder.rank(0).draw("forward 50 | backward 40 | optimizer 10", 20)
    return builder


def test_elapsed_time_counts_and_not_the_wall_clock(tmp_path: Path) -> None:
    for state in (JobState.IN_PROGRESS, JobState.COMPLETED):
        run = draw_steps(tmp_path / state).status(state, elapsed_ns=5 * S, **SET_BACK).open()
        (node,) = show_overview(run).nodes
        assert node.duration_ns == 5 * S
        assert job_statistics(run).duration_ns == 5 * S
        assert make_job_row(run.reader, "x").duration_ns == 5 * S


def test_an_earlier_version_stored_an_end_before_the_start(tmp_path: Path) -> None:
    """The last record is the end then; the duration on the node is unknown, not negative."""
    fields = SET_BACK | {"ended_ns": EPOCH_NS + 5 * S - HOUR_NS}
    path = draw_steps(tmp_path / "run").status(JobState.COMPLETED, **fields).write()
    run = Run(open_run(path))
    assert job_statistics(run).duration_ns == run.clock.end_ns - EPOCH_NS == 2 * S
    cost = report_cost(run, PriceRequest(usd_per_hour="3600"))
    assert cost.job_usd == pytest.approx(2)
    row = make_job_row(run.reader, "x")
    assert (row.duration_ns, row.cost_usd) == (None, None)
    text = run_command(tmp_path, "show", str(path), "overview").stdout
    assert "n0  Completed  n/a" in text
    assert "-" not in text.splitlines()[2]


def test_a_status_without_an_end() -> None:
    status = JobStatus(state=JobState.IN_PROGRESS, started_ns=EPOCH_NS, heartbeat_ns=EPOCH_NS + S)
    assert (status.duration_ns, status.end_ns) == (S, EPOCH_NS + S)


LIMIT_S = 4


def draw(path: Path, *, limit_s: float | None, job_s: float = 10) -> Run:
    """A job with steps of 100 ms for four seconds, on a node that may have a limit."""
    builder = RunBuilder(path)
    builder.rank().draw("wait 20 | forward 40 | backward 30 | optimizer 10", 40)
    end_ns = EPOCH_NS + round(job_s * S)
    builder.status(JobState.COMPLETED, started_ns=EPOCH_NS, ended_ns=end_ns, heartbeat_ns=end_ns)
    builder.write()
    (info,) = open_run(path).nodes().values()
    recording_end_ns = None if limit_s is None else EPOCH_NS + round(limit_s * S)
    info = msgspec.structs.replace(info, recording_end_ns=recording_end_ns)
    RunWriter(path, info.node).put_node(info)
    document = msgspec.json.decode((path / "run.json").read_bytes())
    document["options"]["cpu_profiling_duration_s"] = limit_s
    (path / "run.json").write_bytes(msgspec.json.encode(document))
    return Run(open_run(path))


def test_the_rest_of_the_job_is_neither_training_nor_finalization(tmp_path: Path) -> None:
    run = draw(tmp_path / "limited", limit_s=LIMIT_S)
    assert find_recording_end(run) == EPOCH_NS + LIMIT_S * S
    job = job_statistics(run)
    assert (job.initialization_ns, job.duration_ns) == (0, 10 * S)
    assert (job.training_ns, job.finalization_ns) == (None, None)
    assert report_cost(run).step_ns == diagnose(run).mean_step_ns
    unlimited = job_statistics(draw(tmp_path / "whole", limit_s=None))
    assert unlimited.training_ns is not None
    assert unlimited.finalization_ns == 10 * S - unlimited.training_ns


@pytest.mark.parametrize("limit_s", [None, 10, 11])
def test_a_limit_that_the_job_does_not_reach_changes_nothing(
    tmp_path: Path, limit_s: float | None
) -> None:
    run = draw(tmp_path / "run", limit_s=limit_s)
    assert find_recording_end(run) is None
    assert explain_recording_end(run) is None
    assert job_statistics(run).finalization_ns is not None
    assert not any("cpu-profiling-duration" in note for note in diagnose(run).notes)


def test_only_ranges_beyond_the_limit_are_incomplete(tmp_path: Path) -> None:
    run = draw(tmp_path / "run", limit_s=LIMIT_S)
    sentence = explain_recording_end(run)
    assert sentence is not None
    assert "only for the first 4 s of the job" in sentence
    assert explain_recording_end(run.within(0, LIMIT_S * S)) is None
    assert explain_recording_end(run.within(3 * S, LIMIT_S * S + 1)) == sentence
    assert explain_recording_end(run.within(6 * S, 7 * S)) == sentence


def test_a_running_job_shows_no_speed_after_the_limit(tmp_path: Path) -> None:
    unlimited = measure_pace(draw(tmp_path / "whole", limit_s=None))
    assert "40 steps" not in pace_text(unlimited)
    assert unlimited.steps_per_s == pytest.approx(10)
    limited = measure_pace(draw(tmp_path / "limited", limit_s=LIMIT_S))
    assert limited.steps_per_s is None
    assert pace_text(limited).startswith(f"recording ended at step {unlimited.step_count}")


SHORT_STEP = "forward 10 | backward 10 | optimizer 5"
STEPS = 40
FIGURES = "figures are of incarnation 2, with 40 steps, without those of others (1: 40 steps)."


@pytest.mark.parametrize(
    ("pause_steps", "world_size", "node", "is_restart"),
    [
        (0, 2, "b", False),
        (STEPS // 2 - 1, 2, "b", False),
        (STEPS // 2, 2, "b", True),  # clocks differ by less than that
        (STEPS + 1, 2, "b", True),
        (0, 2, "a", True),  # of one node the monitor knows whether both ran
        (0, 3, "b", True),
    ],
)
def test_a_rank_that_runs_on_two_nodes_is_not_called_a_restart(
    tmp_path: Path, pause_steps: int, world_size: int, node: str, is_restart: bool
) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0, node="a", world_size=2).draw(SHORT_STEP, STEPS)
    later = run.rank(0, node=node, world_size=world_size, incarnation=2)
    later.pause(25 * pause_steps).draw(SHORT_STEP, STEPS)
    expected = f"The job was restarted: {FIGURES}"
    if not is_restart:
        expected = (
            "Rank 0 ran at the same time on a (process 1000) and b (process 1100), which counts as "
            f"a restart: {FIGURES} Give each process a rank of its own."
        )
    assert explain_incarnations(run.open()) == expected


LOADED_STEP = "wait 10 | forward 30 | backward 40 | optimizer 20"


def training(path: Path, workers: int | None = 0) -> tuple[RunBuilder, DrawnProcess]:
    run = RunBuilder(path)
    return run, run.rank(workers=workers)


def epoch(process: DrawnProcess, steps: int = 9) -> None:
    """Draw an epoch: 0.1 s to start, 0.1 s per step, and nothing to find its end."""
    process.draw("start 100").draw(LOADED_STEP, steps).draw("exhausted 0")


@pytest.mark.parametrize(
    ("between", "last", "expected"),
    [
        ("", "", {"count": 3, "mean_ns": S}),
        # After the last pass nothing says where its epoch would end but its loader.
        ("save 500", "", {"count": 3, "mean_ns": (2 * 1.5 + 1) * S / 3}),
        # A pass that the record cuts off does not count.
        ("", f"start 100 | {LOADED_STEP} | {LOADED_STEP}", {"count": 3, "mean_ns": S}),
    ],
)
def test_passes_and_their_steps(
    tmp_path: Path, between: str, last: str, expected: dict[str, float]
) -> None:
    run, process = training(tmp_path / "run")
    for _ in range(3):
        epoch(process)
        process.draw(between)
    process.draw(last)
    assert find_epochs(run.open()) == Epochs(**expected, steps=9)


def test_the_loader_of_an_evaluation_does_not_count(tmp_path: Path) -> None:
    """It is of the same dataset class, so its start bears the same name; its batches do not."""
    run, process = training(tmp_path / "run")
    process.fact("dataloader", name="Rows#1", dataset="job.Rows", batch_size=64, num_workers=0)
    for _ in range(3):
        epoch(process)
        process.draw("start:Rows 100").draw("wait:Rows#1 50 | predict 50", 4)
        process.draw("exhausted:Rows#1 0")
    epochs = find_epochs(run.open())
    assert isinstance(epochs, Epochs)
    assert (epochs.count, epochs.steps) == (3, 9)


@pytest.mark.parametrize(
    ("workers", "drawn", "why"),
    [
        (0, ["annotation 1000"], NO_STEPS),
        (0, ["start 100", *[LOADED_STEP] * 9], NO_EPOCH),
        (0, ["start 10", LOADED_STEP] * 9, RESTARTED_LOADER),
        (None, ["forward 30 | backward 40 | optimizer 20"] * 9, NO_LOADER),
    ],
)
def test_why_epochs_are_not_known(
    tmp_path: Path, workers: int | None, drawn: list[str], why: str
) -> None:
    run, process = training(tmp_path / "run", workers=workers)
    for text in drawn:
        process.draw(text)
    assert find_epochs(run.open()) == why


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"first_step": 7, "step_count": 1}, "step 7"),
        (
            {"first_step": 27, "step_count": 10, "interval": 17, "repeat_count": 3}
            | {"warmup_count": 2},
            "steps 27 to 36 every 17 steps 3 times after 2 warm-up steps",
        ),
        ({"start_s": 60.0, "duration_s": 0.5}, "500 ms from 60 s after the start"),
        (
            {"start_s": 1.5, "duration_s": 2, "interval": 30, "options": ["stacks", "shapes"]},
            "2 s from 1.5 s after the start every 30 s with shapes and stacks",
        ),
        ({"first_step": 0, "step_count": 2, "depth": "light"}, "steps 0 to 1 without operators"),
    ],
)
def test_schedules(fields: dict[str, Any], text: str) -> None:
    assert describe_schedule(WindowSchedule(**fields)) == text


@pytest.mark.seed("DBP-10")
def test_changes_are_listed_setting_by_setting() -> None:
    window = WindowSchedule(first_step=7, step_count=1)
    before = JobConfiguration(
        interval_ms=500,
        window="auto",
        schedules=[window],
        rules=RuleSelection(assignments=["A.x=1", "A.y=2"]),
    )
    after = JobConfiguration(
        interval_ms=1000,
        window="asked",
        schedules=[],
        rules=RuleSelection(without=["B"], assignments=["A.x=3"]),
    )
    assert [(c.setting, c.before, c.after) for c in describe_changes(before, after)] == [
        ("sampling interval", "500 ms", "1 s"),
        ("automatic windows", "on", "off"),
        ("scheduled window", "step 7", "none"),
        ("rules", "all", "all but B"),
        ("A.x", "1", "3"),
        ("A.y", "2", "default"),
    ]
    assert list(describe_changes(before, before)) == []
