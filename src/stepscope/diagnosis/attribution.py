"""Who is accused: which shares are large enough, and which of them is the largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.diagnosis.shares import Proportions, Shares, shares_of
from stepscope.diagnosis.verdict import Suspect
from stepscope.run import Run, largest_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a share of the step is an accusation."""

    min_steps: int = 20
    """Fewer complete steps than this are no evidence."""
    data_pipeline: float = 0.20
    """Seed of the field: below a fifth of the step, loading counts as fixed."""
    communication: float = 0.20
    framework_overhead: float = 0.25
    slow_rank: float = 0.20
    """Ranks wait for the slowest of them for this much of the step."""
    evaluation: float = 0.25
    """Share of the time that steps and evaluation take together."""
    optimizer: float = 0.40
    """An optimizer that takes this much of the step, and more than both passes, is named."""
    heavy_compute: float = 0.85
    """A model is heavy when it owns this much of the step …"""
    heavy_model_core_ns: float = 200_000_000
    """… and what it owns of one step keeps one core (or one GPU) busy for this long, or it
    computes in double precision. Below that, a job that is bound by computing simply does its
    work."""
    outside_core_ratio: float = 0.25
    """Others use this share of the cores, …"""
    throttled_ratio: float = 0.20
    """… or the CPU quota of the job is used up for this share of the time, …"""
    waiting_ratio: float = 0.20
    """… while the training thread is ready to run without a core for this share of the time."""
    max_dropped_ratio: float = 0.01
    """More dropped records than this, relative to those kept, are a conflict."""
    resamples: int = 200

    @property
    def of_suspects(self) -> Mapping[Suspect, float]:
        """Of those that are accused for their share alone."""
        return {
            "data_pipeline": self.data_pipeline,
            "communication": self.communication,
            "framework_overhead": self.framework_overhead,
        }


THRESHOLDS = Thresholds()
NEED_A_WINDOW: frozenset[Suspect] = frozenset({"model", "healthy"})
"""Coarse times cannot tell these from overhead inside the compute phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """One that is large enough."""

    suspect: Suspect
    share: float
    """Of the step; of evaluation, see `Proportions.evaluation`."""
    cause: str | None = None
    """Where what accuses is a cause already: cpu_contention, cpu_limit, evaluation, or
    slow_rank, of which there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCores:
    """Time for which the training thread stood without a core, and why."""

    cause: str
    ratio: float


class Judge:
    """Accuses by shares; what does not change when steps are resampled is found once."""

    def __init__(self, run: Run, split: Proportions, thresholds: Thresholds) -> None:
        self.lost = lost_cores(run, thresholds)
        self._split = split
        self._thresholds = thresholds
        self._core_ns = (run.busy_devices or 0.0) * run.mean_step_ns
        self._in_double = in_double_precision(run)

    def accuse(self, shares: Shares) -> Accusation:
        """The largest accusation; `healthy` without any."""
        accused = self.accusations(shares)
        if accused:
            return accused[0]
        if self._heavy_optimizer(shares) or self._heavy_model(shares):
            return Accusation(suspect="model", share=shares.suspects["model"])
        return Accusation(suspect="healthy", share=shares.suspects["model"])

    def accusations(self, shares: Shares) -> list[Accusation]:
        """All that are large enough, the largest first.

        Time without a core is in everything that the thread does, so it comes first unless a
        suspect owns more than that; evaluation is beside the steps, so that shares of the step
        are scaled to both for the comparison. It comes before the rest of its suspect where it is
        larger than every part of that.
        """
        limits, split = self._thresholds, self._split
        found = [
            Accusation(suspect=suspect, share=shares.suspects[suspect])
            for suspect, limit in limits.of_suspects.items()
            if shares.suspects[suspect] >= limit
        ]
        held_up = shares.held_up.get("model", 0.0)
        if held_up >= limits.slow_rank:
            found.append(Accusation(suspect="model", share=held_up, cause="slow_rank"))
        if self.lost is not None:
            lost = Accusation(
                suspect="framework_overhead", share=self.lost.ratio, cause=self.lost.cause
            )
            found.insert(0, lost)
        if split.evaluation >= limits.evaluation:
            evaluation = Accusation(
                suspect="framework_overhead", share=split.evaluation, cause="evaluation"
            )
            found.append(evaluation)

        def size(each: Accusation) -> float:
            return each.share if each.cause == "evaluation" else each.share * (1 - split.evaluation)

        largest_part = max(shares.overhead_parts.values(), default=0.0)

        def before_its_suspect(each: Accusation) -> bool:
            larger = split.evaluation > largest_part * (1 - split.evaluation)
            return each.cause == "evaluation" and larger

        found.sort(key=size, reverse=True)
        if found and found[0].suspect == "framework_overhead" and found[0].cause is None:
            found.sort(key=before_its_suspect, reverse=True)
        return found

    def stability(self, matrix: NDArray[np.int64], accused: Accusation, steps: int) -> float:
        """How often resampled steps give the same verdict (circular block bootstrap), times
        n/(n+5) for n steps.

        Steps are resampled in blocks, because slow steps come in groups. A verdict on compute
        without a profiler window cannot tell the model from overhead, and counts half.
        """
        count = len(matrix)
        block = max(1, round(count ** (1 / 3)))
        generator = np.random.default_rng(0)
        length = np.full(-(-count // block), block)
        length[-1] -= length.sum() - count
        # The sum of a block is that up to its end less that up to its beginning.
        until = np.zeros((count + block + 1, matrix.shape[1]), dtype=np.int64)
        np.cumsum(np.concatenate([matrix, matrix[:block]]), axis=0, out=until[1:])
        same = 0
        for _ in range(self._thresholds.resamples):
            begin = generator.integers(0, count, size=len(length))
            sums = until[begin + length] - until[begin]
            resampled = self.accuse(shares_of(sums, self._split))
            same += (resampled.suspect, resampled.cause) == (accused.suspect, accused.cause)
        certainty = same / self._thresholds.resamples * steps / (steps + 5)
        if accused.suspect in NEED_A_WINDOW and not self._split.has_window:
            certainty *= 0.5
        return certainty

    def _heavy_optimizer(self, shares: Shares) -> bool:
        phases = shares.phases
        passes = phases["forward"] + phases["loss"] + phases["backward"]
        return phases["optimizer"] >= max(self._thresholds.optimizer, passes)

    def _heavy_model(self, shares: Shares) -> bool:
        limits = self._thresholds
        own = shares.suspects["model"]
        if not self._split.has_window or own < limits.heavy_compute:
            return False
        return self._in_double or own * self._core_ns >= limits.heavy_model_core_ns


def in_double_precision(run: Run) -> bool:
    """Whether the parameters of the largest model are of double precision, which no training
    needs and which costs twice as much or more."""
    model = largest_model(run.ranks[0])
    return model is not None and model["dtypes"] == ["float64"]


def lost_cores(run: Run, thresholds: Thresholds) -> LostCores | None:
    """Why the training thread had no core for a good part of the time; None where it had one, or
    where that is not known.

    Of the two reasons a used-up quota comes first: neighbours cannot use it up.
    """
    seen, cores = run.contention, run.cores_available
    if seen is None or not cores:
        return None
    throttled = seen.throttled_ratio >= thresholds.throttled_ratio
    taken = seen.outside_cores >= thresholds.outside_core_ratio * cores
    waiting = seen.without_core_ratio
    if waiting < thresholds.waiting_ratio or not (throttled or taken):
        return None
    return LostCores(cause="cpu_limit" if throttled else "cpu_contention", ratio=waiting)
