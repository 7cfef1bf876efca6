"""Schedule of windows in cycles of steps, with the semantics of `torch.profiler.schedule`.

    skip_first | wait  warmup  active | wait  warmup  active | …        `repeat` cycles

https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIELDS = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")
REQUIRED = ("wait", "warmup", "active")


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
        for name, value in zip(FIELDS, values, strict=True):
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
