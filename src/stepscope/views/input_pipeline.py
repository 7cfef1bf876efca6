"""`input-pipeline`: how batches are made and what the training thread waits for."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.analysis import BatchCreation, DataWait
from stepscope.run import Rank, Run
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the waiting goes, as shares of the rank's measured steps; they sum to `share_ratio`."""

    share_ratio: float
    starting_ratio: float
    handing_over_ratio: float
    making_ratio: float
    starved_ratio: float | None
    """Share of requests that found no batch ready; null without workers."""


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of making batches."""

    name: str
    of_making_ratio: float
    """Share of the time spent making batches."""
    of_step_ratio: float
    """Share of the step: the waiting that is due to making batches, times the above."""
    labels: dict[str, float]
    """What the stage consists of, as shares of the time spent making batches."""


class MakingView(msgspec.Struct, frozen=True, kw_only=True):
    """What making batches takes."""

    batch_count: int
    mean_ns: float
    cpu_ratio: float
    samples_ratio: float | None
    collate_ratio: float
    transforms: dict[str, float]
    stack_sample_count: int
    stages: list[StageView]
    worker_busy_ratio: float | None


class RankPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """The input pipeline of one training process."""

    rank: str
    loader: dict[str, Any] | None
    """The DataLoader's settings."""
    cores_available: float | None
    waiting: WaitingView
    making: MakingView | None
    missing: str | None


class InputPipelineView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    ranks: list[RankPipeline]
    missing: str | None


def input_pipeline(run: Run, _options: ViewOptions = DEFAULTS) -> InputPipelineView:
    """How batches are made and what the training thread waits for."""
    ranks = [_rank(run, rank) for rank in run.ranks]
    return InputPipelineView(
        share_of="wall time of the rank's measured steps, evaluation left out",
        ranks=ranks,
        missing=None if ranks else "no complete training step was recorded",
    )


def _rank(run: Run, rank: Rank) -> RankPipeline:
    wall = float(rank.steps.wall_ns[rank.steps.measured()].sum()) or 1.0
    waiting, making = rank.late_batches, rank.making
    return RankPipeline(
        rank=rank.name,
        loader=msgspec.to_builtins(rank.loader) if rank.loader is not None else None,
        cores_available=run.cores_available,
        waiting=_waiting(waiting, wall),
        making=_making(making, waiting.making_ns / wall) if making is not None else None,
        missing=None if making is not None else "no batch was made by a torch DataLoader",
    )


def _waiting(waiting: DataWait, wall: float) -> WaitingView:
    return WaitingView(
        share_ratio=waiting.total_ns / wall,
        starting_ratio=waiting.starting_ns / wall,
        handing_over_ratio=waiting.handing_over_ns / wall,
        making_ratio=waiting.making_ns / wall,
        starved_ratio=waiting.starved_ratio,
    )


def _making(making: BatchCreation, of_step: float) -> MakingView:
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
                of_step_ratio=stage.ratio * of_step,
                labels=stage.labels,
            )
            for stage in making.stages
        ],
        worker_busy_ratio=making.worker_busy_ratio,
    )
