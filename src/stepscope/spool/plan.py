"""What the monitor asks of a process: a detailed window, in a file `plan-<number>.json`."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final


class Recorder:
    """Who records a window."""

    LIBKINETO: Final = "libkineto"
    """PyTorch's own thread, configured by the monitor."""
    PROFILER: Final = "profiler"
    """The framework's profiler, switched on and off in the training thread."""


class Depth:
    """How much a window holds."""

    LIGHT: Final = "light"
    """Kernels, copies and runtime calls; no operators."""
    FULL: Final = "full"


OPTIONS = ("shapes", "stacks", "memory", "flops", "modules")
"""What a full window can hold besides operators."""


class WindowPlan:
    """One window of one process.

    Args:
        number: of the window in its process, from 0.
        reason: why it is opened: automatic, scheduled, requested or slower.
        recorder: of `Recorder`.
        depth: of `Depth`.
        options: of `OPTIONS`.
        first_step: steps that have to end before it; None when it begins at a time.
        steps: how many it holds; None when it has a duration.
        start_ns: monotonic time before which it does not begin.
        longest_ns: it ends at the first boundary after this long, whatever else is said.
        request: name of the request in the run, None when there is none.
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
        self.start_ns = start_ns
        self.longest_ns = longest_ns
        self.request = request

    def write(self, directory: str) -> None:
        """Put the plan into a process's directory.

        Raises:
            OSError: the spool cannot be written.
        """
        import json

        path = _path(directory, self.number)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({name: getattr(self, name) for name in self.__slots__}, file)
        os.replace(path + ".new", path)

    @classmethod
    def read(cls, directory: str, number: int) -> WindowPlan | None:
        """A plan of a process; None when it cannot be read."""
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
    """What a recorder is asked to write; libkineto puts `_<pid>` before the ending."""
    return f"{directory}/window-{number}.json"


def finished_file(directory: str, number: int, pid: int) -> str:
    """The finished file of a window. While it is written it has `.tmp` behind its name."""
    return f"{directory}/window-{number}_{pid}.json"
