"""Use of every node."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.rules import NodeUsage, OverallSystemUsageDetails
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Column,
    Listing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.evaluated import Evaluated
from stepscope.views.profiling_report.heat import heatmaps
from stepscope.views.profiling_report.words import MAX_NODES, first, left_out, listed

HIGH = 70.0
"""Per cent of use above which a processor is well used."""
_ROWS = {
    "network_bytes_per_s": ("Network", "bytes/s"),
    "network_bytes": ("Network", "bytes per sample"),
    "gpu_percent": ("GPU", "percent"),
    "cpu_percent": ("CPU", "percent"),
    "memory_percent": ("CPU memory", "percent"),
    "gpu_memory_percent": ("GPU memory", "percent"),
    "io_wait_percent": ("I/O wait", "percent"),
}
_FIGURES = ("max", "p99", "p95", "p50", "min")


def system_section(evaluated: Evaluated) -> Section:
    """Statistics of what every node used, and heat maps of it over time."""
    blocks = evaluated.missing("OverallSystemUsage")
    details = evaluated.details("OverallSystemUsage", OverallSystemUsageDetails)
    nodes = details.nodes if details else {}
    if nodes:
        blocks += _advice(nodes)
        blocks.append(_table(nodes))
        blocks += heatmaps(evaluated)
    else:
        blocks.append(Text(text="Nodes are sampled while a job runs under `stepscope run`."))
    return Section(id="system", title="System usage statistics", blocks=blocks)


def _advice(nodes: Mapping[str, NodeUsage]) -> list[Block]:
    """A sentence per node; one for all nodes of the same kind where there are many."""
    shown, more = first(sorted(nodes), MAX_NODES, "nodes; their figures are in the JSON report")
    content: list[Block] = [Listing(items=[_said_of(node, nodes[node]) for node in shown])]
    content += left_out(more)
    without = [node for node, usage in nodes.items() if not usage.gpu_percent]
    if without:
        content.append(
            Text(
                text=f"No GPU was sampled on {listed(sorted(without))}: there is none, or its "
                "driver does not tell (see `stepscope doctor`).",
                tone="note",
            )
        )
    return content


def _said_of(node: str, usage: NodeUsage) -> str:
    cpu, gpu = usage.cpu_percent, usage.gpu_percent
    if not cpu:
        return f"{node}: the CPU was not sampled."
    if not gpu:
        return (
            f"{node}: CPU utilisation was {cpu.p50:g} % in the median and {cpu.p95:g} % at "
            "its 95th percentile."
        )
    figures = (
        f"the 95th percentile of GPU utilisation is {gpu.p95:g} %, of CPU utilisation {cpu.p95:g} %"
    )
    if gpu.p95 < HIGH and cpu.p95 < HIGH:
        return f"{node} is under-utilised: {figures}. Consider a smaller machine."
    if gpu.p95 < HIGH and cpu.p95 > HIGH:
        return f"{node} may have a CPU bottleneck: {figures}."
    if gpu.p50 > HIGH:
        return f"{node} is well utilised: the median of GPU utilisation is {gpu.p50:g} %."
    return f"{node}: the medians of GPU and CPU utilisation are {gpu.p50:g} % and {cpu.p50:g} %."


def _table(nodes: Mapping[str, NodeUsage]) -> Table:
    shown, more = first(sorted(nodes), MAX_NODES, "nodes; their figures are in the JSON report")
    rows: list[list[Cell]] = [
        [node, label, unit, *(getattr(usage[row], figure) for figure in _FIGURES)]
        for node in shown
        for row, (label, unit) in _ROWS.items()
        if row in (usage := nodes[node].sampled)
    ]
    words = [Column(label=label) for label in ("node", "metric", "unit")]
    numbers = [Column(label=label, digits=2) for label in _FIGURES]
    return Table(
        title="Use of resources per node",
        columns=[*words, *numbers],
        rows=rows,
        share_of="all cores that the job may use, the memory of the node, the mean of its GPUs and "
        "of their memory; quantiles are over all samples of the run",
        more=more,
    )
