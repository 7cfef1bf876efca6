"""How batches were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.views.profiling_report.blocks import (
    Bars,
    Block,
    Cell,
    Column,
    Histogram,
    Mark,
    Section,
    Table,
)
from stepscope.views.profiling_report.evaluated import Evaluated
from stepscope.views.profiling_report.words import (
    MOST_ROWS,
    MOST_SERIES,
    first,
    shortened,
    time_unit,
)

_FACTS = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch factor",
    "pin_memory": "pinned memory",
    "persistent_workers": "persistent workers",
    "batch_size": "batch size",
}


def loading_section(evaluated: Evaluated) -> Section:
    """Dataloading analysis."""
    details = evaluated.details("Dataloader")
    blocks = evaluated.check("Dataloader")
    if details:
        blocks += _loaders(details["loaders"])
        nodes, more = first(sorted(details["nodes"]), MOST_SERIES, "nodes")
        blocks += [_times(node, details["nodes"][node], more) for node in nodes]
    return Section(id="dataloading", title="Dataloading analysis", blocks=blocks)


def _loaders(loaders: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    if not loaders:
        return []
    ranks, more = first(sorted(loaders), MOST_ROWS, "ranks")
    rows: list[list[Cell]] = [
        [rank, *(_word(loaders[rank].get(fact)) for fact in _FACTS)] for rank in ranks
    ]
    columns = [Column(label=label) for label in ("rank", *_FACTS.values())]
    return [Table(title="The DataLoaders", columns=columns, rows=rows, more=more)]


def _word(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else shortened(str(value))


def _times(node: str, figures: Mapping[str, Any], more: str | None) -> Histogram:
    unit = time_unit(figures["loading_p50_s"])
    counted = figures["loading_histogram"]
    return Histogram(
        title=f"Time to make a batch on {shortened(node)}",
        axis="time to make a batch",
        unit=unit.unit,
        digits=2,
        counted="batches",
        edges=[unit.of_s(edge) for edge in counted["edges_s"]],
        series=[Bars(name="batches", counts=counted["counts"])],
        marks=[
            Mark(name=name, value=unit.of_s(figures[f"loading_{name}_s"]))
            for name in ("p25", "p50", "p95")
        ],
        more=more,
    )
