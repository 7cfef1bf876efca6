"""The text of `distributed`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import table
from stepscope.cli.writers.generic import write_quality, write_sentences
from stepscope.quantities import MISSING, byte_rate, count, duration, memory, percent
from stepscope.views import Arrivals, DistributedView, RankTime, RankWindow, StepMatrix

MAX_RANKS = 64
MAX_SIZES = 20


def write_distributed(out: Console, payload: DistributedView) -> None:
    """Write what ranks compute and exchange, and who is slow."""
    if payload.missing is not None:
        out.print(escape(payload.missing))
    for window in payload.windows:
        _write_window(out, window)
    if payload.windows:
        for note in (
            payload.share_of,
            f"communication: {payload.communication_of}",
            payload.transfer_of,
            payload.bandwidth_of,
        ):
            out.print(f"[dim]{escape(note)}[/dim]")
    _write_arrivals(out, payload.arrivals)
    if payload.matrix is not None:
        _write_matrix(out, payload.matrix)
    write_quality(out, payload.quality)


def _write_arrivals(out: Console, arrivals: Arrivals) -> None:
    """Write how late ranks call collectives."""
    if arrivals.missing is not None:
        out.print(f"[dim]Collectives of the job: {escape(arrivals.missing)}.[/dim]")
        return
    out.print("[bold]collectives of the job[/bold]")
    rows = table("rank", "collectives", "matched", "last in", "median late", "p95", "others waited")
    for rank in arrivals.ranks[:MAX_RANKS]:
        rows.add_row(
            f"rank {rank.rank}",
            count(rank.call_count),
            count(rank.matched_count),
            percent(rank.last_ratio),
            duration(rank.median_ns),
            duration(rank.p95_ns),
            duration(rank.caused_wait_ns),
        )
    out.print(rows)
    if len(arrivals.ranks) > MAX_RANKS:
        out.print(f"and {len(arrivals.ranks) - MAX_RANKS} more ranks: see --json")
    out.print(f"[dim]late: {escape(arrivals.lateness_of)}[/dim]")
    write_sentences(out, arrivals.notes)


def _write_window(out: Console, window: RankWindow) -> None:
    out.print(f"[bold]{escape(window.name)}[/bold]")
    rows = table(
        "rank", "total", "compute", "overlap", "exposed", "other", "transfer", "waiting", "last in"
    )
    for rank in window.ranks[:MAX_RANKS]:
        rows.add_row(*_rank(rank))
    out.print(rows)
    if len(window.ranks) > MAX_RANKS:
        out.print(f"and {len(window.ranks) - MAX_RANKS} more ranks: see --json")
    _write_collectives(out, window)
    write_sentences(
        out, (*window.notes, *(f"{_name(r)}: {r.missing}" for r in window.ranks if r.missing))
    )


def _name(rank: RankTime) -> str:
    return rank.trace if rank.rank is None else f"rank {rank.rank}"


def _rank(rank: RankTime) -> list[str]:
    parts = (
        rank.computation_ratio,
        rank.overlap_ratio,
        rank.communication_ratio,
        rank.other_ratio,
    )
    return [
        escape(_name(rank)),
        duration(rank.total_ns),
        *(percent(part) for part in parts),
        duration(rank.transfer_ns),
        duration(rank.waiting_ns),
        str(rank.last_count),
    ]


def _write_collectives(out: Console, window: RankWindow) -> None:
    if not window.collectives:
        return
    rows = table("collective", "group", "calls", "total", "mean", "waiting", "bytes", "bus")
    for collective in window.collectives:
        bandwidth = collective.bus_bytes_per_s
        rows.add_row(
            escape(collective.name),
            escape(collective.group or MISSING),
            count(collective.call_count),
            duration(collective.total_ns),
            duration(collective.mean_ns),
            duration(collective.waiting_ns),
            memory(collective.moved_bytes),
            byte_rate(bandwidth),
        )
    out.print(rows)
    rows = table("collective", "nodes", "size", "calls", "total", "mean", "waiting", "bus")
    for size in window.collective_sizes[:MAX_SIZES]:
        rows.add_row(
            escape(size.name),
            size.reach or "unknown",
            f"from {memory(size.from_bytes)}" if size.from_bytes is not None else MISSING,
            count(size.call_count),
            duration(size.total_ns),
            duration(size.mean_ns),
            duration(size.waiting_ns),
            byte_rate(size.bus_bytes_per_s),
        )
    out.print(rows)


def _write_matrix(out: Console, matrix: StepMatrix) -> None:
    out.print()
    rows = table("rank", "slowest in", "slower than the median by")
    columns = zip(matrix.ranks, matrix.slowest_count, matrix.excess_ns, strict=True)
    for rank, slowest_count, excess in sorted(columns, key=lambda row: -row[1])[:MAX_RANKS]:
        rows.add_row(
            escape(rank),
            f"{count(slowest_count)} of {count(matrix.step_count)} steps",
            duration(excess),
        )
    out.print(rows)
    write_sentences(out, matrix.notes)
