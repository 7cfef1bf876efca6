"""Section on durations of steps and phases of outliers."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.analysis import (
    build_histogram,
    compute_pooled_median,
    make_duration_edges,
    select_durations_s,
    thin_out_steps,
)
from stepscope.quantities import count_of, duration, number
from stepscope.rules import RankDurations, StepOutlierDetails, shares_of_total
from stepscope.run import Rank
from stepscope.views.names import list_names
from stepscope.views.profiling_report.blocks import (
    Bars,
    Block,
    Cell,
    Histogram,
    Line,
    Lines,
    Listing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.building import (
    MAX_ROWS,
    MAX_SERIES,
    choose_time_unit,
    draw_durations,
    limit_items,
    make_number_columns,
    make_phase_pies,
    make_text_columns,
    round_figures,
)
from stepscope.views.profiling_report.rule_results import RuleResults

BINS = 100
POINTS = 200
"""Upper limit of the points of one rank in the chart over time."""
LISTED_STEPS = 20
MAX_DESCRIBED = 4
"""Ranks with the most outliers, which are described in a sentence each."""
MAX_NORMAL = 4
"""Upper limit of the ranks whose steps without outliers are drawn."""
ALL_PROFILED = "A profiler recorded every step, so no duration is undisturbed."
_FIGURES = ("mean", "max", "p99", "p95", "p50", "min")
_OUTLIERS = "the time of the outliers, ranks weighted by their number of outliers"
Ranks = Mapping[str, RankDurations]


def build_step_section(results: RuleResults) -> Section:
    """Build the section on durations of steps."""
    blocks = results.check("StepOutlier", sentences=False)
    details = results.details("StepOutlier", StepOutlierDetails)
    ranks = results.run.ranks
    if details and details.ranks:
        blocks += _describe_ranks(results, details.ranks)
    if ranks:
        blocks += [_draw_over_time(ranks), _draw_durations(ranks, results)]
    if details:
        blocks += _show_outliers(details.ranks)
    return Section(id="steps", title="Step duration analysis", blocks=blocks)


def _describe_ranks(results: RuleResults, ranks: Ranks) -> list[Block]:
    worst = sorted(ranks, key=lambda name: -ranks[name].outlier_count)
    shown, more = limit_items(worst, MAX_ROWS, "ranks")
    unit = choose_time_unit(min(rank.p50_s for rank in ranks.values()))
    sentences = [_describe_rank(results, name, ranks[name]) for name in shown[:MAX_DESCRIBED]]
    rows: list[list[Cell]] = [
        [
            name,
            *(unit.of_s(getattr(ranks[name], f"{figure}_s")) for figure in _FIGURES),
            ranks[name].outlier_count,
            ranks[name].step_count,
        ]
        for name in shown
    ]
    columns = [
        *make_text_columns("rank"),
        *make_number_columns(*_FIGURES, digits=2),
        *make_number_columns("outliers", "steps", digits=0),
    ]
    title = f"Step durations in [{unit.unit}]"
    return [Listing(items=sentences), Table(title=title, columns=columns, rows=rows, more=more)]


def _describe_rank(results: RuleResults, name: str, rank: RankDurations) -> str:
    parameters = results.rules["StepOutlier"].parameters
    numbers = [str(step) for step in rank.outlier_steps]
    steps = f" Steps: {list_names(numbers, LISTED_STEPS)}." if numbers else ""
    mean, deviation, bound = (
        duration(seconds * 1e9)
        for seconds in (rank.mean_s, rank.standard_deviation_s, rank.threshold_s)
    )
    return (
        f"{name}: mean duration of {parameters.mode or 'TRAIN'} steps {mean}. "
        f"{count_of(rank.outlier_count, 'step')} took longer than {bound}, the mean plus "
        f"{number(parameters.stddev)} standard deviations of {deviation}.{steps}"
    )


def _draw_durations(ranks: list[Rank], results: RuleResults) -> Block:
    rule = results.rules.get("StepOutlier")
    mode = rule.parameters.mode if rule else None
    durations_s = {rank.name: select_durations_s(rank.steps, mode) for rank in ranks}
    edges_s = make_duration_edges(*durations_s.values(), bins=BINS)
    if edges_s is None:
        return Text(text=ALL_PROFILED, tone="missing")
    unit = choose_time_unit(compute_pooled_median(durations_s.values()))
    shown, more = limit_items(list(durations_s), MAX_SERIES, "ranks")
    histograms = {name: build_histogram(durations_s[name], edges_s) for name in shown}
    return Histogram(
        title="Step durations by rank",
        axis="duration of a step",
        unit=unit.unit,
        digits=2,
        counted="steps",
        edges=round_figures(edges_s * unit.per_s),
        series=[
            Bars(
                name=name,
                counts=histogram.counts.tolist(),
                below_count=histogram.under_count,
                above_count=histogram.over_count,
            )
            for name, histogram in histograms.items()
        ],
        more=more,
    )


def _draw_over_time(ranks: list[Rank]) -> Lines:
    """Draw the slowest step of each group of adjacent steps, in at most `POINTS` groups."""
    unit = choose_time_unit(compute_pooled_median(rank.steps.wall_ns for rank in ranks) / 1e9)
    origin_ns = min(int(rank.steps.start[0]) for rank in ranks)
    shown, more = limit_items(ranks, MAX_SERIES, "ranks")
    longest = max(len(rank.steps) for rank in shown)
    lines = []
    for rank in shown:
        slowest = thin_out_steps(rank.steps, POINTS)
        x_s = (rank.steps.end[slowest] - origin_ns) / 1e9
        y = round_figures(rank.steps.wall_ns[slowest] / 1e9 * unit.per_s)
        lines.append(Line(name=rank.name, x=round_figures(x_s), y=y))
    return Lines(
        title="Step durations over time",
        x_axis="seconds after the start of the first step",
        y_axis="duration of a step",
        unit=unit.unit,
        digits=2,
        lines=lines,
        note=f"The slowest of every {-(-longest // POINTS)} steps is shown."
        if longest > POINTS
        else None,
        more=more,
    )


def _show_outliers(ranks: Ranks) -> list[Block]:
    outlying = {name: rank for name, rank in ranks.items() if rank.outlier_steps}
    if not outlying:
        return []
    weights: dict[str, float] = {}
    for rank in outlying.values():
        for phase, share in rank.outlier_phase_share_ratio.items():
            weights[phase] = weights.get(phase, 0.0) + share * len(rank.outlier_steps)
    text = "Phases of the outliers. Operators and kernels are known only for traced steps."
    normal = [
        draw_durations(
            rank.normal_steps_histogram,
            title=f"Normal steps of {name}, without its outliers",
            axis="duration of a step",
            counted="steps",
            series=name,
            median_s=rank.p50_s,
        )
        for name, rank in list(outlying.items())[:MAX_NORMAL]
    ]
    pies = make_phase_pies(shares_of_total(weights), "During outliers", _OUTLIERS)
    return [Text(text=text), *pies, *normal]
