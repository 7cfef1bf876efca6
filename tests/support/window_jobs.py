"""A training job controlled by a test, which also acts as the monitor for its windows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from stepscope.capture.bootstrap import environment
from stepscope.capture.kineto_daemon import make_directory
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.planner import (
    Planner,
    TrainingProcess,
    WindowSpec,
    WindowStart,
    find_finished_windows,
    find_training_processes,
)
from stepscope.spool.page import WindowState
from stepscope.spool.plan import Recorder, ScheduledWindows
from tests.support.waiting import wait_until

JOB = Path(__file__).parents[1] / "e2e" / "windows" / "window_job.py"
LIMIT_S = 60.0


class WindowJob:
    """A controlled training job that records into a spool.

    Args:
        spool: the spool of the test.
        served: libkineto connects to the peer of the test; if False, the framework's profiler
            records.
    """

    def __init__(self, spool: Any, *, served: bool = True) -> None:
        self.spool = spool
        self.sockets = make_directory() if served else None
        self.peer = KinetoPeer(Path(self.sockets)) if self.sockets is not None else None
        self.planner = Planner(self.peer)
        self._training_processes: dict[str, TrainingProcess] = {}
        self.process = subprocess.Popen(
            [sys.executable, str(JOB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **spool.environment(),
                **environment(str(spool.path), spool.limit_bytes, self.sockets),
                "STEPSCOPE_WINDOW": "on",
            },
        )

    def do(self, command: str) -> str:
        """Run a command in the job; returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, f"the job ended with {self.process.wait(LIMIT_S)}: {self.errors()}"
        return answer

    def end(self, command: str = "exit 0") -> int:
        """End the job; returns its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.wait(LIMIT_S)

    def errors(self) -> str:
        """Return the stderr of the job after its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    @property
    def training_process(self) -> TrainingProcess:
        """The training process, as the monitor reads it."""
        find_training_processes(self.spool.tree, self._training_processes, time.monotonic_ns())
        return next(t for t in self._training_processes.values() if t.pid == self.process.pid)

    def wait_for_poll(self) -> None:
        """Wait until libkineto has polled the peer."""
        assert self.peer is not None
        peer = self.peer
        wait_until(lambda: peer.last_poll(self.process.pid) is not None, timeout_s=LIMIT_S)

    def plan(self, spec: WindowSpec, start: WindowStart) -> None:
        """Plan a window; with libkineto, wait until it has the configuration."""
        training_process = self.training_process
        if self.peer is not None:
            self.wait_for_poll()
        self.planner.assign(spec, [training_process], start)
        self._wait_for_delivery(training_process)

    def plan_scheduled(self, windows: ScheduledWindows, first_step: int) -> None:
        """Plan the window of a schedule that starts at a step; without libkineto, as the process
        itself would."""
        training_process = self.training_process
        if self.peer is None:
            number, recorder = training_process.plan_count, Recorder.PROFILER
            training_process.assign(windows.plan(number, first_step, recorder, None))
            return
        self.wait_for_poll()
        self.planner.assign_scheduled(windows, [training_process], first_step)
        self._wait_for_delivery(training_process)

    def _wait_for_delivery(self, training_process: TrainingProcess) -> None:
        """With libkineto, wait until it has the configuration of the last plan."""
        if (
            self.peer is not None
            and next(reversed(list(training_process.plans()))).recorder == Recorder.LIBKINETO
        ):
            peer = self.peer
            wait_until(lambda: not peer.has_offer(training_process.pid), timeout_s=LIMIT_S)
            last_poll = peer.last_poll(training_process.pid)
            wait_until(lambda: peer.last_poll(training_process.pid) != last_poll, timeout_s=LIMIT_S)

    def step_until(self, state: int, *, command: str = "steps 1") -> int:
        """Train until the window reaches a state; returns the number of steps."""
        count = 0
        deadline = time.monotonic() + LIMIT_S
        while self.training_process.window_state != state:
            assert time.monotonic() < deadline, (
                f"the window is in {self.training_process.window_state}"
            )
            self.do(command)
            count += 1
        return count

    def window(self, number: int = 0) -> dict[str, Any]:
        """Return the events in the file of a window, and their number by category."""
        path = dict(find_finished_windows(self.training_process.directory))[number]
        events = json.loads(path.read_text())["traceEvents"]
        return {
            "categories": Counter(event.get("cat", event["ph"]) for event in events),
            "steps": sum(str(e.get("name")).startswith("Optimizer.step#") for e in events),
            "events": events,
        }

    def finished(self, number: int = 0) -> bool:
        """Return True if the file of a window is complete."""
        return number in dict(find_finished_windows(self.training_process.directory))

    def close(self) -> None:
        """Kill the job and close its pipes and sockets."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        if self.peer is not None:
            self.peer.close()


def steps(count: int, **options: Any) -> WindowSpec:
    """Request a window of *count* steps."""
    return WindowSpec(reason="requested", step_count=count, **options)


OVER = WindowState.OVER
RECORDING = WindowState.RECORDING
WRITING = WindowState.WRITING
