"""A job that trains as it is told, with the monitor's side of windows played by the test."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.capture.bootstrap import environment
from stepscope.capture.kineto_daemon import make_directory
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.planner import Beginning, Planner, Wish
from stepscope.monitor.windows.training_processes import Trainee, find_trainees, finished_windows
from stepscope.spool.pulse import WindowState

JOB = Path(__file__).parents[1] / "unit" / "capture" / "jobs" / "window_job.py"
LIMIT_S = 60.0


class WindowJob:
    """One such job, recording into a spool.

    Args:
        spool: a test's own.
        served: libkineto finds the test's peer; otherwise the framework's profiler records.
    """

    def __init__(self, spool: Any, *, served: bool = True) -> None:
        self.spool = spool
        self.sockets = make_directory() if served else None
        self.peer = KinetoPeer(Path(self.sockets)) if self.sockets is not None else None
        self.planner = Planner(self.peer)
        self._trainees: dict[str, Trainee] = {}
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
        """Have it carry out a command; its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, f"the job died of {self.process.wait(LIMIT_S)}: {self.errors()}"
        return answer

    def end(self, command: str = "exit 0") -> int:
        """Have it end; its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.wait(LIMIT_S)

    def errors(self) -> str:
        """What it wrote to stderr, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    @property
    def trainee(self) -> Trainee:
        """The process, as the monitor sees it."""
        find_trainees(self.spool.tree, self._trainees, time.monotonic_ns())
        return next(t for t in self._trainees.values() if t.pid == self.process.pid)

    def wait_until_heard(self) -> None:
        """Return when libkineto has asked the peer."""
        assert self.peer is not None
        peer = self.peer
        wait_for(lambda: peer.last_poll(self.process.pid) is not None)

    def plan(self, wish: Wish, beginning: Beginning) -> None:
        """Have it open a window; with libkineto, return when that knows of it."""
        trainee = self.trainee
        if self.peer is not None:
            self.wait_until_heard()
        self.planner.give(wish, [trainee], beginning)
        if self.peer is not None and next(reversed(list(trainee.plans()))).recorder == "libkineto":
            peer = self.peer
            wait_for(lambda: not peer.has_offer(trainee.pid))
            asked = peer.last_poll(trainee.pid)
            wait_for(lambda: peer.last_poll(trainee.pid) != asked)

    def step_until(self, state: int, *, command: str = "steps 1") -> int:
        """Train on until the window is in this state; how many steps that took."""
        count = 0
        deadline = time.monotonic() + LIMIT_S
        while self.trainee.window_state != state:
            assert time.monotonic() < deadline, f"the window is in {self.trainee.window_state}"
            self.do(command)
            count += 1
        return count

    def window(self, number: int = 0) -> dict[str, Any]:
        """The events of a window's file, counted by category."""
        path = dict(finished_windows(self.trainee.directory))[number]
        events = json.loads(path.read_text())["traceEvents"]
        return {
            "categories": Counter(event.get("cat", event["ph"]) for event in events),
            "steps": sum(str(e.get("name")).startswith("Optimizer.step#") for e in events),
            "events": events,
        }

    def finished(self, number: int = 0) -> bool:
        """True when the window's file is there."""
        return number in dict(finished_windows(self.trainee.directory))

    def close(self) -> None:
        """Leave nothing of it behind."""
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


def wait_for(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold in time"
        time.sleep(0.005)


def steps(count: int, **more: Any) -> Wish:
    """A window of so many steps."""
    return Wish(reason="requested", step_count=count, **more)


OVER = WindowState.OVER
RECORDING = WindowState.RECORDING
WRITING = WindowState.WRITING
