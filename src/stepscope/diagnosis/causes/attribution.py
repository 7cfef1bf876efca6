"""Bottleneck attribution: the suspects whose share of the step exceeds its threshold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.diagnosis.causes import batch_size
from stepscope.diagnosis.causes.padding import measure_padding, measure_padding_share
from stepscope.diagnosis.shares.shares import PhaseSplit, Shares, compute_shares
from stepscope.diagnosis.verdict import LOOP_SHARE, STEP_SHARE, Suspect
from stepscope.quantities import percent
from stepscope.run import Run, largest_model


class AttributionThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the step from which a suspect is a bottleneck."""

    min_steps: int = 20
    """Fewer complete steps than this are not enough evidence."""
    data_pipeline: float = 0.20
    """Rule of thumb of the field: below a fifth of the step, data loading is no bottleneck."""
    communication: float = 0.20
    framework_overhead: float = 0.25
    overhead_cause: float = 0.20
    """Share of the largest cause of overhead from which overhead is accused: a fix of a smaller one
    saves too little, and many small ones have no fix."""
    operator_calls: float = 0.40
    """The same for calling operators on a CPU, unless the batch is small or the calls are between
    the phases: in public programs a compiler or a larger batch saved 0% to 13% of a step that calls
    them for less than this, and 17% to 42% beyond it."""
    slow_rank: float = 0.20
    """Share of the step by which a slow rank exceeds the others, or in which ranks wait for each
    other in turn."""
    evaluation: float = 0.17
    """Share of evaluation in the time that steps and evaluation take together: from here on,
    evaluating a tenth as often makes the job at least 15% faster."""
    optimizer: float = 0.40
    """The optimizer is the bottleneck from this share of the step, if it also exceeds both
    passes."""
    fixed_padding: float = 0.15
    """Share of the step that passes take for positions behind the longest sequence of a batch."""
    uneven_padding: float = 0.30
    """The same for padding that only batches of similar lengths avoid: it is an upper limit."""
    heavy_compute: float = 0.85
    """A model is heavy when it has this share of the step …"""
    heavy_model_core_ns: float = 200_000_000
    """… and its share of one step keeps one core (or one GPU) busy for this long, or it computes
    in double precision. Below that, a compute-bound job is healthy."""
    outside_core_ratio: float = 0.25
    """Contention: processes outside the job use this share of the cores, …"""
    throttled_ratio: float = 0.20
    """… or the CPU quota of the job is exhausted for this share of the time, …"""
    waiting_ratio: float = 0.20
    """… while the training thread is runnable without a core for this share of the time."""
    core_shortage: float = 0.50
    """A core shortage is the verdict from more than this share of the step on. Below that, the load
    of other processes contributes, and a limit of the job's own is the verdict where nothing else
    is."""
    max_dropped_ratio: float = 0.01
    """Maximum ratio of dropped to recorded records."""
    resamples: int = 200

    @property
    def by_suspect(self) -> Mapping[Suspect, float]:
        """Thresholds of the suspects that are attributed by their share alone."""
        return {
            "data_pipeline": self.data_pipeline,
            "communication": self.communication,
            "framework_overhead": self.framework_overhead,
        }


THRESHOLDS = AttributionThresholds()
NEED_A_WINDOW: frozenset[Suspect] = frozenset({"model", "healthy"})
"""Suspects that phase times alone cannot tell from overhead inside the compute phases."""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """A suspect whose share exceeds its threshold."""

    suspect: Suspect
    share: float
    """Share of the step; for evaluation see `PhaseSplit.evaluation`."""
    cause: str | None = None
    """Set where the attribution already is a cause: cpu_contention, cpu_limit, evaluation,
    small_batch, padding, or slow_rank, which stands for several causes."""


CORE_SHORTAGES = frozenset(["cpu_contention", "cpu_limit"])
"""Causes whose share is of the step as measured, waiting for cores included."""


def name_denominator(attribution: Attribution, shares: Shares) -> str:
    """Name the denominator of an attribution's share."""
    if attribution.cause == "evaluation":
        return LOOP_SHARE
    return STEP_SHARE if attribution.cause in CORE_SHORTAGES else shares.share_of


class CoreShortage(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which the training thread was runnable without a core, and the reason."""

    cause: str
    ratio: float
    """Mean over the training."""

    def attribute(self, share: float) -> Attribution:
        """Return the attribution of a share of the step to the shortage."""
        return Attribution(suspect="framework_overhead", share=share, cause=self.cause)


class Attributor:
    """Attribution of shares to suspects; run-wide facts are computed once for all resamples."""

    def __init__(self, run: Run, split: PhaseSplit, thresholds: AttributionThresholds) -> None:
        self._shortage = find_core_shortage(
            run, thresholds, is_recorded=split.core_waits.is_recorded
        )
        self._run, self._split = run, split
        self.thresholds = thresholds
        self._core_ns = (run.busy_devices or 0.0) * run.mean_step_ns
        self._is_double = is_double_precision(run)
        self._padding = measure_padding(run)

    def is_exceeded(self, suspect: Suspect, shares: Shares) -> bool:
        """Return whether a suspect of `AttributionThresholds.by_suspect` is a bottleneck."""
        limits = self.thresholds
        if shares.suspects[suspect] < limits.by_suspect[suspect]:
            return False
        return suspect != "framework_overhead" or (
            self.has_large_overhead(shares)
            and not batch_size.is_batch_sufficient(self._run, shares)
        )

    def has_large_overhead(self, shares: Shares) -> bool:
        """Return whether overhead has a cause that is large enough for a fix."""
        limits, run, calls = self.thresholds, self._run, shares.operator_calls
        between_phases = shares.overhead_parts["framework_calls"]
        if max(shares.largest_overhead, between_phases) >= limits.overhead_cause:
            return True
        profile = run.compute_profile
        if calls < limits.overhead_cause or profile is None:
            return False
        is_fixable = (
            profile.on_device
            or batch_size.is_python_bound(profile)
            or batch_size.is_batch_small_for(run, shares, profile)
        )
        return is_fixable or calls >= limits.operator_calls

    def excuse_overhead(self, shares: Shares) -> str:
        """Say why overhead beyond its threshold is no bottleneck; '' where it is below, or is
        one."""
        limits, run = self.thresholds, self._run
        is_below = shares.suspects["framework_overhead"] < limits.framework_overhead
        if is_below or self.is_exceeded("framework_overhead", shares):
            return ""
        if batch_size.is_batch_sufficient(run, shares):
            saving = percent(batch_size.measure_doubling_saving(run, shares))
            return f"with twice the batch, a sample would take only {saving} less"
        return (
            f"it has several parts of which none has {percent(limits.overhead_cause)}, or "
            f"{percent(limits.operator_calls)} for calling operators"
        )

    def attribute(self, shares: Shares) -> Attribution:
        """Attribute the step to the largest suspect above its threshold, or to `healthy`."""
        attributions = self.attribute_all(shares)
        if attributions and not self._is_load_alone(attributions[0]):
            return attributions[0]
        if self._is_optimizer_heavy(shares):
            return Attribution(suspect="model", share=shares.suspects["model"])
        if batch_size.has_small_batch(self._run, shares):
            share = 2 * batch_size.measure_doubling_saving(self._run, shares)
            return Attribution(suspect="framework_overhead", share=share, cause="small_batch")
        if self._is_model_heavy(shares):
            return Attribution(suspect="model", share=shares.suspects["model"])
        return Attribution(suspect="healthy", share=shares.suspects["model"])

    def attribute_all(self, shares: Shares) -> list[Attribution]:
        """List all attributions above their thresholds, largest first.

        A core shortage comes first where it has more than half of the step, and last otherwise.

        Evaluation happens between the steps, so shares of the step are scaled to steps and
        evaluation together for the comparison. Evaluation precedes the other overhead where it is
        larger than each part of it.
        """
        limits, split = self.thresholds, self._split
        attributions = [
            Attribution(suspect=suspect, share=shares.suspects[suspect])
            for suspect in limits.by_suspect
            if self.is_exceeded(suspect, shares)
        ]
        rank_wait = split.rank_waits.add_excess(shares.rank_wait.get("model", 0.0))
        if rank_wait >= limits.slow_rank:
            attributions.append(Attribution(suspect="model", share=rank_wait, cause="slow_rank"))
        padding = self._attribute_padding(shares)
        if padding is not None:
            attributions.append(padding)
        if split.evaluation >= limits.evaluation:
            evaluation = Attribution(
                suspect="framework_overhead", share=split.evaluation, cause="evaluation"
            )
            attributions.append(evaluation)

        def scaled_share(entry: Attribution) -> float:
            return entry.share * (1 if entry.cause == "evaluation" else 1 - split.evaluation)

        largest_part = max(shares.overhead_parts.values(), default=0.0)

        def is_dominant_evaluation(entry: Attribution) -> bool:
            is_larger = split.evaluation > largest_part * (1 - split.evaluation)
            return entry.cause == "evaluation" and is_larger

        attributions.sort(key=scaled_share, reverse=True)
        first = attributions[0] if attributions else None
        if first and first.suspect == "framework_overhead" and first.cause is None:
            attributions.sort(key=is_dominant_evaluation, reverse=True)
        shortage = self._attribute_shortage(shares)
        if shortage is None:
            return attributions
        is_first = shortage.share > limits.core_shortage
        return [shortage, *attributions] if is_first else [*attributions, shortage]

    def _attribute_padding(self, shares: Shares) -> Attribution | None:
        """Attribute the step to padding; None where that is too little of it."""
        share, limits = measure_padding_share(self._padding, shares), self.thresholds
        is_fixed = self._padding is not None and self._padding.is_fixed
        if share < (limits.fixed_padding if is_fixed else limits.uneven_padding):
            return None
        return Attribution(suspect="model", share=share, cause="padding")

    def _attribute_shortage(self, shares: Shares) -> Attribution | None:
        """Attribute the step to a core shortage; None where that is too little of it."""
        if self._shortage is None:
            return None
        is_recorded = self._split.core_waits.is_recorded
        share = shares.without_core if is_recorded else self._shortage.ratio
        return self._shortage.attribute(share) if share >= self.thresholds.waiting_ratio else None

    def _is_load_alone(self, attribution: Attribution) -> bool:
        """Return whether an attribution is to the load of other processes that takes less than half
        of the step, which never turns a verdict."""
        return (
            attribution.cause == "cpu_contention"
            and attribution.share <= self.thresholds.core_shortage
        )

    def estimate_stability(
        self, matrix: NDArray[np.int64], attribution: Attribution, step_count: int
    ) -> float:
        """Estimate how often resampled steps give the same attribution (circular block bootstrap,
        Politis and Romano 1992), times n/(n+5) for n steps.

        Steps are resampled in blocks, because slow steps come in groups. A verdict on compute
        without a profiler window cannot tell the model from overhead, and counts half.

        Args:
            matrix: step times by step and phase, as of `build_phase_matrix`.
            step_count: measured steps of all ranks.
        """
        row_count = len(matrix)
        block = max(1, round(row_count ** (1 / 3)))
        lengths = np.full(-(-row_count // block), block)
        lengths[-1] -= lengths.sum() - row_count
        # The sum of a block is the difference of two cumulative sums.
        cumulative = np.zeros((row_count + block + 1, matrix.shape[1]), dtype=np.int64)
        np.cumsum(np.concatenate([matrix, matrix[:block]]), axis=0, out=cumulative[1:])
        generator = np.random.default_rng(0)
        totals = []
        for _ in range(self.thresholds.resamples):
            starts = generator.integers(0, row_count, size=len(lengths))
            totals.append((cumulative[starts + lengths] - cumulative[starts]).sum(axis=0))
        same_count = 0
        for total, count in zip(*np.unique(totals, axis=0, return_counts=True), strict=True):
            resampled = self.attribute(compute_shares(total[np.newaxis], self._split))
            if (resampled.suspect, resampled.cause) == (attribution.suspect, attribution.cause):
                same_count += int(count)
        stability = same_count / self.thresholds.resamples * step_count / (step_count + 5)
        if attribution.suspect in NEED_A_WINDOW and not self._split.has_window:
            stability *= 0.5
        return stability

    def _is_optimizer_heavy(self, shares: Shares) -> bool:
        phases = shares.phases
        passes = phases["forward"] + phases["loss"] + phases["backward"]
        return passes > 0 and phases["optimizer"] >= max(self.thresholds.optimizer, passes)

    def _is_model_heavy(self, shares: Shares) -> bool:
        limits = self.thresholds
        model_share = shares.suspects["model"]
        if not self._split.has_window or model_share < limits.heavy_compute:
            return False
        return self._is_double or model_share * self._core_ns >= limits.heavy_model_core_ns


def is_double_precision(run: Run) -> bool:
    """Return whether the parameters of the largest model are float64, which training does not need
    and which costs at least twice as much."""
    model = largest_model(run.ranks[0])
    return model is not None and model.dtypes == ["float64"]


def find_core_shortage(
    run: Run, thresholds: AttributionThresholds, *, is_recorded: bool
) -> CoreShortage | None:
    """Find the reason why the training thread had no core for much of the time; None where it had
    one, or where that was not recorded. Recorded delays are compared with the threshold later.

    An exhausted quota takes precedence: processes outside the job cannot exhaust it.
    """
    contention, cores = run.contention, run.cores_available
    if contention is None or not cores:
        return None
    is_throttled = contention.throttled_ratio >= thresholds.throttled_ratio
    is_contended = contention.outside_cores >= thresholds.outside_core_ratio * cores
    waiting = contention.without_core_ratio
    if not (is_throttled or is_contended):
        return None
    if waiting < thresholds.waiting_ratio and not is_recorded:
        return None
    return CoreShortage(cause="cpu_limit" if is_throttled else "cpu_contention", ratio=waiting)
