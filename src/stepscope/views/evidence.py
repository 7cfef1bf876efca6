"""What was measured around the time of a finding, to be plotted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stepscope.analysis import PHASES, nan_to_none
from stepscope.intervals import Int
from stepscope.run import BinSeries, Rank, Run, aggregate_samples, choose_bins
from stepscope.schema import METRIC_TYPES, Finding
from stepscope.views.insights_payload import EvidenceChart, EvidenceSeries

_ALWAYS = (0, np.iinfo(np.int64).max)
"""A finding about the whole run says no time."""
MARGIN_NS = 120_000_000_000
"""So much before and after a finding is shown too."""
POINTS = 300
MOST_SERIES = 8
STEP = "step"
"""What whole steps are called among the plots of a rule; parts of them by their phase."""


def charts(
    run: Run, finding: Finding, plots: Sequence[str], *, scan_ns: int, origin_ns: int
) -> list[EvidenceChart]:
    """One chart for each unit of what a rule looked at.

    Args:
        signals: of the run.
        finding: of a rule that fired.
        plots: metrics, phases of steps, or `STEP`.
        scan_ns: a scan begins so much before the time that a finding has.
        origin_ns: what times count from.
    """
    within = _ALWAYS
    if finding.first_ns is not None and finding.last_ns is not None:
        within = finding.first_ns - scan_ns - MARGIN_NS, finding.last_ns + MARGIN_NS
    found = [
        *_of_metrics(run, finding, [p for p in plots if p in METRIC_TYPES], within, origin_ns),
        *_of_steps(run, finding, [p for p in plots if p in {STEP, *PHASES}], within, origin_ns),
    ]
    by_unit: dict[str, list[EvidenceSeries]] = {}
    for unit, series in found:
        by_unit.setdefault(unit, []).append(series)
    return [_chart(unit, series) for unit, series in by_unit.items()]


def _chart(unit: str, series: list[EvidenceSeries]) -> EvidenceChart:
    shown = series[:MOST_SERIES]
    times = [after for one in shown for after in (one.after_ns[0], one.after_ns[-1])]
    names = dict.fromkeys(one.name.replace("_", " ") for one in shown)
    return EvidenceChart(
        title=", ".join(names),
        unit=unit,
        from_after_ns=min(times),
        to_after_ns=max(times),
        series=shown,
        left_out_count=len(series) - len(shown),
    )


def _of_metrics(
    run: Run,
    finding: Finding,
    metrics: Sequence[str],
    within: tuple[int, int],
    origin_ns: int,
) -> Iterator[tuple[str, EvidenceSeries]]:
    bins = choose_bins(run, POINTS, within=within) if metrics else None
    if bins is None:
        return
    found = aggregate_samples(run.reader, bins, metrics, nodes=finding.nodes)
    begin = bins.start_ns - origin_ns
    after = [begin + place * bins.width_ns for place in range(bins.count)]
    for series in sorted(found, key=lambda each: not _concerns(finding, each)):
        unit = METRIC_TYPES[series.metric].unit
        yield (
            unit,
            EvidenceSeries(
                name=series.metric.removesuffix(f"_{unit}"),
                node=series.node,
                device=series.device,
                after_ns=after,
                value=nan_to_none(series.mean),
            ),
        )


def _concerns(finding: Finding, series: BinSeries) -> bool:
    """Whether a rule fired on this device; a node's own series concerns all of it."""
    return not series.device or f"{series.node}/{series.device}" in finding.devices


def _of_steps(
    run: Run,
    finding: Finding,
    parts: Sequence[str],
    within: tuple[int, int],
    origin_ns: int,
) -> Iterator[tuple[str, EvidenceSeries]]:
    if not parts:
        return
    ranks = [rank for rank in run.ranks if not finding.ranks or rank.name in finding.ranks]
    for rank in ranks:
        for part in parts:
            series = _steps_of(rank, part, within, origin_ns)
            if series is not None:
                yield "ns", series


def _steps_of(
    rank: Rank, part: str, within: tuple[int, int], origin_ns: int
) -> EvidenceSeries | None:
    """Durations of steps, or means of consecutive ones where there are many."""
    steps = rank.steps.starting_within(*within)
    if not len(steps):
        return None
    durations: Int = steps.wall_ns if part == STEP else steps.phase_ns[part]
    together = -(-len(steps) // POINTS)
    first = np.arange(0, len(steps), together)
    counts = np.diff(np.append(first, len(steps)))
    return EvidenceSeries(
        name=part,
        node=rank.process.node,
        device=rank.name,
        after_ns=(steps.start[first] - origin_ns).tolist(),
        value=(np.add.reduceat(durations, first) / counts).tolist(),
    )
