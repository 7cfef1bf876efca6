"""Sections on GPUs: utilization, balance, room for larger batches, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stepscope.rules import (
    BatchSizeDetails,
    BoxPlot,
    GPUMemoryIncreaseDetails,
    LoadBalancingDetails,
    LowGPUUtilizationDetails,
)
from stepscope.views.profiling_report.blocks import (
    Bars,
    Block,
    Boxes,
    Cell,
    Histogram,
    Mark,
    Section,
    Table,
)
from stepscope.views.profiling_report.building import (
    MAX_SERIES,
    limit_items,
    name_columns,
    note_omitted,
    number_columns,
    shorten,
)
from stepscope.views.profiling_report.evaluated import Evaluated

T = TypeVar("T")
MAX_NODES = 8
MAX_PAIRS = 20
UTILIZATION = "share of the time with a kernel running"
MEMORY = "share of the GPU's memory in use"


def build_gpu_section(evaluated: Evaluated) -> Section:
    """Build the sections on utilization and balance of the GPUs."""
    return Section(
        id="gpus",
        title="GPU utilization analysis",
        sections=[_build_usage(evaluated), _build_balance(evaluated)],
    )


def _build_usage(evaluated: Evaluated) -> Section:
    blocks = evaluated.check("LowGPUUtilization")
    details = evaluated.details("LowGPUUtilization", LowGPUUtilizationDetails)
    if details:
        parameters = evaluated.rules["LowGPUUtilization"].parameters
        blocks += _draw_boxes(
            {name: {"": gpu.busy_percent} for name, gpu in details.gpus.items()},
            title="GPU utilization",
            axis=f"{UTILIZATION} (%)",
            marks=[
                Mark(name="p95 limit", value=parameters.threshold_p95),
                Mark(name="p5 limit", value=parameters.threshold_p5),
            ],
        )
    return Section(id="gpu-usage", title="Usage per GPU", blocks=blocks)


def _build_balance(evaluated: Evaluated) -> Section:
    blocks = evaluated.check("LoadBalancing")
    details = evaluated.details("LoadBalancing", LoadBalancingDetails)
    if details:
        workloads = _by_node(details.workloads_count)
        nodes, more = limit_items(list(workloads), MAX_NODES, "nodes")
        for node in nodes:
            gpus, omitted = limit_items(list(workloads[node]), MAX_SERIES, "GPUs")
            blocks.append(
                Histogram(
                    title=f"Workload of the GPUs of {shorten(node)}",
                    axis=UTILIZATION,
                    unit="%",
                    digits=0,
                    counted="samples",
                    edges=[float(edge) for edge in range(0, 101, details.bin_percent)],
                    series=[Bars(name=f"GPU {g}", counts=workloads[node][g]) for g in gpus],
                    more=omitted,
                )
            )
        blocks += note_omitted(more)
        blocks.append(_tabulate_distances(details.distances))
    return Section(id="balance", title="Workload balancing", blocks=blocks)


def _tabulate_distances(distances: Mapping[str, Mapping[str, float]]) -> Table:
    pairs = sorted(
        ((d, a, b) for a, names_of_value in distances.items() for b, d in names_of_value.items()),
        reverse=True,
    )
    shown, more = limit_items(pairs, MAX_PAIRS, "pairs with smaller distances")
    rows: list[list[Cell]] = [[a, b, distance] for distance, a, b in shown]
    return Table(
        title="Distances between the histograms of two GPUs (0 for equal, 0.83255 for disjoint)",
        columns=[
            *name_columns("GPU", "other GPU"),
            *number_columns("distance", digits=5),
        ],
        rows=rows,
        more=more,
    )


def build_batch_section(evaluated: Evaluated) -> Section:
    """Build the section on the batch size."""
    blocks = evaluated.check("BatchSize")
    details = evaluated.details("BatchSize", BatchSizeDetails)
    if details:
        parameters = evaluated.rules["BatchSize"].parameters
        use: dict[str, dict[str, BoxPlot]] = {}
        for gpu, plot in details.gpu_busy_percent.items():
            use.setdefault(gpu, {})["utilization"] = plot
        for gpu, plot in details.gpu_memory_percent.items():
            use.setdefault(gpu, {})["memory"] = plot
        blocks += _draw_boxes(
            use,
            title="CPU, GPU and GPU memory",
            axis="share in use (%)",
            marks=_thresholds(
                {
                    "CPU": parameters.cpu_threshold_p95,
                    "GPU": parameters.gpu_threshold_p95,
                    "memory": parameters.gpu_memory_threshold_p95,
                }
            ),
            cpus=details.cpu_percent,
        )
    return Section(id="batch-size", title="Batch size", blocks=blocks)


def _thresholds(of_p95: Mapping[str, float]) -> list[Mark]:
    """Mark each distinct value once, with the names of all thresholds that have it."""
    names: dict[float, list[str]] = {}
    for name, value in of_p95.items():
        names.setdefault(value, []).append(name)
    return [
        Mark(name=f"p95 of {', '.join(names_of_value)}", value=value)
        for value, names_of_value in names.items()
    ]


def build_memory_section(evaluated: Evaluated) -> Section:
    """Build the section on GPU memory."""
    blocks = evaluated.check("GPUMemoryIncrease")
    details = evaluated.details("GPUMemoryIncrease", GPUMemoryIncreaseDetails)
    gpus = details.gpus if details else {}
    blocks += _draw_boxes(
        {name: {"": gpu.memory_percent} for name, gpu in gpus.items()},
        title="GPU memory",
        axis=f"{MEMORY} (%)",
        marks=[],
    )
    return Section(id="gpu-memory", title="GPU memory", blocks=blocks)


def _draw_boxes(
    of_gpus: Mapping[str, Mapping[str, BoxPlot]],
    *,
    title: str,
    axis: str,
    marks: list[Mark],
    cpus: Mapping[str, BoxPlot] | None = None,
) -> list[Block]:
    """Draw one chart per node with one box per GPU and quantity."""
    by_node = _by_node(of_gpus)
    nodes, more = limit_items(list(by_node), MAX_NODES, "nodes")
    blocks: list[Block] = []
    for node in nodes:
        gpus, omitted = limit_items(list(by_node[node]), MAX_SERIES, "GPUs")
        boxes = {"CPU": cpus[node]} if cpus and node in cpus else {}
        for gpu in gpus:
            for quantity, plot in by_node[node][gpu].items():
                boxes[f"GPU {gpu} {quantity}".strip()] = plot
        heading = f"{title} of {shorten(node)}"
        blocks.append(Boxes(title=heading, axis=axis, boxes=boxes, marks=marks, more=omitted))
    return [*blocks, *note_omitted(more)]


def _by_node(of_gpus: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Group values named `node/number` by node, with numbers in numerical order."""
    by_node: dict[str, dict[str, T]] = {}
    for name, value in of_gpus.items():
        node, _, number = name.rpartition("/")
        by_node.setdefault(node, {})[number] = value
    return {
        node: dict(sorted(gpus.items(), key=lambda item: (len(item[0]), item[0])))
        for node, gpus in sorted(by_node.items())
    }
