"""Conditions on the difference of two runs, as `stepscope compare --fail-if` takes them.

    METRIC OP [+|-]VALUE[UNIT]

    step_time>+5%       the mean step takes more than 5 % longer than in the base
    data_wait>+3ms      each step waits more than 3 ms longer for batches
    step_time_p95>120ms the 95th percentile of the step is above 120 ms
    gpu_busy<-5pp       the GPUs are busy for 5 percentage points less of the time
    gpu_busy<60%        … for less than 60 % of the time

With a sign the change is meant, without one the value of the run itself.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stepscope.analysis import CATEGORIES, PHASES
from stepscope.errors import UsageError

Unit = Literal["ns", "ratio", "bytes", "usd", "per_s", "hours"]
Of = Literal["value", "change", "relative change"]

STEP_FIGURES = {"step_time": "mean", "step_time_p50": "p50", "step_time_p95": "p95"}
"""Metrics of whole steps, by the figure each is."""
PARTS = tuple(dict.fromkeys([*PHASES, *CATEGORIES]))
"""Metrics that are parts of the mean step: phases, or categories of recorded steps."""
JOB_FIGURES: dict[str, tuple[str, Unit]] = {
    "wall_time": ("wall time", "ns"),
    "training_time": ("training", "ns"),
    "throughput": ("steps per second", "per_s"),
    "gpu_busy": ("GPU busy", "ratio"),
    "gpu_memory": ("GPU memory", "bytes"),
    "cpu_busy": ("CPU busy", "ratio"),
    "io_wait": ("I/O wait", "ratio"),
    "memory": ("memory", "bytes"),
    "machine_hours": ("machine hours", "hours"),
    "cost": ("cost", "usd"),
}
"""Metrics of the whole job, by the figure each is and its unit."""
METRICS = (*STEP_FIGURES, *PARTS, *JOB_FIGURES)
_UNITS: dict[str, tuple[Unit, float]] = {
    "ns": ("ns", 1),
    "us": ("ns", 1e3),
    "ms": ("ns", 1e6),
    "s": ("ns", 1e9),
    "min": ("ns", 60e9),
    "h": ("ns", 3600e9),
    "b": ("bytes", 1),
    "kb": ("bytes", 1e3),
    "mb": ("bytes", 1e6),
    "gb": ("bytes", 1e9),
    "kib": ("bytes", 2**10),
    "mib": ("bytes", 2**20),
    "gib": ("bytes", 2**30),
    "usd": ("usd", 1),
    "/s": ("per_s", 1),
    "pp": ("ratio", 0.01),
    "%": ("ratio", 0.01),
}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_FORM = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|/s|[A-Za-z]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition that shall not hold."""

    text: str
    """As it was written."""
    metric: str
    unit: Unit
    """Of the metric."""
    of: Of
    operator: str
    threshold: float
    """In the metric's unit; a relative change as a ratio of the base."""

    def holds(self, number: float) -> bool:
        """Whether a value or change meets it."""
        return _OPERATORS[self.operator](number, self.threshold)


def parse_condition(text: str) -> Condition:
    """A condition from its text.

    Raises:
        UsageError: it cannot be understood.

    >>> parse_condition("step_time > +5%").of
    'relative change'
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no condition: write METRIC>+VALUE, such as step_time>+5%, "
            "data_wait>+3ms or step_time_p95>120ms."
        )
    metric, sign, written = match[1], match[3], match[5]
    if metric not in METRICS:
        raise UsageError(f"{metric!r} in {text!r} is no metric; there are {', '.join(METRICS)}.")
    unit = unit_of(metric)
    number = float(match[4]) * (-1 if sign == "-" else 1)
    of: Of = "change" if sign else "value"
    if written == "%" and (sign or unit != "ratio"):
        if not sign:
            raise UsageError(
                f"{text!r} does not say what it is a share of: write {metric}{match[2]}+"
                f"{match[4]}% for a change relative to the base."
            )
        return _condition(text, match, unit, of="relative change", threshold=number / 100)
    return _condition(text, match, unit, of=of, threshold=number * _scale(text, unit, written))


def unit_of(metric: str) -> Unit:
    """What a metric is measured in."""
    return JOB_FIGURES[metric][1] if metric in JOB_FIGURES else "ns"


def _condition(
    text: str, match: re.Match[str], unit: Unit, *, of: Of, threshold: float
) -> Condition:
    return Condition(
        text=text.strip(), metric=match[1], unit=unit, of=of, operator=match[2], threshold=threshold
    )


def _scale(text: str, unit: Unit, written: str) -> float:
    """Units of the metric in what was written."""
    if unit == "hours":  # which are the time of several machines
        found: tuple[Unit, float] | None = ("hours", 1) if written.lower() in {"h", ""} else None
    elif not written and unit in {"usd", "per_s"}:
        found = (unit, 1)
    else:
        found = _UNITS.get(written.lower())
    if found is None or found[0] != unit:
        fitting = ["h"] if unit == "hours" else [n for n, (of, _) in _UNITS.items() if of == unit]
        said = f"{written!r} is no unit" if written else "a unit is missing"
        raise UsageError(f"{said} in {text!r}: it is measured in {', '.join(fitting)}.")
    return found[1]
