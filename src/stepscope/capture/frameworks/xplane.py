"""Recorders of windows whose profilers write XPlane files, in-process.

The monitor imports the file. The profiler writes it in the thread that stops it; that time is
marked and counts for no step.
"""

from __future__ import annotations

import glob
import mmap
import os
import re
import shutil
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.profilers import WindowRecorder
from stepscope.capture.guard import Probe
from stepscope.spool import Depth, Recorder, WindowPlan, finished_file

SUFFIX = ".xplane.pb"
_FULL, _LIGHT = 2, 1
"""Levels of events of the host."""
_PYTHON_CALL = re.compile(rb"\$\S{1,200}:\d+ ")
"""Name of a call of a Python function: `$train.py:12 step`."""
_probe = Probe("files of windows", coarse=True)


class XPlaneProfiler:
    """Base class of such profilers; see `FrameworkProfiler`."""

    recorders: tuple[str, ...] = (Recorder.PROFILER,)
    framework: str
    writes_python_calls: bool | None = None
    """None before the first window with them."""

    def start(self, directory: str, *, host_level: int, python_level: int) -> None:
        """Start recording.

        Args:
            directory: where the profiler writes the file.
            host_level: level of events of the host, 1 or 2.
            python_level: 1 to record calls of Python functions, else 0.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Stop recording and write the file."""
        raise NotImplementedError

    def will_train(self) -> bool:
        """Return True if the process has trained."""
        raise NotImplementedError

    def has_worked(self) -> bool:
        """Return True if the process has trained, or called anything that may train."""
        return self.will_train()

    def make_recorder(self, plan: WindowPlan, directory: str) -> WindowRecorder:
        """Make the only recorder, whatever the plan names."""
        return _Recorder(self, plan, directory)

    def start_process(self) -> None:
        """Do nothing."""

    def exit_without_cleanup(self) -> None:
        """Do nothing: an open trace does not keep the process from exiting."""

    def leave_to_parent(self) -> None:
        """Do nothing: these frameworks do not work in a forked child."""


class _Recorder:
    """Recorder of one window."""

    kind = Recorder.PROFILER
    warm_up_steps = 0

    def __init__(self, profiler: XPlaneProfiler, plan: WindowPlan, directory: str) -> None:
        self._profiler = profiler
        self._path = finished_file(directory, plan.number, os.getpid(), SUFFIX)
        self._directory = f"{self._path}.trace"
        self._host_level = _FULL if plan.depth == Depth.FULL else _LIGHT
        self._python_level = int("stacks" in plan.options)

    def prepare(self) -> bool:
        """Return True: there is no warm-up."""
        return True

    def start(self) -> None:
        """Start recording."""
        self._profiler.start(
            self._directory, host_level=self._host_level, python_level=self._python_level
        )

    def stop(self) -> None:
        """Stop recording and write the file."""
        try:
            self._profiler.stop()
            pattern = f"{glob.escape(self._directory)}/**/*{SUFFIX}"
            newest = max(glob.glob(pattern, recursive=True), key=os.path.getmtime)
            os.rename(newest, self._path)
            if self._python_level and self._profiler.writes_python_calls is None:
                self._profiler.writes_python_calls = _has_python_calls(self._path)
            if self._python_level and not self._profiler.writes_python_calls:
                _probe.note(
                    "Windows have no calls of Python functions:"
                    f" the profiler of {self._profiler.framework} records none in this release."
                )
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def is_written(self) -> bool:
        """Return True: `stop` has written the file."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def finish(self, timeout_s: float) -> bool:
        """Return True: `stop` has written the file."""
        return True


def _has_python_calls(path: str) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _PYTHON_CALL.search(content) is not None


def guard_start(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the function that starts the framework's profiler for the job close a window first."""

    def start(*args: Any, **kwargs: Any) -> Any:
        if not windows.is_opening():
            windows.finish("the job started a profiler")
        return original(*args, **kwargs)

    return start
