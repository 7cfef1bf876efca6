"""Arrival of ranks at every collective of the job."""

from __future__ import annotations

from dataclasses import replace

from stepscope.analysis import Lateness, RankLateness, measure_lateness, summarize_lateness
from stepscope.quantities import count_of, duration
from stepscope.run import (
    NodeClocks,
    RecordedCollectives,
    Run,
    align_node_clocks,
    read_recorded_collectives,
)
from stepscope.views.distributed_payload import Arrivals, RankArrival

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
    lateness = measure_lateness(recorded.arrivals)
    if alignment is not None:
        mismatch_count = lateness.mismatch_count
        lateness, has_one_clock, clock_note = _measure_on_nodes(recorded, alignment)
        lateness = replace(lateness, mismatch_count=mismatch_count)
    summaries = summarize_lateness(recorded.arrivals.rank, lateness, len(recorded.ranks))
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
) -> tuple[Lateness, bool, str]:
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
        lateness = measure_lateness(replace(arrivals, t_ns=alignment.to_reference(recorded)))
        ranks = summarize_lateness(arrivals.rank, lateness, count)
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
        measure_lateness(replace(arrivals, group=on_node)),
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


def _show_rank(rank: int, node: str, lateness: RankLateness, *, has_one_clock: bool) -> RankArrival:
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
