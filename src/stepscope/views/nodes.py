"""`nodes`: nodes of a job, and how late their ranks are."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated

import msgspec

from stepscope.analysis import NodeClock
from stepscope.diagnosis import LateReport, report_late_ranks
from stepscope.quantities import count_of
from stepscope.run import NodeClocks, Run, align_node_clocks
from stepscope.schema import field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged
from stepscope.views.ranks import LATENESS_OF, SHARE_OF

NO_STEPS = "no step of a training process was recorded"


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the job."""

    node: str
    ranks: list[str]
    late_ranks: list[str]
    """Ranks that make the others wait, other than by chance."""
    late_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of the steps in which a rank of the node is late, on average over its ranks. Null where
    lateness is not known."""
    mean_lateness_ns: float | None
    """Mean over its ranks and steps; negative if they are earlier than the other ranks."""
    mean_waiting_ns: float | None
    """Mean wait of its ranks for the last rank of a step."""
    clock_offset_ns: float | None
    """Clock of the node minus that of the reference node, in the middle of the job; null where
    collectives do not bound it."""
    clock_residual_ns: float | None
    """Largest possible error of a time of the node on the clock of the reference node."""


class NodesView(Ranged, frozen=True, kw_only=True):
    """Payload of `nodes`."""

    sentence: str
    share_of: str
    lateness_of: str
    """Definition of lateness."""
    clocks: str | None
    """State of the alignment of clocks; null for a job on one node."""
    nodes: list[NodeRow]
    missing: str | None


def show_nodes(run: Run, _options: ViewOptions = DEFAULTS) -> NodesView:
    """Show the nodes of a job."""
    report = report_late_ranks(run)
    nodes = list(dict.fromkeys(rank.process.node for rank in run.ranks))
    alignment = align_node_clocks(run) if len(nodes) > 1 else None
    clocks = alignment.clocks if isinstance(alignment, NodeClocks) else {}
    rows = [_show_node(run, node, report, clocks.get(node)) for node in nodes]
    return NodesView(
        sentence=_write_sentence(rows, report),
        share_of=SHARE_OF,
        lateness_of=LATENESS_OF,
        clocks=None if alignment is None else _describe_clocks(alignment),
        nodes=rows,
        missing=None if rows else NO_STEPS,
    )


def _describe_clocks(alignment: NodeClocks | str) -> str:
    if isinstance(alignment, str):
        return f"{alignment[:1].upper()}{alignment[1:]}."
    unknown = [name for name, clock in alignment.clocks.items() if clock is None]
    sentence = (
        f"Clocks are compared with that of {alignment.reference} by collectives: no rank ends one "
        "before the last has called it."
    )
    if unknown:
        sentence += (
            f" For {', '.join(unknown)} no clock of constant rate keeps to that: it was set during "
            "the job, or too few collectives are known."
        )
    return sentence


def _show_node(run: Run, node: str, report: LateReport | str, clock: NodeClock | None) -> NodeRow:
    offset_ns = None if clock is None else clock.offset_ns
    residual_ns = None if clock is None else clock.residual_ns
    indices = [index for index, rank in enumerate(run.ranks) if rank.process.node == node]
    names = [run.ranks[index].name for index in indices]
    if isinstance(report, str):
        return NodeRow(
            node=node,
            ranks=names,
            late_ranks=[],
            late_ratio=None,
            mean_lateness_ns=None,
            mean_waiting_ns=None,
            clock_offset_ns=offset_ns,
            clock_residual_ns=residual_ns,
        )
    late = [report.late.ranks[index] for index in indices]
    step_count = len(report.steps.number)
    return NodeRow(
        node=node,
        ranks=names,
        late_ranks=[run.ranks[index].name for index in report.culprits if index in indices],
        late_ratio=fmean(rank.late_count / step_count for rank in late),
        mean_lateness_ns=fmean(rank.mean_lateness_ns for rank in late),
        mean_waiting_ns=fmean(rank.mean_waiting_ns for rank in late),
        clock_offset_ns=offset_ns,
        clock_residual_ns=residual_ns,
    )


def _write_sentence(rows: list[NodeRow], report: LateReport | str) -> str:
    count = count_of(len(rows), "node")
    if isinstance(report, str):
        return f"{count}. No lateness: {report}."
    late = [row for row in rows if row.late_ranks]
    if not late or len(rows) == 1:
        return f"{count}. {report.sentence}"
    names = ", ".join(row.node for row in late)
    late_nodes = [row.node for row in late if len(row.late_ranks) == len(row.ranks) > 1]
    detail = f" All ranks of {', '.join(late_nodes)} are late." if late_nodes else ""
    return f"Late ranks are on {names}, {len(late)} of {count}.{detail} {report.sentence}"
