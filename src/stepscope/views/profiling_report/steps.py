"""Durations of steps and phases of outliers."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.analysis import (
    build_histogram,
    compute_pooled_median,
    make_duration_edges,
    select_durations_s,
    thin_out_steps,
)
from stepscope.rules import RankDurations, StepOutlierDetails, shares_of_total
from stepscope.run import Rank
from stepscope.views.profiling_report.blocks import (
    Bars,
    Block,
    Cell,
    Column,
    Histogram,
    Line,
    Lines,
    Listing,
    Missing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.evaluated import Evaluated
from stepscope.views.profiling_report.words import (
    MAX_ROWS,
    MAX_SERIES,
    TimeUnit,
    figures,
    first,
    listed,
    phase_pies,
    time_unit,
)

BINS = 100
POINTS = 200
"""Steps of one rank in the chart over time; of a longer run the slowest of each piece."""
LISTED_STEPS = 20
TOLD = 4
"""Ranks with a sentence of their own, those with most outliers."""
MAX_NORMAL = 4
"""Ranks whose steps without the outliers are drawn."""
_FIGURES = ("mean", "max", "p99", "p95", "p50", "min")
Ranks = Mapping[str, RankDurations]


def step_section(evaluated: Evaluated) -> Section:
    """Step duration analysis."""
    blocks = evaluated.check("StepOutlier", sentences=False)
    details = evaluated.details("StepOutlier", StepOutlierDetails)
    ranks: Ranks = details.ranks if details else {}
    training_ranks = evaluated.run.ranks
    blocks += _per_rank(evaluated, ranks) if ranks else []
    blocks += _over_time(training_ranks) if training_ranks else []
    blocks += _durations(training_ranks, evaluated) if training_ranks else []
    blocks += _outliers(ranks)
    return Section(id="steps", title="Step duration analysis", blocks=blocks)


def _per_rank(evaluated: Evaluated, ranks: Ranks) -> list[Block]:
    worst = sorted(ranks, key=lambda name: -ranks[name].outlier_count)
    shown, more = first(worst, MAX_ROWS, "ranks")
    unit = time_unit(min(ranks[name].p50_s for name in ranks))
    listing = Listing(
        items=[_sentence(evaluated, name, ranks[name], unit) for name in shown[:TOLD]]
    )
    rows: list[list[Cell]] = [
        [
            name,
            *(unit.of_s(getattr(ranks[name], f"{figure}_s")) for figure in _FIGURES),
            ranks[name].outlier_count,
            ranks[name].step_count,
        ]
        for name in shown
    ]
    table = Table(
        title=f"Step durations in [{unit.unit}]",
        columns=[
            Column(label="rank"),
            *(Column(label=label, digits=2) for label in _FIGURES),
            Column(label="outliers", digits=0),
            Column(label="steps", digits=0),
        ],
        rows=rows,
        more=more,
    )
    return [listing, table]


def _sentence(evaluated: Evaluated, name: str, rank: RankDurations, unit: TimeUnit) -> str:
    parameters = evaluated.rules["StepOutlier"].parameters
    numbers = [str(number) for number in rank.outlier_steps]
    numbers_sentence = f" They are the steps {listed(numbers, LISTED_STEPS)}." if numbers else ""
    mode = parameters.mode or "TRAIN"
    mean, deviation, bound = (
        f"{unit.of_s(seconds):.2f} {unit.unit}"
        for seconds in (rank.mean_s, rank.standard_deviation_s, rank.threshold_s)
    )
    return (
        f"{name}: the mean duration of {mode} steps was {mean}; {rank.outlier_count} "
        f"steps took longer than {bound}, the mean plus {parameters.stddev:g} standard deviations "
        f"of {deviation}.{numbers_sentence}"
    )


def _durations(ranks: list[Rank], evaluated: Evaluated) -> list[Block]:
    rule = evaluated.rules.get("StepOutlier")
    mode = rule.parameters.mode if rule else None
    walls = {rank.name: select_durations_s(rank.steps, mode) for rank in ranks}
    edges = make_duration_edges(*walls.values(), bins=BINS)
    if edges is None:
        return [Missing(text="Every step was recorded in detail: no duration is undisturbed.")]
    unit = time_unit(compute_pooled_median(walls.values()))
    shown, more = first(list(walls), MAX_SERIES, "ranks")
    series = []
    for name in shown:
        counted = build_histogram(walls[name], edges)
        series.append(
            Bars(
                name=name,
                counts=counted.counts.tolist(),
                below_count=counted.under_count,
                above_count=counted.over_count,
            )
        )
    return [
        Histogram(
            title="Step durations by rank",
            axis="duration of a step",
            unit=unit.unit,
            digits=2,
            counted="steps",
            edges=figures(edges * unit.per_s),
            series=series,
            more=more,
        )
    ]


def _over_time(ranks: list[Rank]) -> list[Block]:
    unit = time_unit(compute_pooled_median(rank.steps.wall_ns for rank in ranks) / 1e9)
    origin = min(int(rank.steps.start[0]) for rank in ranks)
    shown, more = first(ranks, MAX_SERIES, "ranks")
    longest = max(len(rank.steps) for rank in shown)
    return [
        Lines(
            title="Step durations over time",
            x_axis="seconds since the first step began",
            y_axis="duration of a step",
            unit=unit.unit,
            digits=2,
            lines=[_line(rank, origin, unit) for rank in shown],
            note=f"The slowest of every {-(-longest // POINTS)} steps is shown."
            if longest > POINTS
            else None,
            more=more,
        )
    ]


def _line(rank: Rank, origin_ns: int, unit: TimeUnit) -> Line:
    """Draw the slowest step of each of at most `POINTS` groups."""
    slowest = thin_out_steps(rank.steps, POINTS)
    x_s = (rank.steps.end[slowest] - origin_ns) / 1e9
    return Line(
        name=rank.name,
        x=x_s.round(3).tolist(),
        y=figures(rank.steps.wall_ns[slowest] / 1e9 * unit.per_s),
    )


def _outliers(ranks: Ranks) -> list[Block]:
    wrong = {name: rank for name, rank in ranks.items() if rank.outlier_steps}
    if not wrong:
        return []
    spent: dict[str, float] = {}
    for rank in wrong.values():
        weight = len(rank.outlier_steps)
        for phase, share in rank.outlier_phase_share_ratio.items():
            spent[phase] = spent.get(phase, 0.0) + share * weight
    listing: list[Block] = [
        Text(
            text="To see what made steps outliers, this is what they were spent on. Operators and "
            "kernels are known only in recorded windows."
        ),
        *phase_pies(
            shares_of_total(spent),
            "During outliers",
            "the time of the outliers, each rank weighted by its number of them",
        ),
    ]
    return [*listing, *(_normal(name, rank) for name, rank in list(wrong.items())[:MAX_NORMAL])]


def _normal(name: str, rank: RankDurations) -> Histogram:
    normal = rank.normal_steps_histogram
    unit = time_unit(rank.p50_s)
    return Histogram(
        title=f"Normal steps of {name}, without its outliers",
        axis="duration of a step",
        unit=unit.unit,
        digits=2,
        counted="steps",
        edges=[unit.of_s(edge) for edge in normal.edges_s],
        series=[Bars(name=name, counts=normal.counts)],
    )
