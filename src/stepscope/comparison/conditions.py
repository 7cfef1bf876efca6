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
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec

from stepscope import analysis, cost, diagnosis, errors, quantities, rule_feed, rules, schema
from stepscope.comparison.before_after import Side
from stepscope.run import Run, job_statistics, machine_count, read_job_time

Unit = Literal["ns", "ratio", "bytes", "usd", "per_s", "hours"]
Quantity = Literal["value", "change", "relative change"]

STEP_FIGURES = {"step_time": "mean", "step_time_p50": "p50", "step_time_p95": "p95"}
"""Figure of each metric of whole steps."""
PARTS = tuple(dict.fromkeys([*analysis.PHASES, *analysis.CATEGORIES]))
"""Metrics of parts of the mean step: phases, or categories of recorded steps."""
JOB_FIGURES: dict[str, tuple[str, Unit]] = {
    "wall_time": ("wall time", "ns"),
    "time_to_first_step": ("time to first step", "ns"),
    "goodput": ("goodput", "ratio"),
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


class Condition(msgspec.Struct, frozen=True, kw_only=True):
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
        raise errors.UsageError(
            f"{text!r} is not a condition; use METRIC>+VALUE, such as step_time>+5%, "
            "data_wait>+3ms or step_time_p95>120ms."
        )
    metric, sign, suffix = match[1], match[3], match[5]
    if metric not in METRICS:
        raise errors.UsageError(
            f"Unknown metric {metric!r} in {text!r}; available metrics: {', '.join(METRICS)}."
        )
    unit = get_unit(metric)
    number = float(match[4]) * (-1 if sign == "-" else 1)
    quantity: Quantity = "change" if sign else "value"
    if suffix == "%" and (sign or unit != "ratio"):
        if not sign:
            raise errors.UsageError(
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
        raise errors.UsageError(f"{problem} in {text!r}; available units: {available}.")
    return entry[1]


NS_PER_HOUR = 3.6e12
SCOPE = (
    "the whole run on all machines, start-up and finalization included; steps are those of the "
    "rank with the most, per second of the time from the first step to the last"
)


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of a figure of the whole job; null where a run does not have it."""

    name: Annotated[str, schema.field_label("figure")]
    unit: str
    base_value: Annotated[float | None, schema.field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[float | None, schema.field_label("to")] = msgspec.field(name="other")
    change_ratio: float | None
    """Change relative to the base; negative for a decrease."""


def compare_figures(base_run: Run, other_run: Run) -> list[FigureChange]:
    """Compare the figures of two jobs."""
    return compare_measured(measure_figures(base_run), measure_figures(other_run))


Figures = dict[tuple[str, Unit | Literal["count"]], float | None]
"""Figures of a job by name and unit; None where the run does not have one."""


def compare_measured(base_figures: Figures, other_figures: Figures) -> list[FigureChange]:
    """Compare the measured figures of two jobs."""
    return [
        _make_change(name, unit, value, other_figures.get((name, unit)))
        for (name, unit), value in base_figures.items()
        if value is not None or other_figures.get((name, unit)) is not None
    ]


def _make_change(
    name: str, unit: str, base_value: float | None, other_value: float | None
) -> FigureChange:
    change_ratio = None
    if base_value and other_value is not None:
        change_ratio = (other_value - base_value) / base_value
    return FigureChange(
        name=name,
        unit=unit,
        base_value=base_value,
        other_value=other_value,
        change_ratio=change_ratio,
    )


def measure_figures(run: Run) -> Figures:
    """Measure the figures of one run, by name and unit."""
    job = job_statistics(run)
    count = machine_count(run.reader)
    priced = cost.price_job(
        run.reader.info, run.nodes.values(), instance_count=count, duration_ns=job.duration_ns
    )
    time = read_job_time(run)
    has_all_steps = job.training_ns is not None
    steps = max((len(rank.steps) for rank in run.ranks), default=0) if has_all_steps else 0
    return {
        ("wall time", "ns"): float(job.duration_ns),
        ("time to first step", "ns"): None
        if time.first_step_ns is None
        else float(time.first_step_ns),
        ("goodput", "ratio"): time.goodput_ratio,
        ("training", "ns"): None if job.training_ns is None else float(job.training_ns),
        ("steps", "count"): float(steps) if steps else None,
        ("steps per second", "per_s"): steps / job.training_ns * 1e9
        if steps and job.training_ns
        else None,
        ("GPU busy", "ratio"): run.mean_over_nodes("gpu_busy_ratio"),
        ("GPU memory", "bytes"): run.mean_over_nodes("gpu_memory_used_bytes"),
        ("CPU busy", "ratio"): run.mean_over_nodes("cpu_busy_ratio"),
        ("I/O wait", "ratio"): run.mean_over_nodes("cpu_iowait_ratio"),
        ("memory", "bytes"): run.mean_over_nodes("memory_used_bytes"),
        ("machines", "count"): float(count) if count else None,
        ("machine hours", "hours"): count * job.duration_ns / NS_PER_HOUR if count else None,
        ("cost", "usd"): None if isinstance(priced, str) else priced.job_usd,
    }


ROUNDING_DIGITS = 9
"""Smaller differences from a target are rounding of the ratio."""
Statuses = Mapping[str, schema.RuleStatus]
"""Status by rule."""


class TargetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A target that the verdict on the first run states, and the second run."""

    name: Annotated[diagnosis.TargetName, schema.field_label("target")]
    text: Annotated[str, schema.field_label("expected after the fix")]
    base_value: Annotated[str, schema.field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[str, schema.field_label("to")] = msgspec.field(name="other")
    is_reached: Annotated[bool | None, schema.field_label("reached")]
    """Null where the second run does not tell."""


def evaluate_targets(
    base_run: Run, other_run: Run, base_side: Side, other_side: Side
) -> list[TargetOutcome]:
    """Evaluate the targets of the verdict on the first run; none where it states none.

    Args:
        base_run, other_run: runs before and after the fix.
        base_side, other_side: their figures.
    """
    verdict, other_verdict = (
        base_run.derive(rule_feed.make_verdict),
        other_run.derive(rule_feed.make_verdict),
    )
    if not verdict.targets:
        return []
    texts = {target.name: target.text for target in verdict.targets}
    gpu_ratio, data_ratio = other_side.gpu_mean, other_verdict.get_share("data_pipeline")
    statuses, other_statuses = _check(base_run), _check(other_run)
    values: dict[diagnosis.TargetName, tuple[str, str, bool | None]] = {
        "gpu_utilization": (
            _write_ratio(base_side.gpu_mean, diagnosis.MIN_GPU_RATIO),
            _write_ratio(gpu_ratio, diagnosis.MIN_GPU_RATIO),
            None
            if gpu_ratio is None
            else round(gpu_ratio, ROUNDING_DIGITS) >= diagnosis.MIN_GPU_RATIO,
        ),
        "data_loading": (
            _write_ratio(verdict.get_share("data_pipeline"), diagnosis.MAX_DATA_RATIO),
            _write_ratio(data_ratio, diagnosis.MAX_DATA_RATIO),
            None
            if data_ratio is None
            else round(data_ratio, ROUNDING_DIGITS) < diagnosis.MAX_DATA_RATIO,
        ),
        "rules": (
            _write_statuses(statuses),
            _write_statuses(other_statuses),
            _are_quiet(statuses, other_statuses),
        ),
    }
    return [
        TargetOutcome(
            name=name,
            text=texts[name],
            base_value=base_value,
            other_value=other_value,
            is_reached=is_reached,
        )
        for name, (base_value, other_value, is_reached) in values.items()
    ]


def _check(run: Run) -> Statuses:
    findings = rule_feed.check_rules(
        run.reader, rule_feed.choose_rules(diagnosis.TARGET_RULES)
    ).findings
    return {finding.rule: finding.status for finding in findings}


def _are_quiet(before: Statuses, after: Statuses) -> bool | None:
    """Return whether the rules find no issue any more; None where one that had found one before, or
    each of them, cannot tell."""
    if schema.RuleStatus.ISSUES_FOUND in after.values():
        return False
    fired = [rule for rule, status in before.items() if status is schema.RuleStatus.ISSUES_FOUND]
    quiet = {rule for rule, status in after.items() if status is schema.RuleStatus.NO_ISSUES_FOUND}
    return True if quiet and quiet.issuperset(fired) else None


def _write_statuses(statuses: Statuses) -> str:
    fired_count = sum(status is schema.RuleStatus.ISSUES_FOUND for status in statuses.values())
    quiet_count = sum(status is schema.RuleStatus.NO_ISSUES_FOUND for status in statuses.values())
    silent = [
        rule for rule, status in statuses.items() if status is schema.RuleStatus.NOT_APPLICABLE
    ]
    note = f" ({' and '.join(silent)} not applicable)" if silent else ""
    return f"issues found by {fired_count} of {fired_count + quiet_count}{note}"


def _write_ratio(ratio: float | None, limit: float) -> str:
    return quantities.MISSING if ratio is None else rules.percent_beside(ratio, 100 * limit, 0)
