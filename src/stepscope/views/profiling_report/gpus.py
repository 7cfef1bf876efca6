"""Sections on GPUs: utilization, balance, bottlenecks, room for larger batches, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stepscope import quantities, rules
from stepscope.views.profiling_report import building
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

T = TypeVar("T")
MAX_NODES = 8
MAX_PAIRS = 20
UTILIZATION = "share of the time with a kernel running"
MEMORY = "share of the GPU's memory in use"
STEPS_WITH_BOTTLENECK = "the time of the steps with a bottleneck, all ranks"


def build_gpu_section(results: building.RuleResults) -> Section:
    """Build the sections on utilization and balance of the GPUs."""
    sections = [_build_usage(results), _build_balance(results)]
    return Section(id="gpus", title="GPU utilization analysis", sections=sections)


def _build_usage(results: building.RuleResults) -> Section:
    def draw(details: rules.LowGPUUtilizationDetails) -> list[Block]:
        parameters = results.rules["LowGPUUtilization"].parameters
        return _draw_boxes(
            {name: {"": gpu.busy_percent} for name, gpu in details.gpus.items()},
            title="GPU utilization",
            axis=f"{UTILIZATION} (%)",
            limits={"p95 limit": parameters.threshold_p95, "p5 limit": parameters.threshold_p5},
        )

    blocks = results.describe("LowGPUUtilization", rules.LowGPUUtilizationDetails, draw)
    return Section(id="gpu-usage", title="Usage per GPU", blocks=blocks)


def _build_balance(results: building.RuleResults) -> Section:
    blocks = results.describe("LoadBalancing", rules.LoadBalancingDetails, _draw_balance)
    return Section(id="balance", title="Workload balancing", blocks=blocks)


def _draw_balance(details: rules.LoadBalancingDetails) -> list[Block]:
    blocks: list[Block] = []
    workloads = _group_by_node(details.workloads_count)
    nodes, more = building.limit_items(list(workloads), MAX_NODES, "nodes")
    for node in nodes:
        gpus, omitted = building.limit_items(list(workloads[node]), building.MAX_SERIES, "GPUs")
        blocks.append(
            Histogram(
                title=f"Workload of the GPUs of {building.shorten(node)}",
                axis=UTILIZATION,
                unit="%",
                digits=0,
                counted="samples",
                edges=[float(edge) for edge in range(0, 101, details.bin_percent)],
                series=[Bars(name=f"GPU {gpu}", counts=workloads[node][gpu]) for gpu in gpus],
                more=omitted,
            )
        )
    return [*blocks, *building.note_omitted(more), _tabulate_distances(details.distances)]


def _tabulate_distances(distances: Mapping[str, Mapping[str, float]]) -> Table:
    pairs = [(d, gpu, peer) for gpu, row in distances.items() for peer, d in row.items()]
    pairs.sort(reverse=True)
    shown, more = building.limit_items(pairs, MAX_PAIRS, "pairs with smaller distances")
    return Table(
        title="Distances between the histograms of two GPUs (0 for equal, 0.83255 for disjoint)",
        columns=[
            *building.make_text_columns("GPU", "other GPU"),
            *building.make_number_columns("distance", digits=5),
        ],
        rows=[[gpu, peer, distance] for distance, gpu, peer in shown],
        more=more,
    )


def build_batch_section(results: building.RuleResults) -> Section:
    """Build the section on the batch size."""

    def draw(details: rules.BatchSizeDetails) -> list[Block]:
        parameters = results.rules["BatchSize"].parameters
        use: dict[str, dict[str, rules.BoxPlot]] = {}
        for gpu, plot in details.gpu_busy_percent.items():
            use.setdefault(gpu, {})["utilization"] = plot
        for gpu, plot in details.gpu_memory_percent.items():
            use.setdefault(gpu, {})["memory"] = plot
        names: dict[float, list[str]] = {}
        names.setdefault(parameters.cpu_threshold_p95, []).append("CPU")
        names.setdefault(parameters.gpu_threshold_p95, []).append("GPU")
        names.setdefault(parameters.gpu_memory_threshold_p95, []).append("memory")
        return _draw_boxes(
            use,
            title="CPU, GPU and GPU memory",
            axis="share in use (%)",
            limits={f"p95 of {', '.join(names[limit])}": limit for limit in names},
            cpus=details.cpu_percent,
        )

    blocks = results.describe("BatchSize", rules.BatchSizeDetails, draw)
    return Section(id="batch-size", title="Batch size", blocks=blocks)


def build_memory_section(results: building.RuleResults) -> Section:
    """Build the section on GPU memory."""

    def draw(details: rules.GPUMemoryIncreaseDetails) -> list[Block]:
        plots = {name: {"": gpu.memory_percent} for name, gpu in details.gpus.items()}
        return _draw_boxes(plots, title="GPU memory", axis=f"{MEMORY} (%)")

    blocks = results.describe("GPUMemoryIncrease", rules.GPUMemoryIncreaseDetails, draw)
    return Section(id="gpu-memory", title="GPU memory", blocks=blocks)


def _draw_boxes(
    plots: Mapping[str, Mapping[str, rules.BoxPlot]],
    *,
    title: str,
    axis: str,
    limits: Mapping[str, float] | None = None,
    cpus: Mapping[str, rules.BoxPlot] | None = None,
) -> list[Block]:
    """Draw one chart per node with one box per GPU and quantity."""
    by_node = _group_by_node(plots)
    nodes, more = building.limit_items(list(by_node), MAX_NODES, "nodes")
    marks = [Mark(name=name, value=limit) for name, limit in (limits or {}).items()]
    blocks: list[Block] = []
    for node in nodes:
        gpus, omitted = building.limit_items(list(by_node[node]), building.MAX_SERIES, "GPUs")
        boxes = {"CPU": cpus[node]} if cpus and node in cpus else {}
        for gpu in gpus:
            for quantity, plot in by_node[node][gpu].items():
                boxes[f"GPU {gpu} {quantity}".strip()] = plot
        heading = f"{title} of {building.shorten(node)}"
        blocks.append(Boxes(title=heading, axis=axis, boxes=boxes, marks=marks, more=omitted))
    return [*blocks, *building.note_omitted(more)]


def _group_by_node(values: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Group values named `node/number` by node, with numbers in numerical order."""
    by_node: dict[str, dict[str, T]] = {}
    for name in sorted(values, key=lambda name: (len(name), name)):
        node, _, number = name.rpartition("/")
        by_node.setdefault(node, {})[number] = values[name]
    return dict(sorted(by_node.items()))


def build_cpu_section(results: building.RuleResults) -> Section:
    """Build the section on CPU bottlenecks."""
    blocks = _describe_bottlenecks(results, "CPUBottleneck", "CPU")
    return Section(id="cpu-bottlenecks", title="CPU bottlenecks", blocks=blocks)


def build_io_section(results: building.RuleResults) -> Section:
    """Build the section on I/O bottlenecks."""
    blocks = _describe_bottlenecks(results, "IOBottleneck", "I/O")
    return Section(id="io-bottlenecks", title="I/O bottlenecks", blocks=blocks)


def _describe_bottlenecks(results: building.RuleResults, rule: str, subject: str) -> list[Block]:
    def draw(details: rules.BottleneckDetails) -> list[Block]:
        limit = quantities.in_unit(results.rules[rule].parameters.gpu_threshold, "percent")
        total, low = details.snapshot_count, details.low_gpu_count
        bottlenecks = details.bottleneck_count
        parts = {
            f"every GPU at {limit} or above": total - low,
            f"a GPU below {limit}, {subject} not the cause": low - bottlenecks,
            f"a GPU below {limit}, {subject} the cause": bottlenecks,
        }
        shares, share_of = rules.shares_of_total(parts), f"all {quantities.count(total)} snapshots"
        phases = details.phase_share_ratio_of_steps_with_bottleneck
        return [
            building.make_pie("GPUs in all snapshots", shares, share_of),
            *(
                building.make_phase_pies(phases, "During bottlenecks", STEPS_WITH_BOTTLENECK)
                if phases
                else []
            ),
            _tabulate_nodes(details.nodes),
        ]

    return results.describe(rule, rules.BottleneckDetails, draw)


def _tabulate_nodes(nodes: Mapping[str, rules.NodeBottlenecks]) -> Table:
    shown, more = building.limit_items(sorted(nodes), building.MAX_ROWS, "nodes")
    rows: list[list[Cell]] = [
        [
            node,
            nodes[node].snapshot_count,
            nodes[node].low_gpu_count,
            nodes[node].bottleneck_count,
            quantities.in_unit(nodes[node].bottleneck_percent_of_snapshots, "percent"),
            quantities.in_unit(nodes[node].bottleneck_percent_of_low_gpu, "percent"),
        ]
        for node in shown
    ]
    shares = ("bottlenecks of all", "bottlenecks of those with a low GPU")
    return Table(
        title="Snapshots by node",
        columns=[
            *building.make_text_columns("node"),
            *building.make_number_columns("snapshots", "with a low GPU", "bottlenecks", digits=0),
            *building.make_text_columns(*shares),
        ],
        rows=rows,
        share_of="the snapshots of the node, all of them or those with a low GPU",
        more=more,
    )
