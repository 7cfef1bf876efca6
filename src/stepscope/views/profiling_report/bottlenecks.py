"""Sections on GPUs that wait for the CPU or for I/O."""

from __future__ import annotations

from stepscope.quantities import count, in_unit
from stepscope.rules import BottleneckDetails, NodeBottlenecks, shares_of_total
from stepscope.views.profiling_report.blocks import Block, Cell, Section, Table
from stepscope.views.profiling_report.building import (
    MAX_ROWS,
    limit_items,
    make_phase_pies,
    make_pie,
    name_columns,
    number_columns,
)
from stepscope.views.profiling_report.evaluated import Evaluated

ALL_STEPS = "the time of the steps with a bottleneck, all ranks"


def build_cpu_section(evaluated: Evaluated) -> Section:
    """Build the section on CPU bottlenecks."""
    blocks = _describe_bottleneck(evaluated, "CPUBottleneck", "CPU")
    return Section(id="cpu-bottlenecks", title="CPU bottlenecks", blocks=blocks)


def build_io_section(evaluated: Evaluated) -> Section:
    """Build the section on I/O bottlenecks."""
    blocks = _describe_bottleneck(evaluated, "IOBottleneck", "I/O")
    return Section(id="io-bottlenecks", title="I/O bottlenecks", blocks=blocks)


def _describe_bottleneck(evaluated: Evaluated, rule: str, subject: str) -> list[Block]:
    blocks = evaluated.check(rule)
    details = evaluated.details(rule, BottleneckDetails)
    if not details:
        return blocks
    limit = in_unit(evaluated.rules[rule].parameters.gpu_threshold, "percent")
    total, low, bottlenecks = (
        details.snapshot_count,
        details.low_gpu_count,
        details.bottleneck_count,
    )
    parts = {
        f"every GPU at {limit} or above": total - low,
        f"a GPU below {limit}, {subject} not the cause": low - bottlenecks,
        f"a GPU below {limit} and a {subject} bottleneck": bottlenecks,
    }
    blocks.append(
        make_pie("GPUs in all snapshots", shares_of_total(parts), f"all {count(total)} snapshots")
    )
    phases = details.phase_share_ratio_of_steps_with_bottleneck
    blocks += make_phase_pies(phases, "During bottlenecks", ALL_STEPS) if phases else []
    blocks.append(_tabulate_nodes(details.nodes))
    return blocks


def _tabulate_nodes(nodes: dict[str, NodeBottlenecks]) -> Table:
    shown, more = limit_items(sorted(nodes), MAX_ROWS, "nodes")
    rows: list[list[Cell]] = [
        [
            node,
            nodes[node].snapshot_count,
            nodes[node].low_gpu_count,
            nodes[node].bottleneck_count,
            nodes[node].bottleneck_percent_of_snapshots,
            nodes[node].bottleneck_percent_of_low_gpu,
        ]
        for node in shown
    ]
    return Table(
        title="Snapshots by node",
        columns=[
            *name_columns("node"),
            *number_columns("snapshots", "with a low GPU", "bottlenecks", digits=0),
            *number_columns(
                "bottlenecks of all", "bottlenecks of those with a low GPU", digits=2, unit="%"
            ),
        ],
        rows=rows,
        share_of="the snapshots of the node, all of them or those with a low GPU",
        more=more,
    )
