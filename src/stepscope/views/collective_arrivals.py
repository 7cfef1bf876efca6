"""Arrival of ranks at every collective of the job."""

from __future__ import annotations

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
    summaries = summarize_lateness(recorded.arrivals.rank, lateness, len(recorded.ranks))
    notes = []
    if recorded.skipped_count:
        notes.append(
            f"{count_of(recorded.skipped_count, 'collective')} not recorded: the recorder of "
            "PyTorch has overwritten them before they were read. A larger TORCH_FR_BUFFER_SIZE "
            "keeps more"
        )
    if len(set(recorded.nodes)) > 1:
        notes.append(
            "lateness between ranks on different nodes contains the difference of their clocks"
        )
    if lateness.mismatch_count:
        notes.append(
            f"{count_of(lateness.mismatch_count, 'collective')} of one group and number called "
            "with different kinds by different ranks"
        )
    return _make(
        [
            _show_rank(rank, node, summary)
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


def _show_rank(rank: int, node: str, lateness: RankLateness) -> RankArrival:
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
        caused_wait_ns=lateness.caused_wait_ns,
    )
