"""Window plans: requests of the monitor to a process, in files named `plan-<number>.json`.

A process writes the plans of scheduled windows itself, unless the monitor has assigned them in
time. The first to write the file of a number has it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final


class Recorder:
    """Recorder of a window."""

    LIBKINETO: Final = "libkineto"
    """A thread of PyTorch's libkineto, configured by the monitor."""
    PROFILER: Final = "profiler"
    """The framework's profiler, started and stopped in the training thread."""


class Depth:
    """Level of detail of a window."""

    LIGHT: Final = "light"
    """Kernels, copies and runtime calls; no operators."""
    FULL: Final = "full"


OPTIONS = ("shapes", "stacks", "memory", "flops", "modules")
"""Optional contents of a full window, in addition to operators."""
MIN_TIMEOUT_NS = 30_000_000_000
TIMEOUT_FACTOR = 5
"""A window of steps ends after this multiple of its expected duration: an evaluation may occur in
it."""


def limit_duration(steps: int, step_ns: float) -> int:
    """Return the longest duration of a window of some steps in nanoseconds."""
    return max(MIN_TIMEOUT_NS, round(TIMEOUT_FACTOR * steps * step_ns))


class WindowPlan:
    """Plan of one window of one process.

    Args:
        number: index of the window in its process, from 0.
        reason: automatic, scheduled, requested or slower.
        recorder: a value of `Recorder`.
        depth: a value of `Depth`.
        options: members of `OPTIONS`.
        first_step: number of steps that must end before it; None if it starts at a time.
        steps: number of steps in it; None if it has a duration.
        warmup_steps: minimum number of steps before it for which the recorder warms up.
        start_ns: earliest monotonic start time.
        longest_ns: limit on its duration: it ends at the first step boundary after this time.
        request: name of the window request in the run, None if there is none.
    """

    __slots__ = (
        "depth",
        "first_step",
        "longest_ns",
        "number",
        "options",
        "reason",
        "recorder",
        "request",
        "start_ns",
        "steps",
        "warmup_steps",
    )

    def __init__(
        self,
        *,
        number: int,
        reason: str,
        recorder: str,
        depth: str,
        options: tuple[str, ...] = (),
        first_step: int | None = None,
        steps: int | None = None,
        warmup_steps: int = 0,
        start_ns: int = 0,
        longest_ns: int | None = None,
        request: str | None = None,
    ) -> None:
        self.number = number
        self.reason = reason
        self.recorder = recorder
        self.depth = depth
        self.options = tuple(options)
        self.first_step = first_step
        self.steps = steps
        self.warmup_steps = warmup_steps
        self.start_ns = start_ns
        self.longest_ns = longest_ns
        self.request = request

    def write(self, directory: str) -> None:
        """Write the plan into the directory of a process.

        Raises:
            FileExistsError: there is a plan with this number.
            OSError: the spool cannot be written.
        """
        import json

        path = _path(directory, self.number)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({name: getattr(self, name) for name in self.__slots__}, file)
        try:
            os.link(temporary, path)
        finally:
            os.unlink(temporary)

    @classmethod
    def read(cls, directory: str, number: int) -> WindowPlan | None:
        """Read a plan of a process; None if it cannot be read."""
        import json

        try:
            with open(_path(directory, number), encoding="utf-8") as file:
                fields: dict[str, Any] = json.load(file)
            return cls(**fields)
        except (OSError, ValueError, TypeError):
            return None


def _path(directory: str, number: int) -> str:
    return f"{directory}/plan-{number}.json"


def window_file(directory: str, number: int) -> str:
    """Return the path passed to a recorder; libkineto inserts `_<pid>` before the extension."""
    return f"{directory}/window-{number}.json"


def finished_file(directory: str, number: int, pid: int, suffix: str = ".json") -> str:
    """Return the path of the finished file of a window; `.tmp` is appended during the write."""
    return f"{directory}/window-{number}_{pid}{suffix}"
