"""Utilization of every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stepscope import quantities, rules, schema
from stepscope.run import Bins, build_sampled_heatmap
from stepscope.views.options import list_names
from stepscope.views.profiling_report import building
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Heatmap,
    Listing,
    Section,
    Table,
    Text,
)
from stepscope.views.system import MAX_CORES, show_heat_rows

HEAT_MAP_COLUMNS = 240
"""Upper limit of the columns of a heat map."""
MAX_HEAT_MAPS = 8
HIGH_PERCENT = 70.0
"""Utilization above which a processor counts as well utilized."""
RULE = "OverallSystemUsage"
USAGE_OF = (
    "all cores available to the job, the memory of the node, and the mean of its GPUs and of their "
    "memory; quantiles are over all samples of the run"
)
_ROWS: dict[str, tuple[str, str, schema.Unit]] = {
    "network_bytes_per_s": ("Network", "bytes/s", "bytes_per_s"),
    "network_bytes": ("Network", "bytes per sample", "bytes"),
    "gpu_percent": ("GPU", "percent", "percent"),
    "cpu_percent": ("CPU", "percent", "percent"),
    "memory_percent": ("CPU memory", "percent", "percent"),
    "gpu_memory_percent": ("GPU memory", "percent", "percent"),
    "io_wait_percent": ("I/O wait", "percent", "percent"),
}
"""Name, unit in words and unit of each metric of a node."""
_FIGURES = ("max", "p99", "p95", "p50", "min")


def build_system_section(results: building.RuleResults) -> Section:
    """Build statistics of the utilization of every node, and heat maps over time."""
    blocks = describe_nodes(results)
    nodes = get_node_usage(results)
    if nodes:
        blocks.append(_tabulate_nodes(nodes))
        blocks += _draw_heat_maps(results)
    return Section(id="system", title="System usage statistics", blocks=blocks)


def get_node_usage(results: building.RuleResults) -> Mapping[str, rules.NodeUsage]:
    """Return the usage of each node with samples."""
    details = results.details(RULE, rules.OverallSystemUsageDetails)
    return details.nodes if details else {}


def describe_nodes(results: building.RuleResults) -> list[Block]:
    """Describe the usage of each node in a sentence, or why there is none."""
    blocks, nodes = results.missing(RULE), get_node_usage(results)
    if nodes:
        blocks += _summarize_nodes(nodes, is_imported=results.run.is_imported)
    elif not results.run.is_imported and not results.is_withheld(RULE):
        blocks.append(Text(text="Run the job with `stepscope run -- CMD` to sample its nodes."))
    return blocks


class NodeMetric(NamedTuple):
    """One metric of a node over all samples."""

    node: str
    name: str
    unit_words: str
    unit: schema.Unit
    quantiles: rules.UsageQuantiles


def list_node_metrics(nodes: Mapping[str, rules.NodeUsage]) -> list[NodeMetric]:
    """List the sampled metrics of nodes, by node."""
    return [
        NodeMetric(node, *_ROWS[row], usage.sampled[row])
        for node, usage in sorted(nodes.items())
        for row in _ROWS
        if row in usage.sampled
    ]


def _summarize_nodes(nodes: Mapping[str, rules.NodeUsage], *, is_imported: bool) -> list[Block]:
    """Summarize each node in a sentence, and name the nodes without GPU samples."""
    shown, more = building.limit_items(
        sorted(nodes), building.MAX_NODES, "nodes; the JSON report has their figures"
    )
    content: list[Block] = [Listing(items=[_summarize_node(node, nodes[node]) for node in shown])]
    content += building.note_omitted(more)
    without = [node for node, usage in nodes.items() if not usage.gpu_percent]
    if without:
        reason = (
            "the imported files contain no GPU samples of it"
            if is_imported
            else "there is none, or its driver could not be read (`stepscope doctor` says why)"
        )
        content.append(
            Text(
                text=f"No GPU was sampled on {list_names(sorted(without))}: {reason}.", tone="note"
            )
        )
    return content


def _summarize_node(node: str, usage: rules.NodeUsage) -> str:
    cpu, gpu = usage.cpu_percent, usage.gpu_percent
    if not cpu:
        return f"{node}: the CPU was not sampled."
    cpu_p50, cpu_p95 = (
        quantities.in_unit(cpu.p50, "percent"),
        quantities.in_unit(cpu.p95, "percent"),
    )
    if not gpu:
        return f"{node}: median CPU utilization {cpu_p50}, p95 {cpu_p95}."
    gpu_p50, gpu_p95 = (
        quantities.in_unit(gpu.p50, "percent"),
        quantities.in_unit(gpu.p95, "percent"),
    )
    figures = f"p95 of GPU utilization {gpu_p95}, of CPU utilization {cpu_p95}"
    if gpu.p95 < HIGH_PERCENT and cpu.p95 < HIGH_PERCENT:
        return f"{node} is underutilized: {figures}. Consider a smaller machine."
    if gpu.p95 < HIGH_PERCENT and cpu.p95 > HIGH_PERCENT:
        return f"{node} may have a CPU bottleneck: {figures}."
    if gpu.p50 > HIGH_PERCENT:
        return f"{node} is well utilized: median GPU utilization {gpu_p50}."
    return f"{node}: median GPU utilization {gpu_p50}, median CPU utilization {cpu_p50}."


def _tabulate_nodes(nodes: Mapping[str, rules.NodeUsage]) -> Table:
    shown, more = building.limit_items(
        sorted(nodes), building.MAX_NODES, "nodes; the JSON report has their figures"
    )
    rows: list[list[Cell]] = [
        [
            metric.node,
            metric.name,
            metric.unit_words,
            *(getattr(metric.quantiles, figure) for figure in _FIGURES),
        ]
        for metric in list_node_metrics({node: nodes[node] for node in shown})
    ]
    return Table(
        title="Resource utilization per node",
        columns=[
            *building.make_text_columns("node", "metric", "unit"),
            *building.make_number_columns(*_FIGURES, digits=2),
        ],
        rows=rows,
        share_of=USAGE_OF,
        more=more,
    )


def _draw_heat_maps(results: building.RuleResults) -> list[Block]:
    """Draw one heat map per node over the whole run."""
    run, job = results.run, results.job
    nodes, more = building.limit_items(sorted(run.nodes), MAX_HEAT_MAPS, "nodes")
    blocks: list[Block] = []
    for node in nodes:
        # At least two samples per column, so that none is empty.
        width_ns = max(
            -(-job.duration_ns // HEAT_MAP_COLUMNS),
            2 * run.nodes[node].max_interval_ns(job.start_ns, job.start_ns + job.duration_ns),
            1,
        )
        bins = Bins(start_ns=job.start_ns, width_ns=width_ns, count=HEAT_MAP_COLUMNS)
        heatmap = build_sampled_heatmap(run.reader, bins, node, max_cores=MAX_CORES)
        if heatmap is None:
            continue
        omitted = heatmap.omitted_core_count
        blocks.append(
            Heatmap(
                title=f"{building.shorten(node)} over time",
                start=quantities.utc_time(bins.start_ns),
                column_ns=bins.width_ns,
                rows=show_heat_rows(heatmap, heatmap.sampled_bin_count),
                more=f"and {omitted} more cores" if omitted else None,
            )
        )
    return [*blocks, *building.note_omitted(more)]
