"""Measurements around the time of a finding, for charts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stepscope.analysis import PHASES, downsample_columns, nan_to_none
from stepscope.run import BinSeries, Rank, Run, aggregate_samples, choose_bins
from stepscope.schema import METRIC_TYPES, Finding
from stepscope.views.insights_payload import EvidenceChart, EvidenceSeries

MARGIN_NS = 120_000_000_000
"""Time before and after a finding that is included."""
MAX_POINTS = 300
MAX_SERIES = 8
STEP = "step"
"""Name of whole steps among the plots of a rule; parts of steps have the name of their phase."""


class _Scope(NamedTuple):
    """Part of a run that a finding is about."""

    finding: Finding
    start_ns: int
    end_ns: int
    origin_ns: int


def make_charts(
    run: Run, finding: Finding, plots: Sequence[str], *, origin_ns: int
) -> list[EvidenceChart]:
    """Make one chart for each unit of the measurements that a rule reads.

    Args:
        run: the run.
        finding: finding of a rule that fired.
        plots: metrics, phases of steps, or `STEP`.
        origin_ns: origin of the times of the charts.
    """
    start_ns, end_ns = 0, sys.maxsize  # a finding about the whole run has no time
    if finding.first_ns is not None and finding.last_ns is not None:
        start_ns = finding.first_ns - MARGIN_NS
        end_ns = finding.last_ns + MARGIN_NS
    scope = _Scope(finding, start_ns, end_ns, origin_ns)
    by_unit: dict[str, list[EvidenceSeries]] = {}
    for unit, series in [
        *_read_metrics(run, scope, [plot for plot in plots if plot in METRIC_TYPES]),
        *_read_steps(run, scope, [plot for plot in plots if plot in {STEP, *PHASES}]),
    ]:
        by_unit.setdefault(unit, []).append(series)
    return [_make_chart(unit, series) for unit, series in by_unit.items()]


def _make_chart(unit: str, series: list[EvidenceSeries]) -> EvidenceChart:
    shown = series[:MAX_SERIES]
    names = dict.fromkeys(line.name.replace("_", " ") for line in shown)
    return EvidenceChart(
        title=", ".join(names),
        unit=unit,
        from_after_ns=min(line.after_ns[0] for line in shown),
        to_after_ns=max(line.after_ns[-1] for line in shown),
        series=shown,
        left_out_count=len(series) - len(shown),
    )


def _read_metrics(
    run: Run, scope: _Scope, metrics: Sequence[str]
) -> Iterator[tuple[str, EvidenceSeries]]:
    """Read metrics with their units, those that concern the finding first."""
    within = (scope.start_ns, scope.end_ns)
    bins = choose_bins(run, MAX_POINTS, within=within) if metrics else None
    if bins is None:
        return
    finding = scope.finding
    all_series = aggregate_samples(run.reader, bins, metrics, nodes=finding.nodes)
    start = bins.start_ns - scope.origin_ns
    after_ns = [start + index * bins.width_ns for index in range(bins.count)]
    for series in sorted(all_series, key=lambda series: not _concerns(finding, series)):
        unit = METRIC_TYPES[series.metric].unit
        line = EvidenceSeries(
            name=series.metric.removesuffix(f"_{unit}"),
            node=series.node,
            device=series.device,
            after_ns=after_ns,
            value=nan_to_none(series.mean),
        )
        yield unit, line


def _concerns(finding: Finding, series: BinSeries) -> bool:
    """Return True if a finding concerns a device; it concerns series of the whole node."""
    return not series.device or f"{series.node}/{series.device}" in finding.devices


def _read_steps(
    run: Run, scope: _Scope, parts: Sequence[str]
) -> Iterator[tuple[str, EvidenceSeries]]:
    """Read durations of steps and of their phases with their unit."""
    if not parts:
        return
    ranks = scope.finding.ranks
    for rank in [rank for rank in run.all_ranks if not ranks or rank.name in ranks]:
        for part in parts:
            series = _read_durations(rank, part, scope)
            if series is not None:
                yield "ns", series


def _read_durations(rank: Rank, part: str, scope: _Scope) -> EvidenceSeries | None:
    """Read durations of steps, or means of consecutive steps where there are many."""
    steps = rank.steps.starting_within(scope.start_ns, scope.end_ns)
    if not len(steps):
        return None
    durations = steps.wall_ns if part == STEP else steps.phase_ns[part]
    group_size, means = downsample_columns(durations, MAX_POINTS)
    return EvidenceSeries(
        name=part,
        node=rank.process.node,
        device=rank.name,
        after_ns=(steps.start[::group_size] - scope.origin_ns).tolist(),
        value=means.tolist(),
    )
