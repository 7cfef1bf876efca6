"""Arrival of ranks at every collective of the job."""

from __future__ import annotations

from dataclasses import replace

from stepscope.analysis import RankLateness, measure_lateness, summarize_lateness
from stepscope.quantities import count_of
from stepscope.run import Run, read_recorded_collectives
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
    lateness = measure_lateness(recorded.arrivals)
    node_count = int(recorded.node.max(initial=0)) + 1
    has_one_clock = not recorded.node.any()
    if not has_one_clock:
        group_on_node = recorded.arrivals.group * node_count + recorded.node
        mismatch_count = lateness.mismatch_count
        lateness = measure_lateness(replace(recorded.arrivals, group=group_on_node))
        lateness = replace(lateness, mismatch_count=mismatch_count)
    summaries = summarize_lateness(recorded.arrivals.rank, lateness, len(recorded.ranks))
    notes = []
    if recorded.skipped_count:
        notes.append(
            f"{count_of(recorded.skipped_count, 'collective')} not recorded: the recorder of "
            "PyTorch has overwritten them before they were read. A larger TORCH_FR_BUFFER_SIZE "
            "keeps more"
        )
    if not has_one_clock:
        notes.append(
            "ranks are compared with those of their own node, because clocks of nodes differ by "
            "an unknown time; whether others waited for them is not known. `stepscope show RUN "
            "ranks` compares all ranks without clocks"
        )
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
