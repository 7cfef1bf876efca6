"""The text of `steps`, `input-pipeline`, `ranks`, `nodes` and `distributed`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from stepscope import quantities, views
from stepscope.cli.text import bar, table
from stepscope.cli.writers import generic
from stepscope.quantities import count, count_of, number, percent


def write_steps(out: Console, payload: views.StepsView) -> None:
    """Write how long steps take and what they are spent on."""
    if payload.missing:
        out.print(payload.missing)
    if payload.stages:
        out.print(escape(payload.stages))
    for rank in payload.ranks:
        _write_rank_steps(out, rank)
    for trace in payload.traces:
        generic.write_generic(out, trace)
    generic.write_quality(out, payload.quality)


def _write_rank_steps(out: Console, rank: views.RankStepsView) -> None:
    out.print(
        f"[bold]{rank.rank}[/bold]  {count_of(rank.step_count, 'step')} ({rank.source}), "
        f"{rank.measured_count} measured, batches per step: {number(rank.fetches_per_step)}"
    )
    if rank.step_ns is None:
        return
    statistics = rank.step_ns
    rows = table("step time", "mean", "p50", "p95", "p99", "max", "min", "outliers")
    values = (
        statistics.mean,
        statistics.p50,
        statistics.p95,
        statistics.p99,
        statistics.maximum,
        statistics.minimum,
    )
    rows.add_row(
        "", *(quantities.duration(value) for value in values), str(statistics.outlier_count)
    )
    out.print(rows)
    phases = table("phase", "share of step", "", "mean", "p50", "p95")
    for phase in rank.phases:
        if phase.share_ratio != 0:
            phases.add_row(
                phase.name,
                bar(phase.share_ratio),
                percent(phase.share_ratio),
                quantities.duration(phase.mean_ns),
                quantities.duration(phase.p50_ns),
                quantities.duration(phase.p95_ns),
            )
    out.print(phases)
    if rank.between_ns:
        out.print(
            f"between steps: {quantities.duration(rank.between_ns)} on average; the phases include "
            "it, the step time does not"
        )
    if rank.evaluation_ns:
        out.print(f"evaluation between steps: {quantities.duration(rank.evaluation_ns)}")
    if rank.outlier_steps:
        out.print(f"slowest outliers: steps {', '.join(map(str, rank.outlier_steps))}")
    out.print()


def write_input_pipeline(out: Console, payload: views.InputPipelineView) -> None:
    """Write how batches are made and what the training thread waits for."""
    if payload.sentence:
        out.print(escape(payload.sentence))
    if payload.missing:
        out.print(payload.missing)
    for rank in payload.ranks:
        _write_rank_pipeline(out, rank, payload.share_of)
    if payload.traces:
        _write_traces(out, payload)
    if payload.tf_data:
        _write_tf_data(out, payload)


def _write_traces(out: Console, payload: views.InputPipelineView) -> None:
    rows = table("trace", "batches made by", "fetching per step", "waiting for data", "copies")
    for trace in payload.traces:
        rows.add_row(
            escape(trace.rank),
            "workers" if trace.has_workers else "the training process",
            quantities.duration(trace.fetch_step_ns),
            percent(trace.exposed_ratio),
            percent(trace.copy_ratio),
        )
    out.print(rows)
    out.print(f"Shares are of {payload.share_of}.")


def _write_tf_data(out: Console, payload: views.InputPipelineView) -> None:
    rows = table("trace", "stage of tf.data", "in total", "calls", "per call")
    for stage in payload.tf_data:
        times = (
            quantities.duration(stage.total_ns),
            count(stage.call_count),
            quantities.duration(stage.call_ns),
        )
        rows.add_row(escape(stage.trace), escape(stage.name), *times)
    out.print(rows)
    out.print("[dim]without stages called in the same thread, with waits for other threads[/dim]")


def _write_rank_pipeline(out: Console, rank: views.RankPipeline, share_of: str) -> None:
    waiting = rank.waiting
    out.print(
        f"[bold]{rank.rank}[/bold]  waits for batches {percent(waiting.share_ratio)} of the "
        f"{share_of}"
    )
    rows = table("waiting for", "share of step", "")
    for name, ratio in (
        ("batches being made", waiting.making_ratio),
        ("batches being handed over", waiting.handing_over_ratio),
        ("loaders starting", waiting.starting_ratio),
    ):
        rows.add_row(name, bar(ratio), percent(ratio))
    out.print(rows)
    if waiting.starved_ratio is not None:
        out.print(
            f"The prefetch queue was empty for {percent(waiting.starved_ratio)} of batch requests."
        )
    if rank.loader is not None:
        settings = {k: v for k, v in rank.loader.items() if k not in {"fact", "name"}}
        out.print("[dim]" + escape(", ".join(f"{k}={v}" for k, v in settings.items())) + "[/dim]")
    if rank.making is None:
        out.print(rank.missing or "")
    else:
        _write_making(out, rank.making)
    out.print()


def _write_making(out: Console, making: views.MakingView) -> None:
    out.print(
        f"{making.batch_count} batches, mean creation time {quantities.duration(making.mean_ns)}"
        + (
            f", {percent(making.cpu_ratio)} of it on the CPU"
            if making.cpu_ratio is not None
            else ""
        )
        + (
            f"; workers busy {percent(making.worker_busy_ratio)} of the time"
            if making.worker_busy_ratio is not None
            else ""
        )
    )
    if making.detailed_every > 1:
        out.print(
            f"[dim]Batches were so quick that only one in {making.detailed_every} was recorded in "
            "detail; the shares are those of the recorded ones[/dim]"
        )
    if making.stages:
        rows = table("stage", "of making", "of step", "")
        for stage in making.stages:
            labels = ", ".join(f"{k} {percent(v)}" for k, v in list(stage.labels.items())[:4])
            shares = (percent(stage.of_making_ratio), percent(stage.of_step_ratio))
            rows.add_row(stage.name, *shares, escape(labels))
        out.print(rows)
        out.print(f"[dim]from {making.stack_sample_count} stack samples; collating measured[/dim]")
    if making.transforms:
        parts = ", ".join(f"{name} {percent(v)}" for name, v in making.transforms.items())
        out.print(escape(f"transforms, measured, of making: {parts}"))


MAX_RANKS = 64
MAX_EPISODES = 20


def write_ranks(out: Console, payload: views.RanksView) -> None:
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
            quantities.duration(rank.lateness_ns),
            quantities.duration(rank.mean_waiting_ns),
            rank.persistence or "",
            escape(_describe_cause(rank)),
        )
    out.print(rows)
    if len(payload.ranks) > MAX_RANKS:
        out.print(f"and {len(payload.ranks) - MAX_RANKS} more ranks: see --json")
    _write_episodes(out, payload)
    _write_map(out, payload)
    transfer = quantities.duration(payload.mean_transfer_ns)
    out.print(
        f"[dim]{count(payload.step_count)} {escape(payload.share_of)}; transfer {transfer} a step. "
        f"Lateness: {escape(payload.lateness_of)}. {escape(payload.persistence_of)}.[/dim]"
    )
    generic.write_sentences(out, payload.notes)


def _describe_cause(rank: views.RankLateness) -> str:
    if rank.made_late_by is not None:
        return f"made late by {rank.made_late_by}"
    return rank.cause or (quantities.MISSING if rank.persistence else "")


def _write_episodes(out: Console, payload: views.RanksView) -> None:
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
            quantities.duration(episode.lateness_ns),
        )
    out.print(rows)
    if len(episodes) > MAX_EPISODES:
        out.print(f"and {len(episodes) - MAX_EPISODES} more: see --json")


def _write_map(out: Console, payload: views.RanksView) -> None:
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
        cells = max(1, min(out.width - width - 24, generic.MAX_CURVE_CELLS))
        limit = f"[dim]up to {quantities.duration(max(values))}[/dim]"
        out.print(f"{escape(name):<{width}} {generic.curve(values, cells)} {limit}")


def write_nodes(out: Console, payload: views.NodesView) -> None:
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
            quantities.duration(node.mean_lateness_ns),
            quantities.duration(node.mean_waiting_ns),
            *(
                [
                    quantities.duration(node.clock_offset_ns),
                    quantities.duration(node.clock_residual_ns),
                ]
                if clocks
                else []
            ),
        )
    out.print(rows)
    if payload.clocks is not None:
        out.print(f"[dim]{escape(payload.clocks)}[/dim]")
    out.print(f"[dim]shares of {escape(payload.share_of)}. {escape(payload.lateness_of)}.[/dim]")


MAX_SIZES = 20


def write_distributed(out: Console, payload: views.DistributedView) -> None:
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
    generic.write_quality(out, payload.quality)


def _write_arrivals(out: Console, arrivals: views.Arrivals) -> None:
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
            quantities.duration(rank.median_ns),
            quantities.duration(rank.p95_ns),
            quantities.duration(rank.caused_wait_ns),
        )
    out.print(rows)
    if len(arrivals.ranks) > MAX_RANKS:
        out.print(f"and {len(arrivals.ranks) - MAX_RANKS} more ranks: see --json")
    out.print(f"[dim]late: {escape(arrivals.lateness_of)}[/dim]")
    generic.write_sentences(out, arrivals.notes)


def _write_window(out: Console, window: views.RankWindow) -> None:
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
    generic.write_sentences(
        out, (*window.notes, *(f"{_name(r)}: {r.missing}" for r in window.ranks if r.missing))
    )


def _name(rank: views.RankTime) -> str:
    return rank.trace if rank.rank is None else f"rank {rank.rank}"


def _rank(rank: views.RankTime) -> list[str]:
    parts = (rank.computation_ratio, rank.overlap_ratio, rank.communication_ratio, rank.other_ratio)
    return [
        escape(_name(rank)),
        quantities.duration(rank.total_ns),
        *(percent(part) for part in parts),
        quantities.duration(rank.transfer_ns),
        quantities.duration(rank.waiting_ns),
        str(rank.last_count),
    ]


def _write_collectives(out: Console, window: views.RankWindow) -> None:
    if not window.collectives:
        return
    rows = table("collective", "group", "calls", "total", "mean", "waiting", "bytes", "bus")
    for collective in window.collectives:
        bandwidth = collective.bus_bytes_per_s
        rows.add_row(
            escape(collective.name),
            escape(collective.group or quantities.MISSING),
            count(collective.call_count),
            quantities.duration(collective.total_ns),
            quantities.duration(collective.mean_ns),
            quantities.duration(collective.waiting_ns),
            quantities.memory(collective.moved_bytes),
            quantities.byte_rate(bandwidth),
        )
    out.print(rows)
    rows = table("collective", "nodes", "size", "calls", "total", "mean", "waiting", "bus")
    for size in window.collective_sizes[:MAX_SIZES]:
        rows.add_row(
            escape(size.name),
            size.reach or "unknown",
            f"from {quantities.memory(size.from_bytes)}"
            if size.from_bytes is not None
            else quantities.MISSING,
            count(size.call_count),
            quantities.duration(size.total_ns),
            quantities.duration(size.mean_ns),
            quantities.duration(size.waiting_ns),
            quantities.byte_rate(size.bus_bytes_per_s),
        )
    out.print(rows)


def _write_matrix(out: Console, matrix: views.StepMatrix) -> None:
    out.print()
    rows = table("rank", "slowest in", "slower than the median by")
    columns = zip(matrix.ranks, matrix.slowest_count, matrix.excess_ns, strict=True)
    for rank, slowest_count, excess in sorted(columns, key=lambda row: -row[1])[:MAX_RANKS]:
        rows.add_row(
            escape(rank),
            f"{count(slowest_count)} of {count(matrix.step_count)} steps",
            quantities.duration(excess),
        )
    out.print(rows)
    generic.write_sentences(out, matrix.notes)
