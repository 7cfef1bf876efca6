"""What one change would make of the mean step, all else as it was measured.

Where batches are made beside the training thread, a model of the input pipeline says how much of
the waiting is left (`Pipeline`). Everywhere else the step gets shorter by the part that the change
removes. A prediction of something removed is the best that can come of it: the part is gone, and
nothing took its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from stepscope.analysis import BatchCreation
from stepscope.diagnosis.data_causes import STAGE_CAUSES
from stepscope.diagnosis.overhead_causes import find_leak, python_inside
from stepscope.diagnosis.pipeline_model import Pipeline, WorkerEstimate
from stepscope.diagnosis.rank_causes import exchanges_of
from stepscope.diagnosis.shares import Proportions, Shares, share_of_host_cause
from stepscope.diagnosis.verdict import LEAST_SAVING, Prediction
from stepscope.run import Rank, Run

FEWER = 0.9
"""Of the evaluations: those that would be left out."""
GIVEN_BACK = ", and the training thread got the cores that its workers need no more"


class WhatIf:
    """Predictions for the job.

    Args:
        signals: the run.
        shares: of the job's step.
        split: how they were found.
        step_ns: its mean.
        fed: the rank that waits longest for batches: the others wait for it.
        pipeline: how that one is fed, None where nobody saw that.
    """

    def __init__(
        self,
        run: Run,
        shares: Shares,
        split: Proportions,
        step_ns: float,
        *,
        fed: Rank,
        pipeline: Pipeline | None,
    ) -> None:
        self._step_ns = step_ns
        self._pipeline = pipeline
        self._signals = run
        self._shares = shares
        self._split = split
        self._making = fed.making

    def without(self, cause: str) -> Prediction | None:
        """The step without what a cause stands for; None where the record does not say."""
        condition = _CONDITIONS.get(cause)
        if condition is None:
            return None
        if cause in _STAGE_OF or cause in {"worker_startup", "batch_handover"}:
            return self._of_pipeline(self._fed_without(cause), condition + self._given_back(cause))
        if cause == "inline_data_preparation":
            return self._beside(condition)
        if cause == "evaluation":
            return self._evaluating_less(condition)
        left_ns = self._step_ns * (1 - self._share(cause))
        return Prediction.of(left_ns, self._step_ns, condition)

    def best_workers(self) -> WorkerEstimate | None:
        """The number of workers that makes the step shortest; None where none makes it shorter."""
        if self._pipeline is None:
            return None
        best = self._pipeline.best_workers()
        return best if best is not None and best.step_ns < self._pipeline.step_ns() else None

    def with_workers(self, workers: int) -> Prediction | None:
        """The step with another number of workers."""
        if self._pipeline is None:
            return None
        return self._of_pipeline(
            self._pipeline.step_ns(workers=workers), "each worker is as fast as now"
        )

    def with_twice_the_workers(self) -> Prediction | None:
        """The step with twice the workers, for fetches that wait rather than compute."""
        return (
            None if self._pipeline is None else self.with_workers(2 * (self._pipeline.workers or 1))
        )

    def evened_out(self) -> Prediction | None:
        """The step without the waiting that the pace of the workers does not account for."""
        if self._pipeline is None:
            return None
        return self._of_pipeline(self._pipeline.steady_ns(), "no batch came later than the others")

    def _fed_without(self, cause: str) -> float | None:
        if self._pipeline is None:
            return None
        if cause == "worker_startup":
            return self._pipeline.step_ns(starting_ratio=0.0)
        if cause == "batch_handover":
            return self._pipeline.step_ns(handing_over_ratio=0.0)
        gone = stage_ratio(self._making, cause)
        return None if gone is None else self._pipeline.step_ns(fetch_ratio=1 - gone)

    def _given_back(self, cause: str) -> str:
        """What is to be said where a part of the saving is not of the waiting for batches."""
        gone = stage_ratio(self._making, cause) if cause in _STAGE_OF else None
        if self._pipeline is None or gone is None:
            return ""
        back_ns = self._pipeline.crowded_ns * gone
        return GIVEN_BACK if back_ns >= LEAST_SAVING * self._pipeline.step_ns() else ""

    def _of_pipeline(self, step_ns: float | None, condition: str) -> Prediction | None:
        """A prediction for the job from that for the rank that is fed slowest."""
        if step_ns is None or self._pipeline is None:
            return None
        ratio = step_ns / self._pipeline.step_ns()
        return Prediction.of(self._step_ns * ratio, self._step_ns, condition)

    def _beside(self, condition: str) -> Prediction:
        """With workers on all cores but one, each as fast as the training thread is."""
        workers = max(1, math.floor(self._signals.cores_available or 1) - 1)
        making = self._step_ns * self._shares.inline_data
        step = max(self._step_ns - making, making / workers)
        return Prediction.of(step, self._step_ns, condition.format(workers=workers))

    def with_equal_ranks(self) -> Prediction:
        """The step if the slowest rank were as fast as the others are on average.

        R ranks wait max - mean of their own work, each for itself, and the slowest is beyond the
        mean of the others by R / (R - 1) of that.
        """
        count = len(self._signals.ranks)
        saved = self._held_up() * count / max(1, count - 1)
        return Prediction.of(
            self._step_ns * (1 - saved), self._step_ns, "the slow rank were as fast as the others"
        )

    def _held_up(self) -> float:
        return sum(self._shares.held_up.values())

    def _evaluating_less(self, condition: str) -> Prediction:
        """Of the time from step to step, evaluation included."""
        evaluation = self._split.evaluation
        whole_ns = self._step_ns / (1 - evaluation)
        return Prediction.of(whole_ns - FEWER * evaluation * whole_ns, whole_ns, condition)

    def _share(self, cause: str) -> float:
        """Share of the step that a cause outside the input pipeline takes."""
        shares, phases = self._shares, self._shares.phases
        match cause:
            case "cpu_contention" | "cpu_limit":
                seen = self._signals.contention
                return seen.without_core_ratio if seen is not None else 0.0
            case "straggler" | "uneven_ranks":
                return self._held_up()
            case "recompilation":
                return shares.overhead_parts["compilation"]
            case "garbage_collection":
                return shares.overhead_parts["garbage_collection"]
            case "memory_leak":
                leak = find_leak(self._signals)
                return leak.excess_ns / self._step_ns if leak is not None else 0.0
            case "gradient_accumulation":
                return shares.exchange * (1 - 1 / exchanges_of(self._signals.ranks))
            case "host_to_device_copies":
                return phases["h2d"]
            case "checkpoint":
                return shares.overhead_parts["checkpoint"]
            case "small_batch" | "tiny_operators" | "dispatch_overhead":
                return shares.overhead_parts["inside_compute"]
            case "optimizer":
                return phases["optimizer"]
            case "compute":
                return shares.suspects["model"] / 2
            case "collectives":
                return shares.collectives
            case "gradient_exchange":
                return shares.exchange
            case "host_sync" | "logging":
                return phases["other"] * share_of_host_cause(self._signals.ranks, cause)
            case _:
                sampled = any(rank.host_work is not None for rank in self._signals.ranks)
                ratio = share_of_host_cause(self._signals.ranks, "python") if sampled else 1.0
                between = phases["other"] * ratio
                in_python = python_inside(self._signals.compute_profile)
                return between + shares.overhead_parts["inside_compute"] * in_python


def stage_ratio(making: BatchCreation | None, cause: str) -> float | None:
    """Share of making a batch that the stage behind a cause takes; None where it is not known."""
    if making is None:
        return None
    sampled = sum(found.ratio for found in making.stages if found.stage == _STAGE_OF[cause])
    return sampled or {
        "slow_collate": making.collate_ratio,
        "slow_reads": 1 - making.cpu_ratio,
        "slow_dataset": 1 - making.collate_ratio,
    }.get(cause)


_STAGE_OF = {cause: stage for stage, cause in STAGE_CAUSES.items()}

_CONDITIONS: Mapping[str, str] = {
    "slow_reads": "reading took no time",
    "slow_decode": "decoding took no time",
    "slow_augmentation": "augmentation took no time",
    "slow_tokenisation": "tokenising took no time",
    "slow_collate": "collating took no time",
    "slow_dataset": "the dataset's own code took no time",
    "worker_startup": "workers were started only once",
    "batch_handover": "batches were handed over at once",
    "inline_data_preparation": "{workers} workers prepared batches, each as fast as the training "
    "thread does",
    "host_to_device_copies": "every copy ran beside the computing",
    "host_sync": "no value was read from a tensor in the loop",
    "logging": "nothing was logged in the loop",
    "garbage_collection": "the collector never ran in the loop",
    "python_overhead": "the script's own Python took no time",
    "small_batch": "a step of as many samples had operators without gaps between them",
    "tiny_operators": "operators followed each other without gaps",
    "dispatch_overhead": "operators followed each other without gaps",
    "checkpoint": "saving never held the training thread up",
    "recompilation": "everything was compiled before the measured steps",
    "cpu_contention": "the training thread always had a core",
    "cpu_limit": "the training thread always had a core",
    "memory_leak": "steps took no longer than the first ones",
    "evaluation": "it evaluated a tenth as often, evaluation being spread over the steps",
    "straggler": "all ranks had the same to do",
    "uneven_ranks": "all ranks had the same to do in every step",
    "gradient_accumulation": "gradients were exchanged once a step",
    "optimizer": "the optimizer took no time",
    "compute": "the arithmetic took half as long",
    "gradient_exchange": "all of the exchange was hidden behind computing",
    "collectives": "the collectives took no time",
}
