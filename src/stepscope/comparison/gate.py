"""Gate of a comparison: whether the runs are comparable and the conditions are met."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from stepscope import analysis, errors, quantities
from stepscope.comparison.conditions import JOB_FIGURES, STEP_FIGURES, Condition, FigureChange, Unit
from stepscope.comparison.step_changes import StepChange
from stepscope.comparison.workload_contract import GROUPS, ContractGroup, ContractTerms
from stepscope.quantities import duration

ALL = "all"
Outcome = Literal["passed", "failed", "unknown"]
GateOutcome = Literal["passed", "failed", "not comparable"]


class ConditionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one condition of `--fail-if`."""

    condition: str
    outcome: Outcome
    """`failed` where the condition is met; `unknown` where a run lacks the figure."""
    explanation: str = msgspec.field(name="said")
    """One sentence with the numbers."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Decision of a comparison with conditions."""

    outcome: GateOutcome
    explanation: str = msgspec.field(name="said")
    allowed: list[str]
    """Groups of the contract that may differ."""
    conditions: list[ConditionResult]


def parse_allowed_groups(names: Sequence[str]) -> frozenset[ContractGroup]:
    """Parse groups of the contract by name; `all` stands for all of them.

    Raises:
        UsageError: there is no group of a name.
    """
    for name in names:
        if name not in {*GROUPS, ALL}:
            raise errors.UsageError(
                f"Unknown group {name!r}; available groups: {', '.join(GROUPS)}, {ALL}."
            )
    return frozenset(group for group in GROUPS if group in names or ALL in names)


def evaluate_gate(
    conditions: Sequence[Condition],
    terms: Sequence[ContractTerms],
    *,
    steps: tuple[Sequence[StepChange], Sequence[StepChange]] | None,
    figures: Sequence[FigureChange],
    allowed: Collection[ContractGroup],
    strict: bool,
    quality_issues: Sequence[str],
) -> Gate:
    """Evaluate conditions, each of which makes the comparison fail.

    Args:
        terms: the contract of the two runs.
        steps: figures of whole steps, and parts of the mean step; None where the runs have no
            comparable steps.
        figures: figures of the whole jobs.
        allowed: groups of the contract that may differ.
        strict: changes of steps within noise count as well.
        quality_issues: reasons why figures may not be those of the programs.
    """
    step_metrics = _index_step_metrics(*steps) if steps is not None else {}
    job_figures = {figure.name: figure for figure in figures}
    results = [
        _evaluate_condition(condition, step_metrics, job_figures, strict=strict)
        for condition in conditions
    ]
    different = [
        group.group
        for group in terms
        if group.standing == "different" and group.group not in allowed
    ]
    outcome, explanation = _decide(results, different, quality_issues)
    return Gate(
        outcome=outcome, explanation=explanation, allowed=sorted(allowed), conditions=results
    )


def _decide(
    results: Sequence[ConditionResult],
    different: Sequence[ContractGroup],
    quality_issues: Sequence[str],
) -> tuple[GateOutcome, str]:
    failed = [result.condition for result in results if result.outcome == "failed"]
    unknown = [result.condition for result in results if result.outcome == "unknown"]
    if different:
        return "not comparable", (
            f"the runs did not do the same work: {', '.join(different)} differ; if that is "
            f"intended, add --allow-different {different[0]}"
        )
    if quality_issues:
        return "not comparable", quality_issues[0]
    if failed:
        return "failed", f"failed: {', '.join(failed)}"
    if unknown:
        return "not comparable", f"a run has no data for {', '.join(unknown)}"
    return "passed", f"{len(results)} of {len(results)} conditions passed"


def _index_step_metrics(
    figures: Sequence[StepChange], parts: Sequence[StepChange]
) -> dict[str, StepChange]:
    by_name = {figure.name: figure for figure in figures}
    metrics = {metric: by_name[name] for metric, name in STEP_FIGURES.items()}
    return metrics | {part.name: part for part in parts}


def _evaluate_condition(
    condition: Condition,
    step_metrics: Mapping[str, StepChange],
    job_figures: Mapping[str, FigureChange],
    *,
    strict: bool,
) -> ConditionResult:
    if condition.metric in JOB_FIGURES:
        figure = job_figures.get(JOB_FIGURES[condition.metric][0])
        return _evaluate_job_figure(condition, figure)
    metric = step_metrics.get(condition.metric)
    if metric is not None:
        return _evaluate_step_metric(condition, metric, strict=strict)
    if condition.metric in _list_possible_parts(step_metrics):
        outcome = _convert(condition.is_met_by(0.0))
        return _make_result(condition, outcome, "no step of either run has this part")
    return _make_result(condition, "unknown", "the steps of the two runs cannot be compared")


def _list_possible_parts(step_metrics: Mapping[str, StepChange]) -> Collection[str]:
    """List the parts that such steps can have: phases, or categories of recorded steps."""
    parts = step_metrics.keys() - STEP_FIGURES
    return next(
        (names for names in (analysis.PHASES, analysis.CATEGORIES) if parts and parts <= {*names}),
        (),
    )


def _evaluate_step_metric(
    condition: Condition, metric: StepChange, *, strict: bool
) -> ConditionResult:
    numbers = _format_numbers(metric.base_ns, metric.other_ns, "ns")
    if condition.quantity == "value":
        return _make_result(condition, _convert(condition.is_met_by(metric.other_ns)), numbers)
    estimate_ns = metric.estimate_ns
    quantity = _compute_quantity(condition, metric.base_ns, metric.base_ns + estimate_ns)
    is_met = condition.is_met_by(quantity)
    if estimate_ns != metric.other_ns - metric.base_ns:
        share = (
            f" ({quantities.relative_change(estimate_ns / metric.base_ns)})"
            if metric.base_ns
            else ""
        )
        numbers += f"; {_format_change(estimate_ns, 'ns')}{share} over all runs"
    if metric.low_ns is None or metric.high_ns is None or metric.noise_ns is None:
        outcome: Outcome = "unknown" if is_met and not strict else _convert(is_met)
        return _make_result(condition, outcome, f"{numbers}; too few steps to know the noise")
    noise = (
        f"interval {_format_change(metric.low_ns, 'ns')} to "
        f"{_format_change(metric.high_ns, 'ns')}, noise floor {duration(metric.noise_ns)}"
    )
    if not metric.beyond_noise and _is_below_noise(condition, metric.base_ns, metric.noise_ns):
        noise += ", above the threshold of the condition: record several runs of each program"
    if not is_met:
        return _make_result(condition, "passed", f"{numbers}; {noise}")
    if metric.beyond_noise:
        return _make_result(condition, "failed", f"{numbers}, beyond noise; {noise}")
    if strict:
        return _make_result(
            condition, "failed", f"{numbers}, within noise, which counts with --strict; {noise}"
        )
    return _make_result(condition, "passed", f"{numbers}, within noise; {noise}")


def _is_below_noise(condition: Condition, base_ns: float, noise_ns: float) -> bool:
    """Return whether a change that just meets the condition is within the noise floor."""
    if condition.quantity == "relative change":
        return 0 < abs(condition.threshold) * base_ns < noise_ns
    return condition.quantity == "change" and 0 < abs(condition.threshold) < noise_ns


def _evaluate_job_figure(condition: Condition, figure: FigureChange | None) -> ConditionResult:
    if (
        figure is None
        or figure.other_value is None
        or (figure.base_value is None and condition.quantity != "value")
    ):
        return _make_result(condition, "unknown", "a run does not have this figure")
    base_value = figure.other_value if figure.base_value is None else figure.base_value
    quantity = _compute_quantity(condition, base_value, figure.other_value)
    numbers = _format_numbers(base_value, figure.other_value, condition.unit)
    outcome = _convert(condition.is_met_by(quantity))
    return _make_result(condition, outcome, f"{numbers}; its noise is not known")


def _compute_quantity(condition: Condition, base_value: float, other_value: float) -> float:
    """Compute the quantity that the condition is compared with."""
    if condition.quantity == "value":
        return other_value
    if condition.quantity == "change":
        return other_value - base_value
    if base_value:
        return (other_value - base_value) / abs(base_value)
    if other_value == base_value:
        return 0.0
    return float("inf") if other_value > base_value else float("-inf")


def _convert(is_met: bool) -> Outcome:
    return "failed" if is_met else "passed"


def _make_result(condition: Condition, outcome: Outcome, explanation: str) -> ConditionResult:
    return ConditionResult(condition=condition.text, outcome=outcome, explanation=explanation)


def _format_numbers(base_value: float, other_value: float, unit: Unit) -> str:
    difference = other_value - base_value
    share = f" ({quantities.relative_change(difference / abs(base_value))})" if base_value else ""
    values = f"{_format_value(base_value, unit)} to {_format_value(other_value, unit)}"
    return f"{values}: {_format_change(difference, unit)}{share}"


def _format_change(value: float, unit: Unit) -> str:
    if unit == "ratio":
        return quantities.change(value, "ratio")
    return f"{'+' if value > 0 else ''}{_format_value(value, unit)}"


def _format_value(value: float, unit: Unit) -> str:
    match unit:
        case "ns":
            return duration(value)
        case "ratio":
            return quantities.percent(value, 1)
        case "bytes":
            return quantities.memory(value)
        case "usd":
            return quantities.dollars(value)
        case "per_s":
            return f"{quantities.number(value)} /s"
        case "hours":
            return f"{quantities.number(value)} h"
