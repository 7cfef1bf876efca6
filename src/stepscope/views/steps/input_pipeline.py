"""`input-pipeline`: creation of batches, and data wait of the training thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from stepscope import analysis, schema
from stepscope.quantities import duration, number, percent
from stepscope.run import Rank, Run, divide_traces, measure_fetches, measure_tf_data
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions
from stepscope.views.steps.steps import explain_no_steps

NO_FETCHES_IN_FILES = "no trace contains fetches {} in a step"
NO_FETCHES = f"{NO_FETCHES_IN_FILES}: `stepscope run -- CMD` records those of a job"
NO_BATCHES = "no creation of a batch by a DataLoader was recorded"


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """Data wait by reason, as shares of the rank's measured steps; they sum to `share_ratio`."""

    share_ratio: Annotated[float | None, schema.field_label("waiting for data")]
    starting_ratio: Annotated[float | None, schema.field_label("starting workers")]
    handing_over_ratio: Annotated[float | None, schema.field_label("handing over")]
    making_ratio: Annotated[float | None, schema.field_label("batch creation")]
    starved_ratio: Annotated[float | None, schema.field_label("worker queues empty")]
    """Share of batch requests that found the prefetch queue empty; null without workers."""


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    """Stage of batch creation."""

    name: Annotated[str, schema.field_label("stage")]
    of_making_ratio: Annotated[float | None, schema.field_label("of batch creation", display="bar")]
    """Share of batch creation time."""
    of_step_ratio: Annotated[float | None, schema.field_label("of step time", display="bar")]
    """Share of the step: data wait caused by batch creation, times `of_making_ratio`."""
    labels: Annotated[dict[str, float], schema.field_label("functions", unit="ratio")]
    """Parts of the stage, as shares of batch creation time."""


class MakingView(msgspec.Struct, frozen=True, kw_only=True):
    """Batch creation."""

    batch_count: int
    mean_ns: Annotated[float, schema.field_label("batch creation")]
    cpu_ratio: float | None
    samples_ratio: float | None
    collate_ratio: float | None
    transforms: Annotated[dict[str, float], schema.field_label(unit="ratio")]
    stack_sample_count: int
    stages: list[StageView]
    worker_busy_ratio: Annotated[float | None, schema.field_label("workers busy")]
    detailed_every: Annotated[
        int, schema.field_label("one batch recorded in detail of", unit="count")
    ]
    """Number N if quick batches were recorded in detail one in N; shares are those of these."""


class RankPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Input pipeline of one training process."""

    rank: str
    loader: dict[str, Any] | None
    """Settings of the DataLoader."""
    cores_available: Annotated[float | None, schema.field_label("available cores", unit="count")]
    waiting: Annotated[WaitingView, schema.field_label("waiting for data")]
    making: Annotated[MakingView | None, schema.field_label("batch creation")]
    missing: str | None


class TracePipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches of batches in one trace."""

    rank: str
    """The rank, or the name of the trace where the rank is unknown."""
    has_workers: Annotated[bool, schema.field_label("batches made by")]
    """True if workers make the batches; false if the training process does."""
    fetches_per_step: Annotated[float, schema.field_label("fetches per step", unit="count")]
    fetch_step_ns: Annotated[float, schema.field_label("fetching per step")]
    """Time of the training thread in fetches, per step."""
    exposed_ratio: Annotated[float | None, schema.field_label("waiting for data", display="bar")]
    """Share of step time in fetches that no work of the device hides."""
    copy_ratio: Annotated[float | None, schema.field_label("copies to the device", display="bar")]
    """Share of step time in copies to the device that no other work hides."""


class TfDataStageView(msgspec.Struct, frozen=True, kw_only=True):
    """Stage of tf.data in one trace."""

    trace: str
    name: Annotated[str, schema.field_label("stage")]
    total_ns: Annotated[int, schema.field_label("in total")]
    """Time of all calls, without that of other stages that they call in the same thread. It
    includes waits for other threads."""
    call_count: Annotated[int, schema.field_label("calls")]
    call_ns: Annotated[float, schema.field_label("per call")]
    """Mean time of a call, of `total_ns`."""


class InputPipelineView(Ranged, frozen=True, kw_only=True):
    """Payload of `input-pipeline`."""

    sentence: str
    """How long the training waits for data, and why; empty where that is unknown."""
    share_of: str
    ranks: list[RankPipeline]
    traces: list[TracePipeline]
    """Imported traces that contain fetches of a DataLoader."""
    tf_data: list[TfDataStageView]
    """Stages of tf.data by trace, the one that takes longest first."""
    missing: str | None


def show_input_pipeline(run: Run, _options: ViewOptions = DEFAULTS) -> InputPipelineView:
    """Show batch creation and the data wait of the training thread."""
    ranks = [_show_rank(run, rank) for rank in run.ranks]
    traces = [] if ranks else _show_traces(run)
    tf_data = [
        TfDataStageView(
            trace=trace.label,
            name=stage.name,
            total_ns=stage.total_ns,
            call_count=stage.call_count,
            call_ns=stage.total_ns / stage.call_count,
        )
        for trace in run.traces
        for stage in measure_tf_data(trace)
    ]
    has_devices = run.reader.row_count("kernels") > 0
    return InputPipelineView(
        sentence=_write_sentence(ranks, traces, tf_data),
        share_of="wall time of the rank's measured steps without evaluation"
        if ranks
        else "step time in the trace"
        + (", until the device work of a step is done" if has_devices else ""),
        ranks=ranks,
        traces=traces,
        tf_data=tf_data,
        missing=None if ranks or traces or tf_data else explain_no_pipeline(run),
    )


def explain_no_pipeline(run: Run) -> str:
    """Explain why a run has no input pipeline."""
    if not run.traces:
        return explain_no_steps(run)
    reason = NO_FETCHES_IN_FILES if run.is_imported else NO_FETCHES
    return reason.format(run.traces[0].recorder.fetches)


MAX_TIMELY_RATIO = 0.05
"""Smaller shares of the step are no reason to change the input pipeline."""
_REASONS = {
    "starting_ratio": "starting workers takes most of it.",
    "handing_over_ratio": "handing batches over takes most of it.",
    "making_ratio": "creating batches takes most of it.",
}
"""Reasons for the largest part of the wait of a rank. Advice is the verdict's: it knows more."""


def _write_sentence(
    ranks: Sequence[RankPipeline],
    traces: Sequence[TracePipeline],
    tf_data: Sequence[TfDataStageView],
) -> str:
    """Write how long the training waits for data, on the rank that waits longest."""
    if ranks:
        rank = max(ranks, key=lambda rank: rank.waiting.share_ratio or 0.0)
        share = rank.waiting.share_ratio or 0.0
        owner = "" if len(ranks) == 1 else f" of {rank.rank}"
        reason = max(_REASONS, key=lambda name: float(getattr(rank.waiting, name) or 0.0))
        reason = _REASONS[reason]
    elif traces:
        trace = max(traces, key=lambda trace: trace.exposed_ratio or 0.0)
        share = trace.exposed_ratio or 0.0
        owner = "" if len(traces) == 1 else f" of {trace.rank}"
        process = "workers" if trace.has_workers else "the training process"
        reason = f"fetching takes {duration(trace.fetch_step_ns)} per step, in {process}."
    elif tf_data:
        stage = max(tf_data, key=lambda stage: stage.total_ns)
        return (
            f"The longest stage of tf.data is {stage.name}: {duration(stage.total_ns)} in "
            f"{number(stage.call_count)} calls."
        )
    else:
        return ""
    wait = f"Waiting for data takes {percent(share)} of step time{owner}"
    return f"{wait}: {reason}" if share >= MAX_TIMELY_RATIO else f"{wait}: batches arrive in time."


def _show_traces(run: Run) -> list[TracePipeline]:
    """Show the traces with fetches."""
    shown = []
    for divided in divide_traces(run):
        fetches = measure_fetches(divided.trace, divided.steps)
        wall_ns = int(divided.steps.wall_ns.sum())
        if fetches is not None:
            shown.append(
                TracePipeline(
                    rank=divided.trace.label,
                    has_workers=fetches.has_workers,
                    fetches_per_step=fetches.count_per_step,
                    fetch_step_ns=fetches.ns_per_step,
                    exposed_ratio=int(divided.part_ns["data_loader"].sum()) / wall_ns,
                    copy_ratio=int(divided.part_ns["copy_to_device"].sum()) / wall_ns,
                )
            )
    return shown


def _show_rank(run: Run, rank: Rank) -> RankPipeline:
    wall_ns = float(rank.steps.wall_ns[rank.steps.measured()].sum()) or 1.0
    waiting, making = rank.late_batches, rank.making
    return RankPipeline(
        rank=rank.name,
        loader=msgspec.to_builtins(rank.loader) if rank.loader is not None else None,
        cores_available=run.cores_available,
        waiting=WaitingView(
            share_ratio=waiting.total_ns / wall_ns,
            starting_ratio=waiting.starting_ns / wall_ns,
            handing_over_ratio=waiting.handing_over_ns / wall_ns,
            making_ratio=waiting.making_ns / wall_ns,
            starved_ratio=waiting.starved_ratio,
        ),
        making=_show_creation(making, waiting.making_ns / wall_ns) if making is not None else None,
        missing=None if making is not None else NO_BATCHES,
    )


def _show_creation(making: analysis.BatchCreation, step_ratio: float) -> MakingView:
    return MakingView(
        batch_count=making.batch_count,
        mean_ns=making.mean_ns,
        cpu_ratio=making.cpu_ratio,
        samples_ratio=making.samples_ratio,
        collate_ratio=making.collate_ratio,
        transforms=making.transforms,
        stack_sample_count=making.sample_count,
        stages=[
            StageView(
                name=stage.name,
                of_making_ratio=stage.ratio,
                of_step_ratio=stage.ratio * step_ratio,
                labels=stage.labels,
            )
            for stage in making.stages
        ],
        worker_busy_ratio=making.worker_busy_ratio,
        detailed_every=making.detailed_every,
    )
