"""Windows whose recorders fail or are chosen among frameworks, with recorders of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture import session
from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.profilers import FrameworkProfiler, WindowRecorder
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.xplane import XPlaneProfiler
from stepscope.spool import STEPS_WORD, Depth, Heartbeat, Recorder, WindowPlan, WindowState


class FakeProfiler(XPlaneProfiler):
    """A profiler that writes files, but whose first call of one function fails."""

    framework = "TensorFlow"

    def __init__(
        self, failing: str = "", *, does: str = "trains", content: bytes = b"trace"
    ) -> None:
        self._failing = failing
        self._content = content
        self._does = does
        self._file = Path()

    def make_recorder(self, plan: WindowPlan, directory: str) -> WindowRecorder:
        self._fail_once("make")
        return super().make_recorder(plan, directory)

    def start(self, directory: str, *, host_level: int, python_level: int) -> None:
        self._fail_once("start")
        self._file = Path(directory) / "plugins" / "host.xplane.pb"

    def stop(self) -> None:
        self._fail_once("stop")
        self._file.parent.mkdir(parents=True)
        self._file.write_bytes(self._content)

    def is_active(self) -> bool:
        return False

    def will_train(self) -> bool:
        return self._does == "trains"

    def has_worked(self) -> bool:
        return self._does != ""

    def _fail_once(self, name: str) -> None:
        if self._failing == name:
            self._failing = ""
            raise ValueError(f"{name} fails")


class Job:
    """Steps of a process with a window plan for each odd step."""

    def __init__(self, *profilers: FrameworkProfiler) -> None:
        self._follower = windows._Follower()
        self._follower.profilers.extend(profilers)
        self._follower._has_exit_handler = True
        self._plan_count = 0
        progress.step_count = 0
        self.run_step()
        self.directory = Path(self._follower._directory)
        heartbeat = Heartbeat.open(str(self.directory))
        assert heartbeat is not None
        self.heartbeat = heartbeat

    def run_step(self) -> None:
        self._follower.beat()
        self._follower.follow_plans()
        progress.step_count += 1

    def record_step(self, recorder: str = Recorder.PROFILER, options: tuple[str, ...] = ()) -> None:
        """Plan a window of the next step, and run it and one more."""
        plan = WindowPlan(
            number=self._plan_count,
            reason="requested",
            recorder=recorder,
            depth=Depth.FULL,
            first_step=progress.step_count,
            steps=1,
            options=options,
        )
        plan.write(str(self.directory))
        self._plan_count += 1
        self.heartbeat.issued = 0, self._plan_count
        self.run_step()
        self.run_step()


@pytest.fixture
def start_job(recording: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    for name in ("step_count", "reports_work"):
        monkeypatch.setattr(progress, name, getattr(progress, name))
    return Job


@pytest.mark.parametrize("failing", ["make", "start", "stop"])
def test_a_failing_recorder_ends_only_its_window(
    start_job: Callable[..., Job], recording: Any, failing: str
) -> None:
    job = start_job(FakeProfiler(failing))
    job.record_step()
    assert job.heartbeat.window == (0, WindowState.OVER)
    job.record_step()
    assert job.heartbeat.window == (1, WindowState.OVER)
    assert job.heartbeat.words[STEPS_WORD] == 4
    recorded = recording.drain()
    (missed,) = recorded.facts("window_missed")
    assert (missed["number"], missed["why"]) == (0, "its recorder failed")
    (window,) = recorded.facts("window")
    assert (window["number"], window["first_step"], window["step_count"]) == (1, 3, 1)
    (note,) = recorded.notes
    text = f"stopped recording detailed window 0 after an error: ValueError('{failing} fails')"
    assert note.startswith(text)
    assert all(span.end is not None for span in recorded.of("window"))


def test_a_directory_whose_name_is_a_pattern(
    new_spool: Callable[[str], Any], start_job: Callable[..., Job]
) -> None:
    spool = new_spool("spool[1]")
    session.attach(str(spool.path), spool.limit_bytes)
    job = start_job(FakeProfiler())
    job.record_step()
    assert [path.read_bytes() for path in job.directory.glob("*.xplane.pb")] == [b"trace"]
    assert not spool.drain().notes


@pytest.mark.parametrize(
    ("first", "second", "recorder", "content"),
    [
        ("trains", "works", Recorder.LIBKINETO, b"first"),
        ("works", "trains", Recorder.PROFILER, b"second"),
        ("trains", "trains", Recorder.LIBKINETO, b"second"),
        ("", "works", Recorder.PROFILER, b"second"),
        ("works", "", Recorder.LIBKINETO, b"first"),
        ("", "", Recorder.LIBKINETO, b"second"),
    ],
)
def test_the_framework_that_works_or_that_the_plan_names_records(
    start_job: Callable[..., Job],
    recording: Any,
    first: str,
    second: str,
    recorder: str,
    content: bytes,
) -> None:
    torch = FakeProfiler(does=second, content=b"second")
    torch.recorders = (Recorder.LIBKINETO, Recorder.PROFILER)
    job = start_job(FakeProfiler(does=first, content=b"first"), torch)
    job.record_step(recorder)
    assert [path.read_bytes() for path in job.directory.glob("*.xplane.pb")] == [content]
    (window,) = recording.drain().facts("window")
    assert window["recorder"] == Recorder.PROFILER  # the only one of both, whatever the plan names


@pytest.mark.parametrize(
    ("options", "content", "notes"),
    [
        (("stacks",), b"\x12\x10$train.py:12 step\x1a", []),
        ((), b"MatMul", []),
        (
            ("stacks",),
            b"MatMul",
            [
                "Windows have no calls of Python functions:"
                " the profiler of TensorFlow records none in this release."
            ],
        ),
    ],
)
def test_calls_that_a_profiler_does_not_record(
    start_job: Callable[..., Job],
    recording: Any,
    options: tuple[str, ...],
    content: bytes,
    notes: list[str],
) -> None:
    start_job(FakeProfiler(content=content)).record_step(options=options)
    assert recording.drain().notes == notes
