"""Conditions on the difference of two runs: `stepscope compare BASE RUN --fail-if CONDITION`.

    METRIC OP [+|-]VALUE[UNIT]

    step_time>+5%        the mean step is more than 5% longer than in the base run
    data_wait>+3ms       the mean step waits more than 3 ms longer for batches
    step_time_p95>120ms  the 95th percentile of the step is above 120 ms
    gpu_busy<-5pp        GPUs are busy for 5 percentage points less of the time
    gpu_busy<60%         GPUs are busy for less than 60% of the time

A value with a sign is compared with the change, a value without one with the run itself.
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
Quantity = Literal["value", "change", "relative change"]

STEP_FIGURES = {"step_time": "mean", "step_time_p50": "p50", "step_time_p95": "p95"}
"""Figure of each metric of whole steps."""
PARTS = tuple(dict.fromkeys([*PHASES, *CATEGORIES]))
"""Metrics of parts of the mean step: phases, or categories of recorded steps."""
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
"""Figure and unit of each metric of the whole job."""
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
    """A condition that makes a comparison fail."""

    text: str
    """Text of the option."""
    metric: str
    unit: Unit
    """Unit of the metric."""
    quantity: Quantity
    """Quantity that is compared with the threshold."""
    operator: str
    threshold: float
    """Threshold in the metric's unit; of a relative change as a ratio of the base."""

    def is_met_by(self, number: float) -> bool:
        """Return whether a value or change meets the condition."""
        return _OPERATORS[self.operator](number, self.threshold)


def parse_condition(text: str) -> Condition:
    """Parse the text of a condition.

    Raises:
        UsageError: the text is not a condition.

    >>> parse_condition("step_time > +5%").quantity
    'relative change'
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a condition; use METRIC>+VALUE, such as step_time>+5%, "
            "data_wait>+3ms or step_time_p95>120ms."
        )
    metric, sign, suffix = match[1], match[3], match[5]
    if metric not in METRICS:
        raise UsageError(
            f"Unknown metric {metric!r} in {text!r}; available metrics: {', '.join(METRICS)}."
        )
    unit = get_unit(metric)
    number = float(match[4]) * (-1 if sign == "-" else 1)
    quantity: Quantity = "change" if sign else "value"
    if suffix == "%" and (sign or unit != "ratio"):
        if not sign:
            raise UsageError(
                f"{text!r} has a percentage without a sign; use {metric}{match[2]}+{match[4]}% for "
                "a change relative to the base."
            )
        quantity, threshold = "relative change", number / 100
    else:
        threshold = number * _find_scale(text, unit, suffix)
    return Condition(
        text=text.strip(),
        metric=metric,
        unit=unit,
        quantity=quantity,
        operator=match[2],
        threshold=threshold,
    )


def get_unit(metric: str) -> Unit:
    """Return the unit of a metric."""
    return JOB_FIGURES[metric][1] if metric in JOB_FIGURES else "ns"


def _find_scale(text: str, unit: Unit, suffix: str) -> float:
    """Find the factor from the unit of a condition's text to the unit of its metric."""
    if unit == "hours":  # machine hours, which are not a duration
        entry: tuple[Unit, float] | None = ("hours", 1) if suffix.lower() in {"h", ""} else None
    elif not suffix and unit in {"usd", "per_s"}:
        entry = (unit, 1)
    else:
        entry = _UNITS.get(suffix.lower())
    if entry is None or entry[0] != unit:
        names = [name for name, (dimension, _) in _UNITS.items() if dimension == unit]
        available = "h" if unit == "hours" else ", ".join(names)
        problem = f"Invalid unit {suffix!r}" if suffix else "Missing unit"
        raise UsageError(f"{problem} in {text!r}; available units: {available}.")
    return entry[1]
