"""The text of `ranks` and `nodes`: a sentence first, then who is late and when."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import table
from stepscope.cli.writers.generic import MAX_CURVE_CELLS, curve, write_sentences
from stepscope.quantities import MISSING, count, duration, percent
from stepscope.views import NodesView, RankLateness, RanksView

MAX_RANKS = 64
MAX_EPISODES = 20


def write_ranks(out: Console, payload: RanksView) -> None:
    """Write which ranks are late."""
    out.print(f"[bold]{escape(payload.sentence)}[/bold]")
    if payload.missing is not None:
        return
    has_mesh = any(rank.coordinates for rank in payload.ranks)
    rows = table(
        "rank", "node", *(["mesh"] if has_mesh else []), "late in", "last in", "lateness",
        "waiting", "", "cause",
    )  # fmt: skip
    for rank in payload.ranks[:MAX_RANKS]:
        rows.add_row(
            escape(rank.rank),
            escape(rank.node),
            *([escape(rank.coordinates)] if has_mesh else []),
            percent(rank.late_ratio),
            percent(rank.last_ratio),
            duration(rank.lateness_ns),
            duration(rank.mean_waiting_ns),
            rank.persistence or "",
            escape(_describe_cause(rank)),
        )
    out.print(rows)
    if len(payload.ranks) > MAX_RANKS:
        out.print(f"and {len(payload.ranks) - MAX_RANKS} more ranks: see --json")
    _write_episodes(out, payload)
    _write_map(out, payload)
    transfer = duration(payload.mean_transfer_ns)
    out.print(
        f"[dim]{count(payload.step_count)} {escape(payload.share_of)}; transfer {transfer} a step. "
        f"Lateness: {escape(payload.lateness_of)}. {escape(payload.persistence_of)}.[/dim]"
    )
    write_sentences(out, payload.notes)


def _describe_cause(rank: RankLateness) -> str:
    if rank.made_late_by is not None:
        return f"made late by {rank.made_late_by}"
    return rank.cause or (MISSING if rank.persistence else "")


def _write_episodes(out: Console, payload: RanksView) -> None:
    episodes = [(rank.rank, episode) for rank in payload.ranks for episode in rank.episodes]
    if not episodes:
        return
    rows = table("rank", "late from step", "to step", "late in", "by")
    for rank, episode in episodes[:MAX_EPISODES]:
        rows.add_row(
            escape(rank),
            str(episode.first_step),
            str(episode.last_step),
            percent(episode.late_ratio),
            duration(episode.lateness_ns),
        )
    out.print(rows)
    if len(episodes) > MAX_EPISODES:
        out.print(f"and {len(episodes) - MAX_EPISODES} more: see --json")


def _write_map(out: Console, payload: RanksView) -> None:
    """Write a line of bars for each late rank: lateness over the steps."""
    if payload.map is None:
        return
    late = {rank.rank for rank in payload.ranks if rank.persistence is not None}
    lines = [
        (name, [max(0.0, value or 0.0) for value in values])
        for name, values in zip(payload.map.ranks, payload.map.lateness_ns, strict=True)
        if name in late
    ]
    if not lines:
        return
    width = max(len(name) for name, _ in lines)
    for name, values in lines[:MAX_RANKS]:
        cells = max(1, min(out.width - width - 24, MAX_CURVE_CELLS))
        limit = f"[dim]up to {duration(max(values))}[/dim]"
        out.print(f"{escape(name):<{width}} {curve(values, cells)} {limit}")


def write_nodes(out: Console, payload: NodesView) -> None:
    """Write how late the ranks of each node are."""
    out.print(f"[bold]{escape(payload.sentence)}[/bold]")
    if payload.missing is not None:
        return
    clocks = ["clock", "to within"] if payload.clocks is not None else []
    rows = table("node", "ranks", "late ranks", "late in", "mean lateness", "waiting", *clocks)
    for node in payload.nodes:
        rows.add_row(
            escape(node.node),
            str(len(node.ranks)),
            escape(", ".join(node.late_ranks)),
            percent(node.late_ratio),
            duration(node.mean_lateness_ns),
            duration(node.mean_waiting_ns),
            *([duration(node.clock_offset_ns), duration(node.clock_residual_ns)] if clocks else []),
        )
    out.print(rows)
    if payload.clocks is not None:
        out.print(f"[dim]{escape(payload.clocks)}[/dim]")
    out.print(f"[dim]shares of {escape(payload.share_of)}. {escape(payload.lateness_of)}.[/dim]")
