"""Start of windows, and their configuration for libkineto."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stepscope.monitor.windows.censuses import CensusRequests
from stepscope.monitor.windows.imports import WindowImports
from stepscope.monitor.windows.planner import (
    NODE_AGREEMENT_S,
    Planner,
    TrainingProcess,
    WindowSpec,
    WindowStart,
    close_unfinished_windows,
    find_finished_windows,
    make_configuration,
    make_timed_configuration,
)
from stepscope.monitor.windows.requests import RequestHandler
from stepscope.spool import Journal, ScheduledWindows, SpoolTree
from stepscope.spool.page import BOUNDARY_WORD, STEPS_WORD, Heartbeat, WindowState
from stepscope.spool.plan import Recorder, WindowPlan
from stepscope.store.documents import RequestState, WindowRequest, WindowRequests

MS = 1_000_000
SPEC = WindowSpec(reason="requested", step_count=1)


def make_process(
    tmp_path: Path,
    *,
    steps: int,
    step_ns: float | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> tuple[TrainingProcess, Heartbeat]:
    """Create a process that has trained some steps, and its heartbeat."""
    name, directory = SpoolTree(str(tmp_path), 1 << 20).make_process_directory()
    Journal(f"{directory}/journal.jsonl").write("process", rank=rank, world_size=world_size)
    heartbeat = Heartbeat.create(directory)
    heartbeat.words[STEPS_WORD] = steps
    opened = Heartbeat.open(directory)
    assert opened is not None
    process = TrainingProcess(name, Path(directory), opened, time.monotonic_ns())
    process.step_ns = step_ns
    return process, heartbeat


def test_all_processes_start_at_one_rounded_step_far_enough_ahead(tmp_path: Path) -> None:
    processes = [
        make_process(tmp_path, steps=steps, step_ns=10 * MS, rank=rank)[0]
        for rank, steps in enumerate((101, 103))
    ]
    planner = Planner(None)
    start = planner.find_start(processes)
    assert start.first_step is not None
    assert start.first_step % 10 == 0
    assert start.first_step >= 103 + planner.lead_ns(processes) / (10 * MS)
    planner.assign(WindowSpec(reason="requested", step_count=5), processes, start)
    first_steps = {plan.first_step for process in processes for plan in process.plans()}
    assert first_steps == {start.first_step}


def test_other_nodes_have_time_to_read_the_start(tmp_path: Path) -> None:
    def lead(ranks: int, world_size: int) -> int:
        processes = [
            make_process(tmp_path, steps=9, rank=rank, world_size=world_size)[0]
            for rank in range(ranks)
        ]
        return Planner(None).lead_ns(processes)

    assert lead(2, 2) == lead(1, 1)
    assert lead(2, 4) == lead(2, 2) + round(1e9 * NODE_AGREEMENT_S)


def test_all_nodes_use_the_start_of_the_first_one(tmp_path: Path) -> None:
    def node(name: str) -> RequestHandler:
        imports = WindowImports(str(tmp_path), name, job_cores=list, keep_raw=False)
        return RequestHandler(
            WindowRequests(str(tmp_path)),
            name,
            Planner(None),
            imports,
            CensusRequests(SpoolTree(str(tmp_path), 1 << 20), "a"),
        )

    first, second = node("a"), node("b")
    assert first.agree("scheduled-1", WindowStart(first_step=40)).first_step == 40
    assert second.agree("scheduled-1", WindowStart(first_step=50)).first_step == 40
    assert second.agree("scheduled-2", WindowStart(first_step=90)).first_step == 90
    start_ns = time.monotonic_ns() + 5_000 * MS
    agreed = first.agree("scheduled-3", WindowStart(first_step=None, start_ns=start_ns))
    assert abs(agreed.start_ns - start_ns) < 100 * MS  # converted from and to epoch time


def test_a_job_that_has_just_been_found_does_not_seem_fast(tmp_path: Path) -> None:
    process, heartbeat = make_process(tmp_path, steps=1)
    requests = WindowRequests(str(tmp_path))
    imports = WindowImports(str(tmp_path), "a")
    handler = RequestHandler(
        requests,
        "a",
        Planner(None),
        imports,
        CensusRequests(SpoolTree(str(tmp_path), 1 << 20), "a"),
    )
    requests.send(WindowRequest(name="r", asked_ns=time.time_ns(), step_count=5))
    handler.tick([process], process.found_ns + MS)
    status = requests.read_status("r", "a")
    assert status is not None
    assert status.state is RequestState.WAITING
    assert not list(process.plans())
    heartbeat.words[BOUNDARY_WORD] = 1000 * MS
    process.observe()
    heartbeat.words[STEPS_WORD], heartbeat.words[BOUNDARY_WORD] = 11, 2000 * MS
    process.observe()
    handler.tick([process], process.found_ns + 1000 * MS)
    (plan,) = process.plans()
    assert plan.first_step == 40  # 11, one more, and 2.5 s at 100 ms, rounded up


def test_a_job_without_an_observation_takes_long_steps(tmp_path: Path) -> None:
    process, heartbeat = make_process(tmp_path, steps=500)
    assert process.estimate_step_ns(process.found_ns + 1000 * MS) is None
    assert process.estimate_step_ns(process.found_ns + 3000 * MS) == 3000 * MS
    heartbeat.words[STEPS_WORD] = 501
    assert process.estimate_step_ns(process.found_ns + 3000 * MS) == 1500 * MS


def test_the_first_step_of_a_window(tmp_path: Path) -> None:
    """Long steps are not rounded; a minimum is used if it is far enough ahead; a job without steps
    has a time."""
    planner = Planner(None)
    slow = [make_process(tmp_path, steps=7, step_ns=10_000 * MS)[0]]
    assert planner.find_start(slow).first_step == 9
    fast = [make_process(tmp_path, steps=10, step_ns=10 * MS)[0]]
    assert planner.find_start(fast, min_step=1234).first_step == 1234
    assert (planner.find_start(fast, min_step=11).first_step or 0) > 11
    start = planner.find_start([make_process(tmp_path, steps=0)[0]])
    assert start.first_step is None
    assert start.start_ns > time.monotonic_ns()


def test_seconds_are_converted_to_steps(tmp_path: Path) -> None:
    process, _ = make_process(tmp_path, steps=10, step_ns=300 * MS)
    spec = WindowSpec(reason="requested", duration_ns=1000 * MS)
    Planner(None).assign(spec, [process], WindowStart(first_step=20))
    (plan,) = process.plans()
    assert plan.steps == 4
    assert plan.longest_ns == 30_000 * MS  # an evaluation may occur between its steps
    assert plan.recorder == Recorder.PROFILER


def test_a_process_is_busy_from_plan_to_end(tmp_path: Path) -> None:
    process, heartbeat = make_process(tmp_path, steps=10)
    assert not process.is_busy
    Planner(None).assign(SPEC, [process], WindowStart(first_step=20))
    assert process.is_busy
    for state, is_busy in ((WindowState.RECORDING, True), (WindowState.OVER, False)):
        heartbeat.window = 0, state
        assert process.is_busy is is_busy
    again = TrainingProcess(process.name, process.directory, heartbeat, 0)
    assert again.plan_count == 1
    opens_itself, heartbeat = make_process(tmp_path, steps=10)
    for state, is_busy in ((WindowState.RECORDING, True), (WindowState.OVER, False)):
        heartbeat.window = 0, state
        assert (opens_itself.plan_count, opens_itself.is_busy) == (1, is_busy)


def test_step_times_exclude_windows(tmp_path: Path) -> None:
    process, heartbeat = make_process(tmp_path, steps=10)
    heartbeat.words[BOUNDARY_WORD] = 1000 * MS
    assert not process.observe()
    heartbeat.words[STEPS_WORD], heartbeat.words[BOUNDARY_WORD] = 20, 2000 * MS
    assert process.observe()
    assert process.step_ns == 100 * MS
    Planner(None).assign(SPEC, [process], WindowStart(first_step=20))
    heartbeat.window = 0, WindowState.RECORDING
    heartbeat.words[STEPS_WORD], heartbeat.words[BOUNDARY_WORD] = 21, 9000 * MS
    assert not process.observe()
    heartbeat.window = 0, WindowState.OVER
    assert not process.observe()
    assert process.step_ns == 100 * MS


@pytest.mark.parametrize(
    ("depth", "options", "keys"),
    [
        ("full", (), set()),
        ("light", (), {"ACTIVITY_TYPES"}),
        ("full", ("shapes",), {"PROFILE_REPORT_INPUT_SHAPES"}),
        ("full", ("flops",), {"PROFILE_REPORT_INPUT_SHAPES", "PROFILE_WITH_FLOPS"}),
        ("full", ("modules",), {"PROFILE_WITH_STACK", "PROFILE_WITH_MODULES"}),
    ],
)
def test_configuration_of_libkineto(depth: str, options: tuple[str, ...], keys: set[str]) -> None:
    plan = WindowPlan(
        number=2, reason="a", recorder="libkineto", depth=depth, options=options, steps=9
    )
    lines = dict(line.split("=", 1) for line in make_configuration(plan, "/s/p").splitlines())
    assert lines.pop("ACTIVITIES_LOG_FILE") == "/s/p/window-2.json"
    common = {"PROFILE_START_ITERATION", "ACTIVITIES_WARMUP_ITERATIONS", "ACTIVITIES_ITERATIONS"}
    assert lines.keys() == common | keys
    assert not {"cpu_op", "user_annotation"} & set(lines.get("ACTIVITY_TYPES", "").split(","))


def test_a_damaged_plan_is_ignored(tmp_path: Path) -> None:
    assert WindowPlan.read(str(tmp_path), 0) is None
    (tmp_path / "plan-0.json").write_text('{"number": 0}')
    assert WindowPlan.read(str(tmp_path), 0) is None


def test_windows_of_a_dead_process(tmp_path: Path) -> None:
    pid = os.getpid()
    (tmp_path / f"window-0_{pid}.json").write_text("{}")
    (tmp_path / f"window-1_{pid}.json.tmp").write_text("{half")
    (tmp_path / f"window-2_{pid}.json.tmp").touch()
    assert close_unfinished_windows(tmp_path) == [2]
    assert [number for number, _ in find_finished_windows(tmp_path)] == [0, 1]
    assert list(find_finished_windows(tmp_path / "absent")) == []


def test_a_plan_takes_the_next_number_if_the_process_has_taken_one(tmp_path: Path) -> None:
    process, _ = make_process(tmp_path, steps=10)
    windows = ScheduledWindows(first_step=12, step_count=3)
    windows.plan(0, 12, Recorder.PROFILER, None).write(str(process.directory))
    (assigned,) = Planner(None).assign(SPEC, [process], WindowStart(first_step=20))
    assert assigned == (process, 1)
    assert process.plan_count == 2
    first = WindowPlan.read(str(process.directory), 0)
    assert first is not None
    assert first.reason == "scheduled"


def test_plans_and_schedules_are_announced_apart(tmp_path: Path) -> None:
    process, heartbeat = make_process(tmp_path, steps=10)
    process.announce_schedules(3)
    Planner(None).assign(SPEC, [process], WindowStart(first_step=20))
    assert heartbeat.issued == (3, 1)
    process.announce_schedules(4)
    assert heartbeat.issued == (4, 1)
    # A monitor that takes over announces the same number once only, and keeps the plans.
    successor = TrainingProcess(process.name, process.directory, heartbeat, 0)
    successor.announce_schedules(4)
    assert (successor.plan_count, heartbeat.issued) == (1, (4, 1))


def test_step_times_of_the_first_steps_are_not_trusted(tmp_path: Path) -> None:
    process, heartbeat = make_process(tmp_path, steps=0)
    process.observe()
    for steps, is_warm in ((1, False), (8, False), (9, True)):
        heartbeat.words[STEPS_WORD] = steps
        heartbeat.words[BOUNDARY_WORD] += 1000 * MS
        process.observe()
        assert process.is_warm is is_warm


def test_a_window_from_outside_starts_after_three_polls_and_ends_by_time(tmp_path: Path) -> None:
    """Nothing in the process counts steps: libkineto is told when to start and for how long."""
    process, _ = make_process(tmp_path, steps=0)
    planner = Planner(None, by_duration=True)
    now_ns = time.monotonic_ns()
    start = planner.find_start([process])
    assert start.first_step is None
    assert start.start_ns >= now_ns + 3 * 5_000 * MS  # libkineto polls every five seconds
    spec = WindowSpec(reason="requested", duration_ns=1500 * MS)
    planner.assign(spec, [process], start)
    (plan,) = process.plans()
    assert plan.recorder == Recorder.LIBKINETO
    lines = make_timed_configuration(plan, "/spool").splitlines()
    keys = dict(line.split("=", 1) for line in lines)
    ahead_ns = int(keys["PROFILE_START_TIME"]) * MS - time.time_ns()
    assert abs(ahead_ns - (plan.start_ns - time.monotonic_ns())) < 1000 * MS
    assert keys["ACTIVITIES_DURATION_MSECS"] == "1500"
    assert not [key for key in keys if "ITERATION" in key]
