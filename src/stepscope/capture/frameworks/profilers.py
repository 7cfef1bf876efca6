"""Profilers of frameworks, and recorders of windows, as `windows` uses them."""

from __future__ import annotations

from typing import Protocol

from stepscope.spool import WindowPlan


class WindowRecorder(Protocol):
    """Recorder of one window."""

    kind: str
    """A value of `Recorder`."""
    warm_up_steps: int

    def prepare(self) -> bool:
        """Start the warm-up; False while that is not possible yet."""

    def start(self) -> None:
        """Start recording."""

    def stop(self) -> None:
        """Stop recording."""

    def is_written(self) -> bool:
        """Return True if the file is complete, or its writing has failed."""

    def release(self) -> None:
        """Undo what the recorder has changed in the training thread."""

    def finish(self, timeout_s: float) -> bool:
        """Wait until the file is complete; False at the timeout."""


class FrameworkProfiler(Protocol):
    """Profiler of one framework, as windows use it."""

    recorders: tuple[str, ...]
    """Values of `Recorder` of the plans that it can carry out as they are."""

    def make_recorder(self, plan: WindowPlan, directory: str) -> WindowRecorder:
        """Make the recorder of a plan that writes into the directory of the process."""

    def is_active(self) -> bool:
        """Return True while a profiler of the job records or warms up."""

    def will_train(self) -> bool:
        """Return True if steps of this framework will follow: a process that only runs inference,
        or loads data, would never reach the end of a window that starts before the first step."""

    def has_worked(self) -> bool:
        """Return True if the process has called models or functions of this framework."""

    def start_process(self) -> None:
        """Prepare a process, which may be a forked one, before its first step."""

    def exit_without_cleanup(self) -> None:
        """Let the process exit although a window of it is not written."""

    def leave_to_parent(self) -> None:
        """Leave an open window to the parent, in a forked child."""
