"""`tensors`: numbers that the script logs, statistics of tensors, and findings about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from stepscope import analysis, intervals, quantities, rule_feed, schema
from stepscope.rules import NamedTensor, describe_origin, find_first_origin, name_tensors
from stepscope.run import LastStatistics, Run, read_last_statistics, read_scalars
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions
from stepscope.views.tensors.tensor import NO_TENSORS

MAX_TENSORS_OF_FINDING = 200
"""Limit of the tensors of a finding."""


class TensorOfFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Tensor that a finding names."""

    name: str
    rank: int | None
    """Null if the finding does not say it."""
    mode: str
    first_step: Annotated[int | None, schema.field_label(display="identifier")]
    """First step with a violation: the number of steps before it."""
    violation_count: int | None
    """Recorded steps with a violation; null for a rule that does not count them."""
    record_count: Annotated[int | None, schema.field_label("recorded steps")]


class TensorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Rule about tensors or losses that has fired."""

    rule: str
    sentences: list[str]
    recommendation: str
    first_after_ns: int | None
    """Time of the first data that violated the condition, after the run's origin."""
    tensors: list[TensorOfFinding]
    """Tensors that it names, at most 200."""


def list_tensor_findings(run: Run) -> list[TensorFinding]:
    """List the rules about tensors and losses that have fired, by the time of their data.

    A range of time selects among the findings of the whole run.
    """
    findings = [f for f in rule_feed.find_tensor_issues(run.reader) if _overlaps(f, run)]
    findings.sort(key=lambda finding: (finding.first_ns or 0, finding.rule))
    return [
        TensorFinding(
            rule=finding.rule,
            sentences=finding.sentences,
            recommendation=finding.recommendation,
            first_after_ns=None
            if finding.first_ns is None
            else run.clock.count_until(finding.first_ns),
            tensors=[_show(tensor) for tensor in name_tensors(finding)[:MAX_TENSORS_OF_FINDING]],
        )
        for finding in findings
    ]


class NamingRules:
    """Rules by the tensors that their findings name; a run may have 10,000 tensors.

    Args:
        findings: findings in the order in which the rules are listed.
    """

    def __init__(self, findings: Iterable[TensorFinding]) -> None:
        self._ranks: dict[tuple[str, str], dict[str, set[int | None]]] = {}
        """Ranks by name and mode of the tensor, and by rule; None for all."""
        for finding in findings:
            for tensor in finding.tensors:
                rules = self._ranks.setdefault((tensor.name, tensor.mode), {})
                rules.setdefault(finding.rule, set()).add(tensor.rank)

    def find(self, name: str, rank: int | None, mode: str) -> list[str]:
        """Return the rules whose findings name a tensor."""
        rules = self._ranks.get((name, mode), {})
        return [rule for rule, ranks in rules.items() if ranks & {None, rank or 0}]


def _overlaps(finding: schema.Finding, run: Run) -> bool:
    if run.is_whole or finding.first_ns is None or finding.last_ns is None:
        return True
    return finding.first_ns < run.period.end_ns and finding.last_ns >= run.period.start_ns


def _show(tensor: NamedTensor) -> TensorOfFinding:
    return TensorOfFinding(
        name=tensor.tensor,
        rank=tensor.rank,
        mode=tensor.mode,
        first_step=tensor.first_step,
        violation_count=tensor.violation_count,
        record_count=tensor.record_count,
    )


MAX_POINTS = 1000
"""Limit of the points of a series."""
MAX_ALL_POINTS = 30_000
"""Limit of the points of all series."""
SCALAR_DIGITS = 7
"""Significant digits of a point."""
DIGITS = 4
"""Significant digits of a norm."""
MAX_SERIES = 200
MAX_NORMS = 60
NO_SCALARS = 'nothing was logged: call `stepscope.scalar("loss", value)` in the training loop'
NO_SCALARS_IN_FILES = "traces contain no scalars or tensors"
MAX_TENSORS = 5000


class ScalarSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Values that one process logged under one name, in order of time."""

    name: str
    process: str
    rank: int | None
    statistics: analysis.Statistics | None
    """Distribution of the finite values."""
    nan_count: Annotated[int, schema.field_label("NaN")]
    """Values that are NaN or infinite."""
    values_per_point: Annotated[int, schema.field_label(unit="count")]
    """Number of values that a point averages; the last point may have fewer."""
    after_ns: list[int]
    """Time of each point's first value, after the run's origin."""
    step: Annotated[list[int] | None, schema.field_label(display="identifier")]
    """Step of each point's first value: the one that an imported file or XGBoost names, or the
    number of steps of the process that had ended; null where neither is known."""
    value: list[float | None]
    """Null for a point without a finite value."""
    non_finite_points: Annotated[
        list[int], schema.field_label("points with NaN or infinite", display="identifier")
    ]
    """Points of which a value was NaN or infinite."""


class RecordedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of one process: its values at the last recorded step."""

    name: str
    collection: str
    rank: int | None
    mode: str
    shape: str
    dtype: Annotated[str, schema.field_label("type")]
    record_count: Annotated[int, schema.field_label("recorded steps")]
    step: Annotated[int, schema.field_label("last step")]
    """Last recorded step: the number of steps before it."""
    mean: Annotated[float | None, schema.field_label(unit="none")]
    """Of the finite elements, as are the next four."""
    standard_deviation: Annotated[float | None, schema.field_label(unit="none")]
    min: Annotated[float | None, schema.field_label(unit="none")]
    max: Annotated[float | None, schema.field_label(unit="none")]
    l2: Annotated[float | None, schema.field_label("L2 norm", unit="none")]
    zero_ratio: float | None
    """Share of zeros in all elements."""
    update_ratio: Annotated[float | None, schema.field_label(unit="none")]
    """L2 norm of the change by the optimizer step, divided by that of the tensor."""
    non_finite_count: Annotated[int | None, schema.field_label("NaN and infinite")]
    """Elements that were NaN or infinite, over all recorded steps; null if unknown."""
    l2_by_step: Annotated[
        list[float | None], schema.field_label("L2 norm over steps", unit="none", display="curve")
    ]
    rules: Annotated[list[str], schema.field_label("findings")]
    """Rules that have fired and name the tensor."""


class TensorsView(Ranged, frozen=True, kw_only=True):
    """Payload of `tensors`."""

    sentence: str
    """Where a number was first NaN, else the rule that fired first, else the course of the loss;
    empty without data."""
    scalars: list[ScalarSeries]
    left_out_count: Annotated[int, schema.field_label("omitted series")]
    """Series that exceed the limit and are omitted."""
    tensors: list[RecordedTensor]
    """Those with NaN or infinite elements first, then those that findings name."""
    left_out_tensor_count: Annotated[int, schema.field_label("omitted tensors")]
    """Tensors that exceed the limit and are omitted."""
    tensors_missing: str | None
    findings: list[TensorFinding]
    """Rules about tensors and losses that have fired, by the time of their data."""
    nan_origin: Annotated[str | None, schema.field_label("origin of NaN")]
    """First operator with a NaN or infinite number; null if none was found or searched for."""
    nan_origin_step: Annotated[int | None, schema.field_label("step of it", display="identifier")]
    """Number of steps before its step."""
    missing: str | None


def explain_no_scalars(run: Run) -> str:
    """Explain why a run has neither scalars nor tensors."""
    return NO_SCALARS_IN_FILES if run.is_imported else NO_SCALARS


def show_tensors(run: Run, options: ViewOptions = DEFAULTS) -> TensorsView:
    """Show the numbers that the script logs, and the statistics of tensors."""
    logged = read_scalars(run, options.name)
    recorded = read_last_statistics(run, options.name, max_columns=MAX_NORMS)
    findings = list_tensor_findings(run)
    naming = NamingRules(findings)
    rules = {id(tensor): naming.find(tensor.name, tensor.rank, tensor.mode) for tensor in recorded}
    recorded.sort(key=lambda tensor: (not tensor.non_finite_count, not rules[id(tensor)]))
    max_points = min(MAX_POINTS, MAX_ALL_POINTS // max(1, min(MAX_SERIES, len(logged))))
    step_ends = (
        {rank.process.process: rank.steps.end for rank in run.whole_run.all_ranks} if logged else {}
    )
    origin = find_first_origin(run.processes)
    ranks = {process.process: process.rank for process in run.processes}
    scalars = [
        _show_series(
            series,
            ranks.get(series.process),
            run.clock.origin_ns,
            step_ends.get(series.process),
            max_points,
        )
        for series in logged[:MAX_SERIES]
    ]
    return TensorsView(
        sentence=_write_sentence(run, origin, findings, scalars, len(recorded)),
        scalars=scalars,
        left_out_count=max(0, len(logged) - MAX_SERIES),
        tensors=[_show_tensor(tensor, rules[id(tensor)]) for tensor in recorded[:MAX_TENSORS]],
        left_out_tensor_count=max(0, len(recorded) - MAX_TENSORS),
        tensors_missing=None if recorded else NO_TENSORS,
        findings=findings,
        nan_origin=None if origin is None else describe_origin(origin),
        nan_origin_step=None if origin is None else origin.step,
        missing=None if logged or recorded or origin else explain_no_scalars(run),
    )


def _write_sentence(
    run: Run,
    origin: schema.NanOriginFact | None,
    findings: list[TensorFinding],
    scalars: list[ScalarSeries],
    tensor_count: int,
) -> str:
    """Write what is wrong with the numbers of the model, and where it began."""
    if origin is not None:
        return describe_origin(origin).partition(". ")[0].removesuffix(".") + "."
    if findings:
        first = findings[0]
        tensor = next((tensor for tensor in first.tensors if tensor.first_step is not None), None)
        location = "" if tensor is None else f", at step {tensor.first_step} in {tensor.name}"
        if len(findings) == 1:
            return f"{first.rule} fired{location}."
        return f"{len(findings)} rules fired, {first.rule} first{location}."
    if not scalars and not tensor_count:
        return ""
    inside = "" if run.is_whole else " in this range"
    loss = next((series for series in scalars if "loss" in series.name.lower()), None)
    values = [value for value in loss.value if value is not None] if loss is not None else []
    if loss is not None and loss.nan_count:
        verb = "is" if loss.nan_count == 1 else "are"
        values_of = f"{quantities.count_of(loss.nan_count, 'value')} of {loss.name}"
        return f"{values_of} {verb} NaN or infinite; no rule about tensors or losses fired{inside}."
    if loss is None or len(values) < 2:
        tensors = quantities.count_of(tensor_count, "tensor")
        return f"No rule about {tensors} or a loss fired{inside}."
    begin, end = (quantities.number(value) for value in (values[0], values[-1]))
    verb = "falls" if values[-1] < values[0] else "rises"
    trend = f"{verb} from {begin} to {end}" if begin != end else f"begins and ends at {end}"
    return f"{loss.name} {trend}. No rule about tensors or losses fired{inside}."


def _show_tensor(tensor: LastStatistics, rules: list[str]) -> RecordedTensor:
    last = tensor.last
    return RecordedTensor(
        name=tensor.name,
        collection=tensor.collection,
        rank=tensor.rank,
        mode=tensor.mode,
        shape=tensor.shape,
        dtype=tensor.dtype,
        record_count=tensor.record_count,
        step=tensor.step,
        mean=last["mean"],
        standard_deviation=last["std"],
        min=last["min"],
        max=last["max"],
        l2=last["l2"],
        zero_ratio=last["zero_ratio"],
        update_ratio=last["update_ratio"],
        non_finite_count=tensor.non_finite_count,
        l2_by_step=analysis.round_significant(tensor.l2, DIGITS),
        rules=rules,
    )


def _show_series(
    series: analysis.LoggedScalars,
    rank: int | None,
    origin_ns: int,
    step_ends: intervals.Int | None,
    max_points: int,
) -> ScalarSeries:
    values_per_point, means = analysis.downsample_columns(series.value, max_points)
    steps = series.count_steps(step_ends)
    return ScalarSeries(
        name=series.name,
        process=series.process,
        rank=rank,
        statistics=analysis.summarize(series.value),
        nan_count=series.nan_count,
        values_per_point=values_per_point,
        after_ns=(series.t_ns[::values_per_point] - origin_ns).tolist(),
        step=None if steps is None else steps[::values_per_point].tolist(),
        value=analysis.round_significant(means, SCALAR_DIGITS),
        non_finite_points=series.non_finite_groups(values_per_point),
    )
