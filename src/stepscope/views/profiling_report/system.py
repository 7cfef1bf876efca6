"""Utilization of every node."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.quantities import in_unit
from stepscope.rules import NodeUsage, OverallSystemUsageDetails
from stepscope.run import Bins, build_sampled_heatmap
from stepscope.views.heat_rows import MAX_CORES
from stepscope.views.names import list_names
from stepscope.views.profiling_report.blocks import (
    Block,
    Cell,
    Heatmap,
    Listing,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.building import (
    MAX_NODES,
    limit_items,
    make_number_columns,
    make_text_columns,
    note_omitted,
    shorten,
)
from stepscope.views.profiling_report.rule_results import RuleResults
from stepscope.views.system_heat import show_heat_rows
from stepscope.views.times import utc_time

HEAT_MAP_COLUMNS = 240
"""Upper limit of the columns of a heat map."""
MAX_HEAT_MAPS = 8
HIGH_PERCENT = 70.0
"""Utilization above which a processor counts as well utilized."""
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


def build_system_section(results: RuleResults) -> Section:
    """Build statistics of the utilization of every node, and heat maps over time."""
    blocks = results.missing("OverallSystemUsage")
    details = results.details("OverallSystemUsage", OverallSystemUsageDetails)
    nodes = details.nodes if details else {}
    if nodes:
        blocks += _summarize_nodes(nodes, is_imported=results.run.is_imported)
        blocks.append(_tabulate_nodes(nodes))
        blocks += _draw_heat_maps(results)
    elif not results.is_withheld("OverallSystemUsage"):
        blocks.append(Text(text=_explain_no_samples(is_imported=results.run.is_imported)))
    return Section(id="system", title="System usage statistics", blocks=blocks)


def _explain_no_samples(*, is_imported: bool) -> str:
    if is_imported:
        return "The imported files contain no samples of machines."
    return "Run the job with `stepscope run` to sample its nodes."


def _summarize_nodes(nodes: Mapping[str, NodeUsage], *, is_imported: bool) -> list[Block]:
    """Summarize each node in a sentence, and name the nodes without GPU samples."""
    shown, more = limit_items(sorted(nodes), MAX_NODES, "nodes; the JSON report has their figures")
    content: list[Block] = [Listing(items=[_summarize_node(node, nodes[node]) for node in shown])]
    content += note_omitted(more)
    without = [node for node, usage in nodes.items() if not usage.gpu_percent]
    if without:
        reason = (
            "the imported files contain no GPU samples of it"
            if is_imported
            else "there is none, or its driver could not be read (`stepscope doctor` says why)"
        )
        content.append(
            Text(
                text=f"No GPU was sampled on {list_names(sorted(without))}: {reason}.",
                tone="note",
            )
        )
    return content


def _summarize_node(node: str, usage: NodeUsage) -> str:
    cpu, gpu = usage.cpu_percent, usage.gpu_percent
    if not cpu:
        return f"{node}: the CPU was not sampled."
    cpu_p50, cpu_p95 = in_unit(cpu.p50, "percent"), in_unit(cpu.p95, "percent")
    if not gpu:
        return f"{node}: median CPU utilization {cpu_p50}, p95 {cpu_p95}."
    gpu_p50, gpu_p95 = in_unit(gpu.p50, "percent"), in_unit(gpu.p95, "percent")
    figures = f"p95 of GPU utilization {gpu_p95}, of CPU utilization {cpu_p95}"
    if gpu.p95 < HIGH_PERCENT and cpu.p95 < HIGH_PERCENT:
        return f"{node} is underutilized: {figures}. Consider a smaller machine."
    if gpu.p95 < HIGH_PERCENT and cpu.p95 > HIGH_PERCENT:
        return f"{node} may have a CPU bottleneck: {figures}."
    if gpu.p50 > HIGH_PERCENT:
        return f"{node} is well utilized: median GPU utilization {gpu_p50}."
    return f"{node}: median GPU utilization {gpu_p50}, median CPU utilization {cpu_p50}."


def _tabulate_nodes(nodes: Mapping[str, NodeUsage]) -> Table:
    shown, more = limit_items(sorted(nodes), MAX_NODES, "nodes; the JSON report has their figures")
    rows: list[list[Cell]] = [
        [node, label, unit, *(getattr(usage[row], figure) for figure in _FIGURES)]
        for node in shown
        for row, (label, unit) in _ROWS.items()
        if row in (usage := nodes[node].sampled)
    ]
    return Table(
        title="Resource utilization per node",
        columns=[
            *make_text_columns("node", "metric", "unit"),
            *make_number_columns(*_FIGURES, digits=2),
        ],
        rows=rows,
        share_of="all cores available to the job, the memory of the node, and the mean of its GPUs "
        "and of their memory; quantiles are over all samples of the run",
        more=more,
    )


def _draw_heat_maps(results: RuleResults) -> list[Block]:
    """Draw one heat map per node over the whole run."""
    run, job = results.run, results.job
    nodes, more = limit_items(sorted(run.nodes), MAX_HEAT_MAPS, "nodes")
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
                title=f"{shorten(node)} over time",
                start=utc_time(bins.start_ns),
                column_ns=bins.width_ns,
                rows=show_heat_rows(heatmap, heatmap.sampled_bin_count),
                more=f"and {omitted} more cores" if omitted else None,
            )
        )
    return [*blocks, *note_omitted(more)]
