"""Windows in a real job, of which the test is the monitor.

libkineto records them, and the framework's profiler where libkineto has no connection to a monitor.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from stepscope.monitor.windows.planner import WindowSpec, WindowStart
from stepscope.spool.plan import ScheduledWindows
from tests.support.tiers import extend_all_but
from tests.support.window_jobs import OVER, RECORDING, WRITING, WindowJob, steps

STACKS = ("shapes", "stacks")
in_detail = pytest.mark.extended(
    "another job; test_a_window_has_exactly_the_requested_steps has a window"
)


@pytest.fixture
def start(spool: Any) -> Iterator[Callable[..., WindowJob]]:
    """Start jobs, which are killed after the test."""
    jobs = []

    def start_job(**options: Any) -> WindowJob:
        job = WindowJob(spool, **options)
        jobs.append(job)
        return job

    yield start_job
    for job in jobs:
        job.close()
        if job.sockets is not None:
            shutil.rmtree(job.sockets)


@pytest.fixture
def job(start: Callable[..., WindowJob], request: pytest.FixtureRequest) -> WindowJob:
    """Make a job that has trained five steps; the parameter is its recorder."""
    job = start(served=getattr(request, "param", "libkineto") == "libkineto")
    job.do("steps 5")
    return job


by_both = pytest.mark.parametrize("job", ["libkineto", "profiler"], indirect=True)


def start_window(job: WindowJob, spec: WindowSpec | None = None) -> None:
    """Start the recording of a window, of twenty steps by default."""
    first = job.training_process.steps + 3
    job.plan(spec or steps(20), WindowStart(first_step=first))
    job.step_until(RECORDING)


@by_both
def test_a_window_has_exactly_the_requested_steps(job: WindowJob) -> None:
    job.plan(steps(4), WindowStart(first_step=20))
    job.do("steps 40")
    job.step_until(OVER)
    window = job.window()
    assert window["steps"] == 4
    assert window["categories"]["cpu_op"] > 100
    recorded = job.spool.drain(final=False)
    (fact,) = recorded.facts("window")
    assert (fact["first_step"], fact["step_count"]) == (20, 4)
    assert fact["recorder"] == ("libkineto" if job.sockets else "profiler")
    (span,) = recorded.of("window")
    assert (span.name, span.value) == ("requested", 0)
    assert len([r for r in recorded.of("optimizer") if r.inside(span)]) == 4


@in_detail
@by_both
def test_a_window_warms_up_for_some_steps(job: WindowJob) -> None:
    windows = ScheduledWindows(first_step=20, step_count=4, warmup_count=10)
    job.plan_scheduled(windows, 20)
    job.do("steps 40")
    job.step_until(OVER)
    assert job.window()["steps"] == 4
    (fact,) = job.spool.drain(final=False).facts("window")
    assert (fact["first_step"], fact["step_count"]) == (20, 4)
    # A profiler of the job closes a window that warms up, and leaves one that waits.
    first = job.training_process.steps + 20
    job.plan_scheduled(windows, first)
    job.do("steps 15")
    assert int(job.do("profile 2")) > 50
    job.step_until(OVER)
    closed = job.spool.drain(final=False).facts("window")[-1]
    assert first - 10 <= closed["first_step"] < first
    assert closed["step_count"] == 0


@in_detail
def test_a_second_window_follows_a_first(job: WindowJob) -> None:
    for number, count in enumerate((2, 3)):
        job.plan(steps(count), WindowStart(first_step=job.training_process.steps + 5))
        job.do("steps 10")
        job.step_until(OVER)
        assert job.window(number)["steps"] == count


@in_detail
def test_a_light_window_has_no_operators(job: WindowJob) -> None:
    job.plan(steps(4, depth="light"), WindowStart(first_step=10))
    job.do("steps 20")
    job.step_until(OVER)
    assert not job.window()["categories"].keys() & {"cpu_op", "user_annotation"}
    # Later profilers, also the job's, record operators again.
    assert int(job.do("profile 2")) > 50


@in_detail
@pytest.mark.seed("PTP-01")
@pytest.mark.parametrize(
    ("options", "is_recorded"),
    [
        (("shapes",), lambda events: any("Input Dims" in e.get("args", {}) for e in events)),
        (("stacks",), lambda events: any(e.get("cat") == "python_function" for e in events)),
        (("flops",), lambda events: any("Input Dims" in e.get("args", {}) for e in events)),
        (("modules",), lambda events: any("nn.Module" in str(e.get("name")) for e in events)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_optional_contents_of_a_full_window(
    job: WindowJob, options: tuple[str, ...], is_recorded: Callable[[list[Any]], bool]
) -> None:
    job.plan(steps(3, options=options), WindowStart(first_step=10))
    job.do("steps 20")
    job.step_until(OVER)
    assert is_recorded(job.window()["events"])


@in_detail
def test_memory_comes_from_the_frameworks_profiler(job: WindowJob) -> None:
    job.plan(steps(3, options=("memory",)), WindowStart(first_step=10))
    job.do("steps 20")
    job.step_until(OVER)
    assert job.window()["categories"]["cpu_instant_event"] > 10
    (fact,) = job.spool.drain(final=False).facts("window")
    assert fact["recorder"] == "profiler"


@in_detail
def test_a_loop_without_optimizer_is_recorded_by_time(start: Callable[..., WindowJob]) -> None:
    job = start()
    job.do("work 5")
    assert job.training_process.steps == 0
    start = job.planner.find_start([job.training_process])
    assert start.first_step is None
    job.plan(WindowSpec(reason="requested", duration_ns=50_000_000), start)
    job.step_until(OVER, command="work 1")
    assert job.window()["categories"]["cpu_op"] > 10


@in_detail
def test_an_evaluation_inside_a_window_ends_it_in_time(job: WindowJob) -> None:
    start_window(job, steps(20, duration_ns=100_000_000))
    job.step_until(OVER, command="work 1")
    assert job.window()["steps"] < 20
    (fact,) = job.spool.drain(final=False).facts("window")
    assert fact["step_count"] < 20


@pytest.mark.parametrize(
    "job",
    extend_all_but({"libkineto"}, ["libkineto", "profiler"], "another recorder"),
    indirect=True,
)
@pytest.mark.parametrize(
    "spec",
    extend_all_but([steps(20)], [steps(20), steps(20, options=STACKS)], "another recorder"),
    ids=["plain", "stacks"],
)
@pytest.mark.parametrize(
    "end", extend_all_but({"exit 3"}, ["exit 0", "exit 3", "raise"], "another end")
)
def test_a_job_may_end_inside_a_window(job: WindowJob, spec: WindowSpec, end: str) -> None:
    start_window(job, spec)
    job.do("steps 5")
    assert job.end(end) == {"exit 0": 0, "exit 3": 3, "raise": 1}[end]
    assert 5 <= job.window()["steps"] <= 7


@in_detail
@pytest.mark.parametrize("spec", [steps(3), steps(3, options=STACKS)], ids=["plain", "stacks"])
def test_a_job_may_end_while_a_window_is_written(job: WindowJob, spec: WindowSpec) -> None:
    start_window(job, spec)
    job.do("steps 4")
    assert job.training_process.window_state in {WRITING, OVER}
    assert job.end() == 0
    assert job.window()["steps"] == 3


@in_detail
def test_a_job_may_end_before_a_window_starts(job: WindowJob) -> None:
    job.plan(steps(3), WindowStart(first_step=1000))
    job.do("steps 5")
    assert job.end() == 0
    assert not job.finished()


@pytest.mark.parametrize(
    ("job", "done"),
    extend_all_but(
        [("libkineto", 5)],
        [("profiler", 5), *(("libkineto", done) for done in (0, 5, 20, 21))],
        "another step or recorder",
    ),
    indirect=["job"],
)
def test_a_profiler_of_the_job_closes_a_window(job: WindowJob, done: int) -> None:
    alone = job.do("profile 5")
    start_window(job, steps(20, options=STACKS))
    job.do(f"steps {done}")
    assert job.do("profile 5") == alone
    job.step_until(OVER)
    assert job.window()["steps"] >= min(done, 20)
    assert job.do("profile 5") == alone
    assert job.end() == 0


@in_detail
def test_a_scheduled_profiler_of_the_job_closes_a_window(job: WindowJob) -> None:
    alone = job.do("plan 3 4")
    start_window(job)
    assert job.do("plan 3 4") == alone
    assert job.end() == 0


@in_detail
@by_both
def test_a_window_waits_while_the_job_profiles_itself(job: WindowJob) -> None:
    alone = job.do("profile 20")
    job.plan(steps(4), WindowStart(first_step=job.training_process.steps + 5))
    assert job.do("profile 20") == alone
    job.step_until(OVER)
    assert job.window()["steps"] == 4
    (fact,) = job.spool.drain(final=False).facts("window")
    assert fact["first_step"] >= 45


@in_detail
def test_a_forked_child_can_end(job: WindowJob) -> None:
    assert job.do("fork") == "5"


@in_detail
@by_both
def test_a_child_forked_inside_a_window_can_end(job: WindowJob) -> None:
    start_window(job)
    assert job.do("fork") == "5"
    job.do("steps 25")
    job.step_until(OVER)
    assert job.window()["steps"] == 20


@in_detail
def test_the_job_continues_when_the_peer_ends(job: WindowJob) -> None:
    start_window(job)
    assert job.peer is not None
    job.peer.close()
    job.peer = None
    job.do("steps 40")
    job.step_until(OVER)
    assert job.window()["steps"] == 20
    assert job.end() == 0


@in_detail
def test_a_window_does_not_change_the_weights(start: Callable[..., WindowJob]) -> None:
    watched, alone = start(), start(served=False)
    for job in (watched, alone):
        job.do("steps 5")
    start_window(watched, steps(10, options=STACKS))
    lag = watched.training_process.steps - alone.training_process.steps
    watched.do("steps 40")
    alone.do(f"steps {lag + 40}")
    assert watched.do("digest") == alone.do("digest")
