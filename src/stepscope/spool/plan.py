"""Window plans: requests of the monitor to a process, and the schedules of windows.

A process writes the plans of scheduled windows itself, unless the monitor has assigned them in
time. The first to write the file of a number has it.

Schedule of windows in cycles of steps, with the semantics of `torch.profiler.schedule`:

    skip_first | wait  warmup  active | wait  warmup  active | …        `repeat` cycles

https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule

`ScheduledWindows` are the windows of such a schedule, or of one that is given by the number of its
first step. They are written into the spool before the job starts, so that its processes know them
at their first step; the heartbeat announces a later change.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable
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


MEMORY_HISTORY_VARIABLE = "STEPSCOPE_MEMORY_HISTORY"
"""Environment variable that holds the number of actions of the allocator in the history."""
SNAPSHOTS = "memory-*.pickle"
"""Pattern of the names of finished memory snapshots."""


def snapshot_file(directory: str, number: int) -> str:
    """Return the path of a finished memory snapshot; `.tmp` is appended during the write."""
    return f"{directory}/memory-{number}.pickle"


FIELDS = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")
SCHEDULE_FILE = "schedule.json"
REQUIRED = ("wait", "warmup", "active")
MAX_COMPARED_WINDOWS = 10_000
"""Number of windows up to which two schedules are compared."""


class StepSchedule:
    """Schedule of windows in cycles of steps.

    Args:
        wait: steps of a cycle without a profiler.
        warmup: steps for which the profiler runs and its records are discarded.
        active: steps of a window.
        repeat: number of cycles; 0 repeats without end.
        skip_first: steps before the first cycle.
        skip_first_wait: other than 0, the first cycle has no `wait`.

    Raises:
        ValueError: a number is out of range, or a window would follow another one at once.
    """

    __slots__ = ("first_step", "interval", "repeat", "step_count", "warmup")

    def __init__(
        self,
        *,
        wait: int,
        warmup: int,
        active: int,
        repeat: int = 0,
        skip_first: int = 0,
        skip_first_wait: int = 0,
    ) -> None:
        values = (wait, warmup, active, repeat, skip_first, skip_first_wait)
        for name, value in zip(FIELDS, values):
            minimum = 1 if name == "active" else 0
            if value != int(value) or value < minimum:
                raise ValueError(f"{name}={value} must be a whole number of at least {minimum}")
        if not wait + warmup and repeat != 1:
            raise ValueError("windows need a gap, because each is written: set wait or warmup")
        self.warmup = warmup
        self.step_count = active
        self.repeat = repeat
        self.first_step = skip_first + (0 if skip_first_wait else wait) + warmup
        """Number of steps before the first window."""
        self.interval = wait + warmup + active
        """Steps from the start of one window to that of the next."""

    @property
    def settings(self) -> dict[str, Any]:
        """The schedule as fields of the monitor's `WindowSchedule`."""
        return {
            "first_step": self.first_step,
            "step_count": self.step_count,
            "warmup_count": self.warmup,
            "interval": self.interval,
            "repeat_count": self.repeat or None,
        }


def parse_step_schedule(text: str) -> StepSchedule:
    """Parse a schedule such as `wait=5,warmup=2,active=10,repeat=3,skip_first=20`.

    >>> parse_step_schedule("wait=5,warmup=2,active=10,skip_first=20").first_step
    27

    Raises:
        ValueError: the text is not a schedule.
    """
    values: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in FIELDS:
            raise ValueError(f"{name!r} is none of {', '.join(FIELDS)}")
        if name in values:
            raise ValueError(f"{name} is set twice")
        if not number.isdecimal():
            raise ValueError(f"{part.strip()!r} is not {name}=N, with a whole number N")
        values[name] = int(number)
    missing = [name for name in REQUIRED if name not in values]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be set")
    return StepSchedule(**values)


class ScheduledWindows:
    """Windows that start at numbers of steps known before the job starts.

    Args:
        first_step: number of steps before the first window.
        step_count: number of steps of each window.
        interval: steps from the start of one window to that of the next; None for one window.
        repeat_count: number of windows with an interval; None for no end.
        warmup_count: steps before each window for which the profiler warms up.
        depth: a value of `Depth`.
        options: members of `OPTIONS`.
        min_start: number of steps before which no window starts.
    """

    __slots__ = (
        "depth",
        "first_step",
        "interval",
        "min_start",
        "options",
        "repeat_count",
        "step_count",
        "warmup_count",
    )

    def __init__(
        self,
        *,
        first_step: int,
        step_count: int,
        interval: float | None = None,
        repeat_count: int | None = None,
        warmup_count: int = 0,
        depth: str = Depth.FULL,
        options: tuple[str, ...] = (),
        min_start: float = 0,
    ) -> None:
        self.first_step = first_step
        self.step_count = step_count
        self.interval = interval
        self.repeat_count = repeat_count
        self.warmup_count = warmup_count
        self.depth = depth
        self.options = tuple(options)
        self.min_start = min_start

    @classmethod
    def copy(cls, schedule: Any) -> ScheduledWindows:
        """Create the windows of a schedule whose attributes have the names of the arguments."""
        return cls(**{name: getattr(schedule, name) for name in cls.__slots__})

    def next_start(self, step: int) -> int | None:
        """Return the first step of the first window that starts at *step* or later.

        >>> windows = ScheduledWindows(first_step=5, step_count=2, interval=10, repeat_count=2)
        >>> [windows.next_start(step) for step in (0, 5, 6, 16)]
        [5, 5, 15, None]

        Returns:
            None if no window follows.
        """
        step = max(step, -int(-self.min_start // 1))  # without an import of math
        if step <= self.first_step:
            return self.first_step
        if self.interval is None:
            return None
        index = int((step - self.first_step) / self.interval)
        while round(index * self.interval) < step - self.first_step:  # it may be a fraction
            index += 1
        if self.repeat_count is not None and index >= self.repeat_count:
            return None
        return self.first_step + round(index * self.interval)

    def plan(
        self, number: int, first_step: int, recorder: str, step_ns: float | None
    ) -> WindowPlan:
        """Create the plan of the window that starts at a step.

        Args:
            step_ns: step time of the job, which limits the duration; None if unknown.
        """
        return WindowPlan(
            number=number,
            reason="scheduled",
            recorder=recorder,
            depth=self.depth,
            options=self.options,
            first_step=first_step,
            steps=self.step_count,
            warmup_steps=self.warmup_count,
            longest_ns=None if step_ns is None else limit_duration(self.step_count, step_ns),
        )


def next_window(
    schedules: Iterable[ScheduledWindows], step: int
) -> tuple[ScheduledWindows, int] | None:
    """Return the schedule and the first step of the first window that starts at *step* or later.

    Returns:
        None if no window follows.
    """
    starts = [(schedule, schedule.next_start(step)) for schedule in schedules]
    following = [(schedule, start) for schedule, start in starts if start is not None]
    return min(following, key=lambda item: item[1], default=None)


def find_overlap(first: ScheduledWindows, second: ScheduledWindows) -> int | None:
    """Return the first step of the first window that overlaps one of the other schedule.

    Windows overlap, too, if no step is between them: each is written at its end.

    >>> every_ten = ScheduledWindows(first_step=5, step_count=2, interval=10)
    >>> find_overlap(every_ten, ScheduledWindows(first_step=108, step_count=3))
    >>> find_overlap(every_ten, ScheduledWindows(first_step=108, step_count=7))
    115

    Returns:
        None if there is none among the first `MAX_COMPARED_WINDOWS`.
    """
    start, second_start = first.next_start(0), second.next_start(0)
    for _ in range(MAX_COMPARED_WINDOWS):
        if start is None or second_start is None:
            return None
        is_before = start + first.step_count < second_start - second.warmup_count
        is_after = second_start + second.step_count < start - first.warmup_count
        if not is_before and not is_after:
            return max(start, second_start)
        if start < second_start:
            start = first.next_start(start + 1)
        else:
            second_start = second.next_start(second_start + 1)
    return None


def write_schedules(spool: str, schedules: Iterable[ScheduledWindows]) -> None:
    """Write the schedules into a spool, in place of earlier ones.

    Raises:
        OSError: the spool cannot be written.
    """
    import json

    path = f"{spool}/{SCHEDULE_FILE}"
    fields = [{name: getattr(s, name) for name in s.__slots__} for s in schedules]
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(fields, file)
    os.replace(f"{path}.new", path)


def read_schedules(spool: str) -> list[ScheduledWindows]:
    """Read the schedules of a spool; none if they cannot be read."""
    import json

    try:
        with open(f"{spool}/{SCHEDULE_FILE}", encoding="utf-8") as file:
            return [ScheduledWindows(**fields) for fields in json.load(file)]
    except (OSError, ValueError, TypeError):
        return []
