"""Where a window begins, and what libkineto is told of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stepscope.monitor.windows.answers import Requests
from stepscope.monitor.windows.imports import WindowImports
from stepscope.monitor.windows.planner import (
    OTHER_NODES_S,
    Beginning,
    Planner,
    Wish,
    configuration,
)
from stepscope.monitor.windows.training_processes import (
    Trainee,
    finished_windows,
    settle_unfinished,
)
from stepscope.spool import Journal, SpoolTree
from stepscope.spool.heartbeat import BOUNDARY_WORD, STEPS_WORD, Heartbeat, WindowState
from stepscope.spool.plan import Recorder, WindowPlan
from stepscope.store.window_requests import AnswerState, RequestBoard, WindowRequest

MS = 1_000_000


def trainee(
    tmp_path: Path,
    *,
    steps: int,
    step_ns: float | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> tuple[Trainee, Heartbeat]:
    """A process of the test's own that has trained so far."""
    name, directory = SpoolTree(str(tmp_path), 1 << 20).make_process_directory()
    Journal(f"{directory}/journal.jsonl").write("process", rank=rank, world_size=world_size)
    pulse = Heartbeat.create(directory)
    pulse.words[STEPS_WORD] = steps
    opened = Heartbeat.open(directory)
    assert opened is not None
    made = Trainee(name, Path(directory), opened, time.monotonic_ns())
    made.step_ns = step_ns
    return made, pulse


def test_all_begin_at_one_rounded_step_far_enough_ahead(tmp_path: Path) -> None:
    group = [
        trainee(tmp_path, steps=steps, step_ns=10 * MS, rank=rank)[0]
        for rank, steps in enumerate((101, 103))
    ]
    planner = Planner(None)
    beginning = planner.beginning(group)
    assert beginning.first_step is not None
    assert beginning.first_step % 10 == 0
    assert beginning.first_step >= 103 + planner.lead_ns(group) / (10 * MS)
    planner.give(Wish(reason="requested", step_count=5), group, beginning)
    firsts = {plan.first_step for each in group for plan in each.plans()}
    assert firsts == {beginning.first_step}


def test_other_nodes_get_time_to_learn_of_it(tmp_path: Path) -> None:
    def lead(ranks: int, world_size: int) -> int:
        group = [
            trainee(tmp_path, steps=9, rank=rank, world_size=world_size)[0] for rank in range(ranks)
        ]
        return Planner(None).lead_ns(group)

    assert lead(2, 2) == lead(1, 1)
    assert lead(2, 4) == lead(2, 2) + round(1e9 * OTHER_NODES_S)


def test_nodes_begin_where_the_first_of_them_said(tmp_path: Path) -> None:
    def node(name: str) -> Requests:
        imports = WindowImports(str(tmp_path), name, job_cores=list, keep_raw=False)
        return Requests(RequestBoard(str(tmp_path)), name, Planner(None), imports)

    one, other = node("a"), node("b")
    assert one.agreed("scheduled-1", Beginning(first_step=40)).first_step == 40
    assert other.agreed("scheduled-1", Beginning(first_step=50)).first_step == 40
    assert other.agreed("scheduled-2", Beginning(first_step=90)).first_step == 90
    soon = time.monotonic_ns() + 5_000 * MS
    begins = one.agreed("scheduled-3", Beginning(first_step=None, start_ns=soon))
    assert abs(begins.start_ns - soon) < 100 * MS  # by way of the time of day


def test_a_job_that_has_just_been_found_does_not_seem_fast(tmp_path: Path) -> None:
    member, pulse = trainee(tmp_path, steps=1)
    board = RequestBoard(str(tmp_path))
    imports = WindowImports(str(tmp_path), "a")
    requests = Requests(board, "a", Planner(None), imports)
    board.ask(WindowRequest(name="r", asked_ns=time.time_ns(), step_count=5))
    requests.tick([member], member.found_ns + MS)
    answer = board.answer("r", "a")
    assert answer is not None
    assert answer.state is AnswerState.WAITING
    assert not list(member.plans())
    pulse.words[BOUNDARY_WORD] = 1000 * MS
    member.observe()
    pulse.words[STEPS_WORD], pulse.words[BOUNDARY_WORD] = 11, 2000 * MS
    member.observe()
    requests.tick([member], member.found_ns + 1000 * MS)
    (plan,) = member.plans()
    assert plan.first_step == 40  # 11, the next, and 2.5 s at 100 ms, rounded up


def test_a_job_without_an_observation_takes_long_steps(tmp_path: Path) -> None:
    member, pulse = trainee(tmp_path, steps=500)
    assert member.usual_step_ns(member.found_ns + 1000 * MS) is None
    assert member.usual_step_ns(member.found_ns + 3000 * MS) == 3000 * MS
    pulse.words[STEPS_WORD] = 501
    assert member.usual_step_ns(member.found_ns + 3000 * MS) == 1500 * MS


def test_slow_steps_are_not_rounded_away(tmp_path: Path) -> None:
    group = [trainee(tmp_path, steps=7, step_ns=10_000 * MS)[0]]
    assert Planner(None).beginning(group).first_step == 9


def test_a_step_that_can_be_met_is_met(tmp_path: Path) -> None:
    group = [trainee(tmp_path, steps=10, step_ns=10 * MS)[0]]
    planner = Planner(None)
    assert planner.beginning(group, at_least=1234).first_step == 1234
    late = planner.beginning(group, at_least=11).first_step
    assert late is not None
    assert late > 11


def test_without_steps_it_goes_by_time(tmp_path: Path) -> None:
    beginning = Planner(None).beginning([trainee(tmp_path, steps=0)[0]])
    assert beginning.first_step is None
    assert beginning.start_ns > time.monotonic_ns()


def test_seconds_become_whole_steps(tmp_path: Path) -> None:
    member, _ = trainee(tmp_path, steps=10, step_ns=300 * MS)
    wish = Wish(reason="requested", duration_ns=1000 * MS)
    Planner(None).give(wish, [member], Beginning(first_step=20))
    (plan,) = member.plans()
    assert plan.steps == 4
    assert plan.longest_ns == 30_000 * MS  # an evaluation may come between its steps
    assert plan.recorder == Recorder.PROFILER


def test_a_process_is_busy_from_plan_to_end(tmp_path: Path) -> None:
    member, pulse = trainee(tmp_path, steps=10)
    assert not member.busy
    Planner(None).give(Wish(reason="a", step_count=1), [member], Beginning(first_step=20))
    assert member.busy
    for state, busy in ((WindowState.RECORDING, True), (WindowState.OVER, False)):
        pulse.window = 0, state
        assert member.busy is busy
    again = Trainee(member.name, member.directory, pulse, 0)
    assert again.plan_count == 1


def test_step_times_leave_windows_out(tmp_path: Path) -> None:
    member, pulse = trainee(tmp_path, steps=10)
    pulse.words[BOUNDARY_WORD] = 1000 * MS
    assert not member.observe()
    pulse.words[STEPS_WORD], pulse.words[BOUNDARY_WORD] = 20, 2000 * MS
    assert member.observe()
    assert member.step_ns == 100 * MS
    Planner(None).give(Wish(reason="a", step_count=1), [member], Beginning(first_step=20))
    pulse.window = 0, WindowState.RECORDING
    pulse.words[STEPS_WORD], pulse.words[BOUNDARY_WORD] = 21, 9000 * MS
    assert not member.observe()
    pulse.window = 0, WindowState.OVER
    assert not member.observe()
    assert member.step_ns == 100 * MS


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
def test_what_libkineto_is_told(depth: str, options: tuple[str, ...], keys: set[str]) -> None:
    plan = WindowPlan(
        number=2, reason="a", recorder="libkineto", depth=depth, options=options, steps=9
    )
    lines = dict(line.split("=", 1) for line in configuration(plan, "/s/p").splitlines())
    assert lines.pop("ACTIVITIES_LOG_FILE") == "/s/p/window-2.json"
    always = {
        "PROFILE_START_ITERATION",
        "ACTIVITIES_WARMUP_ITERATIONS",
        "ACTIVITIES_ITERATIONS",
    }
    assert lines.keys() == always | keys
    assert not {"cpu_op", "user_annotation"} & set(lines.get("ACTIVITY_TYPES", "").split(","))


def test_a_damaged_plan_is_none(tmp_path: Path) -> None:
    assert WindowPlan.read(str(tmp_path), 0) is None
    (tmp_path / "plan-0.json").write_text('{"number": 0}')
    assert WindowPlan.read(str(tmp_path), 0) is None


def test_what_a_dead_process_left(tmp_path: Path) -> None:
    pid = os.getpid()
    (tmp_path / f"window-0_{pid}.json").write_text("{}")
    (tmp_path / f"window-1_{pid}.json.tmp").write_text("{half")
    (tmp_path / f"window-2_{pid}.json.tmp").touch()
    assert settle_unfinished(tmp_path) == [2]
    assert [number for number, _ in finished_windows(tmp_path)] == [0, 1]
    assert list(finished_windows(tmp_path / "absent")) == []
