"""Sections on the training loop: durations of steps, outliers, creation of batches."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from stepscope import analysis, quantities, rules, run, schema
from stepscope.quantities import count_of
from stepscope.views.options import list_names
from stepscope.views.profiling_report import building, gpus
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

INITIALIZATION = "MaxInitializationTime"
_SHOWN = {
    "StepOutlier",
    "LowGPUUtilization",
    "LoadBalancing",
    "Dataloader",
    "BatchSize",
    "CPUBottleneck",
    "IOBottleneck",
    "GPUMemoryIncrease",
}
"""Rules with a section of their own."""


def build_training_sections(results: building.RuleResults) -> list[Section]:
    """Build the section on the training loop, after one on initialization if that took longer."""
    job, before = results.job, []
    if job.training_ns is not None and (job.initialization_ns or 0) > job.training_ns:
        blocks = results.check(INITIALIZATION)
        before = [Section(id="initialization", title="Analyzing initialization", blocks=blocks)]
    loop = Section(
        id="training",
        title="Analyzing the training loop",
        sections=[
            build_step_section(results),
            gpus.build_gpu_section(results),
            build_loading_section(results),
            gpus.build_batch_section(results),
            gpus.build_cpu_section(results),
            gpus.build_io_section(results),
            gpus.build_memory_section(results),
            _build_other_rules(results, without=INITIALIZATION if before else ""),
        ],
    )
    return [*before, loop]


def _build_other_rules(results: building.RuleResults, *, without: str) -> Section:
    """Build a section per rule without charts; rules that fired come first."""
    shown = {*_SHOWN, *building.STATISTICS, without}
    names = [name for name in results.findings if name not in shown]
    names.sort(key=lambda name: not results.findings[name].fired)
    sections = [
        Section(id=f"rule-{name}", title=name, blocks=results.check(name)) for name in names
    ]
    return Section(id="further", title="Further rules", sections=sections)


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
Ranks = Mapping[str, rules.RankDurations]


def build_step_section(results: building.RuleResults) -> Section:
    """Build the section on durations of steps."""
    blocks = results.check("StepOutlier", sentences=False)
    details = results.details("StepOutlier", rules.StepOutlierDetails)
    ranks = results.run.ranks
    if details and details.ranks:
        blocks += _describe_ranks(results, details.ranks)
    if ranks:
        blocks += [_draw_over_time(ranks), _draw_durations(ranks, results)]
    if details:
        blocks += _show_outliers(details.ranks)
    return Section(id="steps", title="Step duration analysis", blocks=blocks)


def _describe_ranks(results: building.RuleResults, ranks: Ranks) -> list[Block]:
    worst = sorted(ranks, key=lambda name: -ranks[name].outlier_count)
    shown, more = building.limit_items(worst, building.MAX_ROWS, "ranks")
    unit = building.choose_time_unit(min(rank.p50_s for rank in ranks.values()))
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
        *building.make_text_columns("rank"),
        *building.make_number_columns(*_FIGURES, digits=2),
        *building.make_number_columns("outliers", "steps", digits=0),
    ]
    title = f"Step durations in [{unit.unit}]"
    return [Listing(items=sentences), Table(title=title, columns=columns, rows=rows, more=more)]


def _describe_rank(results: building.RuleResults, name: str, rank: rules.RankDurations) -> str:
    parameters = results.rules["StepOutlier"].parameters
    numbers = [str(step) for step in rank.outlier_steps]
    steps = f" Steps: {list_names(numbers, LISTED_STEPS)}." if numbers else ""
    mean, deviation, bound = (
        quantities.duration(seconds * 1e9)
        for seconds in (rank.mean_s, rank.standard_deviation_s, rank.threshold_s)
    )
    return (
        f"{name}: mean duration of {parameters.mode or 'TRAIN'} steps {mean}. "
        f"{count_of(rank.outlier_count, 'step')} took longer than {bound}, the mean plus "
        f"{quantities.number(parameters.stddev)} standard deviations of {deviation}.{steps}"
    )


def _draw_durations(ranks: list[run.Rank], results: building.RuleResults) -> Block:
    rule = results.rules.get("StepOutlier")
    mode = rule.parameters.mode if rule else None
    durations_s = {rank.name: analysis.select_durations_s(rank.steps, mode) for rank in ranks}
    edges_s = analysis.make_duration_edges(*durations_s.values(), bins=BINS)
    if edges_s is None:
        return Text(text=ALL_PROFILED, tone="missing")
    unit = building.choose_time_unit(analysis.compute_pooled_median(durations_s.values()))
    shown, more = building.limit_items(list(durations_s), building.MAX_SERIES, "ranks")
    histograms = {name: analysis.build_histogram(durations_s[name], edges_s) for name in shown}
    return Histogram(
        title="Step durations by rank",
        axis="duration of a step",
        unit=unit.unit,
        digits=2,
        counted="steps",
        edges=building.round_figures(edges_s * unit.per_s),
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


def _draw_over_time(ranks: list[run.Rank]) -> Lines:
    """Draw the slowest step of each group of adjacent steps, in at most `POINTS` groups."""
    unit = building.choose_time_unit(
        analysis.compute_pooled_median(rank.steps.duration_ns for rank in ranks) / 1e9
    )
    origin_ns = min(int(rank.steps.start[0]) for rank in ranks)
    shown, more = building.limit_items(ranks, building.MAX_SERIES, "ranks")
    longest = max(len(rank.steps) for rank in shown)
    lines = []
    for rank in shown:
        slowest = analysis.thin_out_steps(rank.steps, POINTS)
        x_s = (rank.steps.end[slowest] - origin_ns) / 1e9
        y = building.round_figures(rank.steps.duration_ns[slowest] / 1e9 * unit.per_s)
        lines.append(Line(name=rank.name, x=building.round_figures(x_s), y=y))
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
        building.draw_durations(
            rank.normal_steps_histogram,
            title=f"Normal steps of {name}, without its outliers",
            axis="duration of a step",
            counted="steps",
            series=name,
            median_s=rank.p50_s,
        )
        for name, rank in list(outlying.items())[:MAX_NORMAL]
    ]
    pies = building.make_phase_pies(rules.shares_of_total(weights), "During outliers", _OUTLIERS)
    return [Text(text=text), *pies, *normal]


_SETTINGS = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch factor",
    "pin_memory": "pinned memory",
    "persistent_workers": "persistent workers",
    "batch_size": "batch size",
}


def build_loading_section(results: building.RuleResults) -> Section:
    """Build the section on data loading."""
    blocks = results.describe("Dataloader", rules.DataloaderDetails, _draw_loading)
    return Section(id="dataloading", title="Dataloading analysis", blocks=blocks)


def _draw_loading(details: rules.DataloaderDetails) -> list[Block]:
    nodes, more = building.limit_items(sorted(details.nodes), building.MAX_SERIES, "nodes")
    charts = [_draw_times(node, details.nodes[node]) for node in nodes]
    return [*_tabulate_loaders(details.loaders), *charts, *building.note_omitted(more)]


def _tabulate_loaders(loaders: Mapping[str, schema.LoaderSettings]) -> list[Block]:
    if not loaders:
        return []
    ranks, more = building.limit_items(sorted(loaders), building.MAX_ROWS, "ranks")
    rows: list[list[Cell]] = [
        [rank, *(_format_setting(getattr(loaders[rank], setting, None)) for setting in _SETTINGS)]
        for rank in ranks
    ]
    columns = building.make_text_columns("rank", *_SETTINGS.values())
    return [Table(title="DataLoaders", columns=columns, rows=rows, more=more)]


def _format_setting(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None or value is UNSET else building.shorten(str(value))


def _draw_times(node: str, usage: rules.LoaderUsage) -> Histogram:
    return building.draw_durations(
        usage.loading_histogram,
        title=f"Time to create a batch on {building.shorten(node)}",
        axis="time to create a batch",
        counted="batches",
        series="batches",
        median_s=usage.loading_p50_s,
        marks_s={
            "p25": usage.loading_p25_s,
            "p50": usage.loading_p50_s,
            "p95": usage.loading_p95_s,
        },
    )
