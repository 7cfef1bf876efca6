"""Section on the creation of batches."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from stepscope.rules import DataloaderDetails, LoaderUsage
from stepscope.schema import LoaderSettings
from stepscope.views.profiling_report.blocks import Block, Cell, Histogram, Section, Table
from stepscope.views.profiling_report.building import (
    MAX_ROWS,
    MAX_SERIES,
    draw_durations,
    limit_items,
    make_text_columns,
    note_omitted,
    shorten,
)
from stepscope.views.profiling_report.rule_results import RuleResults

_SETTINGS = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch factor",
    "pin_memory": "pinned memory",
    "persistent_workers": "persistent workers",
    "batch_size": "batch size",
}


def build_loading_section(results: RuleResults) -> Section:
    """Build the section on data loading."""
    blocks = results.describe("Dataloader", DataloaderDetails, _draw_loading)
    return Section(id="dataloading", title="Dataloading analysis", blocks=blocks)


def _draw_loading(details: DataloaderDetails) -> list[Block]:
    nodes, more = limit_items(sorted(details.nodes), MAX_SERIES, "nodes")
    charts = [_draw_times(node, details.nodes[node]) for node in nodes]
    return [*_tabulate_loaders(details.loaders), *charts, *note_omitted(more)]


def _tabulate_loaders(loaders: Mapping[str, LoaderSettings]) -> list[Block]:
    if not loaders:
        return []
    ranks, more = limit_items(sorted(loaders), MAX_ROWS, "ranks")
    rows: list[list[Cell]] = [
        [rank, *(_format_setting(getattr(loaders[rank], setting, None)) for setting in _SETTINGS)]
        for rank in ranks
    ]
    columns = make_text_columns("rank", *_SETTINGS.values())
    return [Table(title="DataLoaders", columns=columns, rows=rows, more=more)]


def _format_setting(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None or value is UNSET else shorten(str(value))


def _draw_times(node: str, usage: LoaderUsage) -> Histogram:
    return draw_durations(
        usage.loading_histogram,
        title=f"Time to create a batch on {shorten(node)}",
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
