"""Schedules of windows that are added to a running job, and their starts."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from stepscope.errors import UsageError
from stepscope.monitor.windows.censuses import CensusRequests
from stepscope.monitor.windows.imports import WindowImports
from stepscope.monitor.windows.planner import Planner, TrainingProcess
from stepscope.monitor.windows.requests import RequestHandler
from stepscope.monitor.windows.schedules import Schedules
from stepscope.schema import WindowSchedule
from stepscope.spool import SpoolTree, read_schedules
from stepscope.spool.page import Heartbeat
from stepscope.store import WindowRequests
from tests.unit.monitor.test_window_planner import make_process as make_training_process

pytestmark = pytest.mark.seed("DBP-10")
MS = 1_000_000
STEP_NS = 10 * MS


def make_process(tmp_path: Path, steps: int) -> TrainingProcess:
    process, _ = make_training_process(tmp_path, steps=steps, step_ns=STEP_NS, rank=0, world_size=1)
    process.is_warm = True
    return process


def make_schedules(tmp_path: Path, *schedules: WindowSchedule, age_s: float = 100.0) -> Schedules:
    """Make the schedules of a job that runs for some seconds."""
    run, planner = str(tmp_path / "run"), Planner(None)
    imports = WindowImports(run, "n", job_cores=tuple, keep_raw=False)
    return Schedules(
        schedules,
        spool=str(tmp_path),
        planner=planner,
        requests=RequestHandler(
            WindowRequests(run),
            "n",
            planner,
            imports,
            CensusRequests(SpoolTree(str(tmp_path), 1 << 20), "a"),
        ),
        started_ns=time.monotonic_ns() - round(1e9 * age_s),
    )


def test_windows_are_added_far_enough_ahead_of_the_job(tmp_path: Path) -> None:
    process = make_process(tmp_path, steps=1000)
    initial = WindowSchedule(first_step=5, step_count=2, interval=1000)
    schedules = make_schedules(tmp_path, initial)
    added = WindowSchedule(first_step=0, step_count=3, interval=50)
    unchanged, admitted = schedules.admit([initial, added], [process])
    assert unchanged == initial
    lead = Planner(None).lead_ns([process]) / STEP_NS
    assert 1000 + lead <= admitted.min_start <= 1000 + lead + 20  # rounded up to a multiple of ten
    schedules.replace([unchanged, admitted], change=4)
    assert process.plan_count == 0
    schedules.announce([process])
    _, follower = read_schedules(str(tmp_path))
    first = follower.next_start(0)
    assert first is not None
    assert first == math.ceil(admitted.min_start / 50) * 50
    heartbeat = Heartbeat.open(str(process.directory))
    assert heartbeat is not None
    assert heartbeat.issued == (4, 0)


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (
            WindowSchedule(first_step=999, step_count=2),
            "the window after 999 steps is in the past: the job is in step 1000, and windows can "
            "be added from step ",
        ),
        (
            WindowSchedule(first_step=0, step_count=2, interval=300, repeat_count=4),
            "the window after 0 steps is in the past",
        ),
        (
            WindowSchedule(start_s=60.0, duration_s=2.0),
            "the window 60 s after the start of the job is in the past: the job has run for 100 s",
        ),
        (
            WindowSchedule(start_s=0.0, duration_s=2.0, interval=20.0, repeat_count=6),
            "the window 0 s after the start of the job is in the past",
        ),
    ],
)
def test_windows_of_the_past_are_refused(
    tmp_path: Path, schedule: WindowSchedule, sentence: str
) -> None:
    schedules = make_schedules(tmp_path)
    with pytest.raises(UsageError) as error:
        schedules.admit([schedule], [make_process(tmp_path, steps=1000)])
    assert str(error.value).startswith(sentence)
    assert schedules.current == []


def test_an_earlier_window_is_not_kept_busy_by_a_later_one(tmp_path: Path) -> None:
    """Only the next window of all schedules is assigned in advance."""

    class Served(Planner):
        def is_served_by_libkineto(self, process: TrainingProcess) -> bool:
            return True

    process = make_process(tmp_path, steps=95)
    run, planner = str(tmp_path / "run"), Served(None)
    imports = WindowImports(run, "n", job_cores=tuple, keep_raw=False)
    schedules = Schedules(
        [
            WindowSchedule(first_step=200, step_count=5),
            WindowSchedule(first_step=95 + 300, step_count=5),
        ],
        spool=str(tmp_path),
        planner=planner,
        requests=RequestHandler(
            WindowRequests(run),
            "n",
            planner,
            imports,
            CensusRequests(SpoolTree(str(tmp_path), 1 << 20), "a"),
        ),
        started_ns=time.monotonic_ns(),
    )
    schedules.open([process], time.monotonic_ns())
    assert list(process.plans()) == []  # too late for the first, too early for the second
    assert schedules.until_ns == (200 - 95) * STEP_NS


def test_the_windows_of_two_schedules_in_time_are_counted_apart(tmp_path: Path) -> None:
    process = make_process(tmp_path, steps=1000)
    schedules = make_schedules(
        tmp_path,
        WindowSchedule(start_s=99.0, duration_s=1.0, interval=500.0),
        WindowSchedule(start_s=0.0, duration_s=1.0, interval=30.0, min_start=101.0),
    )
    now_ns = time.monotonic_ns() + 10 * 1_000_000_000
    schedules.open([process], now_ns)
    (plan,) = process.plans()
    assert plan.request == "scheduled-99.0-1"
    # A monitor that takes over does not plan it again.
    successor = make_schedules(tmp_path, *schedules.current)
    successor.open([process], now_ns)
    assert len(list(process.plans())) == 1
    # The next windows: 599 s after the start, and the first multiple of 30 s after 101 s.
    assert successor.until_ns == pytest.approx(1e9 * (120 - 110), abs=1e9)
