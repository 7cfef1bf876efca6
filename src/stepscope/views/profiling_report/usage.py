"""`usage`: the job, the use of its nodes, and shares of phases, operators and kernels.

The figures and sentences are those of the report, of the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stepscope import cost, quantities, schema
from stepscope.run import Run, machine_count
from stepscope.views.job.jobs import make_job_row
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.profiling_report import system
from stepscope.views.profiling_report.blocks import Block, Listing, Pie, Section, Text
from stepscope.views.profiling_report.job import (
    build_framework_section,
    build_job_section,
    list_properties,
)
from stepscope.views.profiling_report.report import get_statistics


class NodeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a node over all samples."""

    node: str
    metric: str
    unit: schema.Unit
    max: float
    p99: float
    p95: float
    p50: float
    min: float


class UsageShare(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a whole."""

    name: str
    share_ratio: float | None


class UsageShares(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a whole, as a chart of the report shows them."""

    title: str
    share_of: str
    parts: list[UsageShare]


class UsageView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `usage`, about the whole run."""

    job: dict[str, str]
    """Name, status, machines, cores, times and cost of the job."""
    job_notes: list[str]
    job_parts: UsageShares | None
    """Initialization, training loop and finalization."""
    node_notes: list[str]
    """Assessment of each node, in a sentence."""
    nodes: list[NodeStatistics]
    nodes_of: str
    """Definition of the metrics of nodes."""
    framework_notes: list[str]
    """Largest shares, and those that are too large."""
    framework: list[UsageShares]
    """Shares of training and evaluation, passes, phases, operators and kernels."""
    missing_notes: list[str]
    """Data that the shares lack, and how to record them."""


def show_usage(run: Run, _options: ViewOptions = DEFAULTS) -> UsageView:
    """Show the job, the use of its nodes, and shares of phases, operators and kernels."""
    results = run.derive(get_statistics)
    row = make_job_row(run.reader, run.reader.info.run_id)
    in_progress = row.status == "InProgress"
    job = list(_walk(build_job_section(results, in_progress=in_progress)))
    properties = list_properties(results, in_progress=in_progress)
    section = build_framework_section(results)
    framework = list(_walk(section))
    names = {"Job name": row.name, "Status": row.status, "Machines": _describe_machines(run)}
    cores = sum(node.cores_total for node in run.nodes.values())
    if cores:
        names["Cores"] = quantities.count(cores)
    return UsageView(
        job=names | {str(name): str(value) for name, value in properties},
        job_notes=_list_sentences(job[1:]),
        job_parts=next(iter(_list_shares(job)), None),
        node_notes=_list_sentences(system.describe_nodes(results)),
        nodes=[
            _show_metric(metric)
            for metric in system.list_node_metrics(system.get_node_usage(results))
        ],
        nodes_of=system.USAGE_OF,
        framework_notes=_list_sentences(framework, missing=False),
        framework=_list_shares(framework),
        missing_notes=_list_sentences(section.blocks, missing=True),
    )


def _describe_machines(run: Run) -> str:
    count = str(machine_count(run.reader) or "unknown")
    types = cost.list_instance_types(run.reader.info, run.nodes.values())
    return f"{count} x {', '.join(types)}" if types else count


def _walk(section: Section) -> Iterator[Block]:
    yield from section.blocks
    for inner in section.sections:
        yield from _walk(inner)


def _list_sentences(blocks: list[Block], *, missing: bool | None = None) -> list[str]:
    """List the sentences of blocks; only those about missing data, or only the others."""
    sentences = []
    for block in blocks:
        if isinstance(block, Listing) and not missing:
            sentences += block.items
        elif isinstance(block, Text) and missing in {None, block.tone == "missing"}:
            sentences.append(block.text)
    return sentences


def _list_shares(blocks: list[Block]) -> list[UsageShares]:
    return [
        UsageShares(
            title=block.title,
            share_of=block.share_of,
            parts=[
                UsageShare(name=part.name, share_ratio=part.share_ratio) for part in block.slices
            ],
        )
        for block in blocks
        if isinstance(block, Pie)
    ]


def _show_metric(metric: system.NodeMetric) -> NodeStatistics:
    figures = msgspec.structs.asdict(metric.quantiles)
    return NodeStatistics(node=metric.node, metric=metric.name, unit=metric.unit, **figures)
