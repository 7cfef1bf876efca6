"""Payload of `distributed`, with arrivals of ranks at every collective."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from stepscope import analysis, schema
from stepscope.quantities import count_of, duration
from stepscope.run import (
    CarryOver,
    NodeClocks,
    RecordedCollectives,
    Run,
    align_node_clocks,
    read_recorded_collectives,
)
from stepscope.views.options import Ranged
from stepscope.views.trace_data import QualityNote


class DividedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one rank's devices; computation, overlap, communication and other sum to it."""

    total_ns: int
    computation_ns: int
    """Kernels that do not communicate, without a simultaneous collective."""
    overlap_ns: int
    """Both at the same time."""
    communication_ns: int
    """Kernels of collectives without simultaneous computation."""
    other_ns: int
    """Neither: copies and sets without simultaneous kernels, and idle time."""


class DividedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Time of each step, by column; steps extend until their device work is done."""

    step: list[str]
    total_ns: list[int]
    computation_ns: list[int]
    overlap_ns: list[int]
    communication_ns: list[int]
    other_ns: list[int]
    transfer_ns: list[int] | None
    """Transfer time of the matched collectives; null without matched ones. See `RankTime`."""
    waiting_ns: list[int] | None


class RankTime(DividedTime, frozen=True, kw_only=True):
    """Trace of one rank: from the first start to the last end of work on its devices."""

    rank: int | None
    trace: str
    work_on: Literal["devices", "host"]
    """Basis of the times: without a device, operators stand for kernels, and calls of the host
    for collectives."""
    computation_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `total_ns`; the four shares sum to 1."""
    overlap_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `total_ns`."""
    communication_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `total_ns`."""
    other_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `total_ns`."""
    hidden_ratio: float | None
    """Share of the time of collectives that computation hides."""
    collective_count: int
    """Kernels of collectives, or the calls of the host that carries them out."""
    matched_count: int
    """Collectives that were also identified on other ranks."""
    transfer_ns: int | None
    """Estimate: the shortest duration of each matched collective on any rank, at the end of the
    call; time covered by several counts once. Null without matched ones."""
    waiting_ns: int | None
    """Rest of the time in matched collectives: waiting for ranks that arrived later."""
    unmatched_ns: int | None
    """Time in unmatched collectives only."""
    last_count: Annotated[int, schema.field_label("last to arrive")]
    """Matched collectives that started last on this rank: the other ranks waited for it."""
    steps: DividedSteps | None
    missing: Annotated[str | None, schema.field_label("note")]


class RankWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of different ranks made at the same time."""

    name: str
    ranks: list[RankTime]
    collectives: list[analysis.Collective]
    """Collectives of all ranks together, the longest in total first."""
    collective_sizes: list[analysis.CollectiveSize]
    """Collectives of all ranks by size, and by whether their group spans nodes."""
    rank_collectives: list[analysis.Collective]
    """Collectives by rank."""
    notes: list[str]


class StepMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """Step durations: rows by rank, columns by step."""

    source: Literal["watched", "recorded"]
    """Steps of the job, or steps in traces."""
    ranks: list[str]
    steps: list[str]
    """First step of each column."""
    steps_per_column: Annotated[int, schema.field_label(unit="count")]
    """Number of steps that a column averages; the last column may have fewer."""
    duration_ns: list[list[float | None]]
    """Null where a rank lacks the step."""
    step_count: int
    """Steps that at least two ranks have."""
    slowest_count: Annotated[list[int], schema.field_label("slowest in steps")]
    """Number of these steps in which each rank was slowest."""
    excess_ns: Annotated[list[float | None], schema.field_label("mean excess over median rank")]
    """Mean excess of each rank's steps over the median rank's."""
    notes: list[str]


class RankArrival(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of one rank at the collectives of the whole job."""

    rank: int
    node: str
    call_count: Annotated[int, schema.field_label("collectives")]
    matched_count: int
    """Collectives that another rank has called with the same number and kind."""
    last_count: Annotated[int, schema.field_label("last to arrive")]
    """Matched collectives that this rank called last."""
    last_ratio: Annotated[float | None, schema.field_label("last to arrive in", display="bar")]
    """Share of its matched collectives."""
    median_ns: Annotated[float | None, schema.field_label("median lateness")]
    p95_ns: Annotated[float | None, schema.field_label("p95 lateness")]
    mean_ns: Annotated[float | None, schema.field_label("mean lateness")]
    caused_wait_ns: Annotated[int | None, schema.field_label("others waited")]
    """Time for which all other ranks waited for this one alone; null for ranks of several nodes
    whose clocks are not aligned well enough."""


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Arrival of ranks at every collective, from the recorder of the framework."""

    ranks: list[RankArrival]
    lateness_of: str
    """Definition of lateness."""
    skipped_count: Annotated[int, schema.field_label("not recorded")]
    """Calls that the recorder has overwritten before they were read."""
    mismatch_count: Annotated[int, schema.field_label("mismatched")]
    """Collectives that ranks have called with different kinds."""
    notes: list[str]
    missing: str | None
    """Why nothing was recorded."""


class DistributedView(Ranged, frozen=True, kw_only=True):
    """Payload of `distributed`."""

    sentence: str | None
    """Exposed and hidden communication of the traces; null without work in them."""
    share_of: str
    communication_of: str
    """Definition of communication."""
    transfer_of: str
    """Definition of transfer and waiting."""
    bandwidth_of: str
    """Definition of the two bandwidths."""
    carry_over: CarryOver
    windows: list[RankWindow]
    arrivals: Arrivals
    matrix: StepMatrix | None
    missing: str | None
    quality: list[QualityNote]


LATENESS_OF = (
    "time from the first call of a collective by any rank to the call of this rank; calls with the "
    "same process group and number are one collective"
)


def show_arrivals(run: Run) -> Arrivals:
    """Show how late ranks call the collectives that the framework's recorder numbers."""
    recorded = read_recorded_collectives(run)
    if isinstance(recorded, str):
        return _make([], missing=recorded)
    alignment = align_node_clocks(run) if len(set(recorded.nodes)) > 1 else None
    has_one_clock, clock_note = True, None
    lateness = analysis.measure_lateness(recorded.arrivals)
    if alignment is not None:
        mismatch_count = lateness.mismatch_count
        lateness, has_one_clock, clock_note = _measure_on_nodes(recorded, alignment)
        lateness = replace(lateness, mismatch_count=mismatch_count)
    summaries = analysis.summarize_lateness(recorded.arrivals.rank, lateness, len(recorded.ranks))
    notes = []
    if recorded.skipped_count:
        notes.append(
            f"{count_of(recorded.skipped_count, 'collective')} not recorded: the recorder of "
            "PyTorch has overwritten them before they were read. A larger TORCH_FR_BUFFER_SIZE "
            "keeps more"
        )
    if clock_note is not None:
        notes.append(clock_note)
    if lateness.mismatch_count:
        notes.append(
            f"{count_of(lateness.mismatch_count, 'collective')} of one group and number called "
            "with different kinds by different ranks"
        )
    return _make(
        [
            _show_rank(rank, node, summary, has_one_clock=has_one_clock)
            for rank, node, summary in zip(recorded.ranks, recorded.nodes, summaries, strict=True)
        ],
        skipped_count=recorded.skipped_count,
        mismatch_count=lateness.mismatch_count,
        notes=notes,
    )


def _measure_on_nodes(
    recorded: RecordedCollectives, alignment: NodeClocks | str
) -> tuple[analysis.Lateness, bool, str]:
    """Measure lateness on the clock of one node, or of each node by itself where the error of that
    may be as large.

    Returns:
        The lateness, True if it is on one clock, and a note.
    """
    arrivals, count = recorded.arrivals, len(recorded.ranks)
    if isinstance(alignment, str):
        reason = alignment
    elif alignment.difference_residual_ns is None:
        names = ", ".join(name for name, clock in alignment.clocks.items() if clock is None)
        reason = f"the clock of {names} could not be aligned with that of {alignment.reference}"
    else:
        residual_ns = alignment.difference_residual_ns
        lateness = analysis.measure_lateness(
            replace(arrivals, t_ns=alignment.to_reference(recorded))
        )
        ranks = analysis.summarize_lateness(arrivals.rank, lateness, count)
        largest_ns = max((rank.median_ns or 0.0 for rank in ranks), default=0.0)
        if largest_ns > residual_ns:
            return (
                lateness,
                True,
                "times are on the clock of "
                f"{alignment.reference}: clocks of nodes are aligned by collectives, to within "
                f"{duration(residual_ns)}",
            )
        reason = (
            f"clocks of nodes are aligned to within {duration(residual_ns)} only, and no rank is "
            f"later than {duration(largest_ns)} at the median"
        )
    on_node = arrivals.group * (int(recorded.node.max()) + 1) + recorded.node
    return (
        analysis.measure_lateness(replace(arrivals, group=on_node)),
        False,
        f"ranks are compared with those of their own node: {reason}. `stepscope show RUN ranks` "
        "compares all ranks without clocks",
    )


def _make(
    ranks: list[RankArrival],
    *,
    skipped_count: int = 0,
    mismatch_count: int = 0,
    notes: list[str] | None = None,
    missing: str | None = None,
) -> Arrivals:
    return Arrivals(
        ranks=ranks,
        lateness_of=LATENESS_OF,
        skipped_count=skipped_count,
        mismatch_count=mismatch_count,
        notes=notes or [],
        missing=missing,
    )


def _show_rank(
    rank: int, node: str, lateness: analysis.RankLateness, *, has_one_clock: bool
) -> RankArrival:
    matched = lateness.matched_count
    return RankArrival(
        rank=rank,
        node=node,
        call_count=lateness.call_count,
        matched_count=matched,
        last_count=lateness.last_count,
        last_ratio=lateness.last_count / matched if matched else None,
        median_ns=lateness.median_ns,
        p95_ns=lateness.p95_ns,
        mean_ns=lateness.mean_ns,
        caused_wait_ns=lateness.caused_wait_ns if has_one_clock else None,
    )
