"""What-if predictions: the mean step after one change, everything else as measured.

Where workers create batches in parallel with the training thread, a model of the input pipeline
predicts the remaining waiting after a change of it (`Pipeline`), but for the handover of batches.
Everywhere else the step gets shorter by the part that the change removes, as far as workers have
the batches ready by then: a replay of the causal graph tells both (`WorkerReplay`).

Removing a part completely is the best case of a change, so these predictions are marked as upper
bounds of the saving. There is no prediction for a condition that no change brings about, such as
arithmetic that takes half the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec.structs import replace

from stepscope import analysis, quantities, rules, run
from stepscope.diagnosis.causes import wait_causes
from stepscope.diagnosis.causes.batch_size import is_python_bound, measure_doubling_saving
from stepscope.diagnosis.causes.cause import CauseInputs
from stepscope.diagnosis.causes.data_causes import STAGE_CAUSES
from stepscope.diagnosis.causes.memory_leak import find_memory_leak
from stepscope.diagnosis.causes.padding import measure_padding, measure_padding_share
from stepscope.diagnosis.causes.rank_causes import count_exchanges
from stepscope.diagnosis.shares.pipeline_model import Pipeline, WorkerEstimate, describe_workers
from stepscope.diagnosis.shares.shares import compute_host_cause_share
from stepscope.diagnosis.verdict import (
    CAUSES,
    CORE_SHARE,
    LOOP_SHARE,
    MIN_SAVING_RATIO,
    STEP_SHARE,
    Prediction,
)

SKIPPED_EVALUATIONS = 0.9
"""Share of the evaluations that are left out when evaluating less often."""
CPU_TIME_RETURNED = " and its CPU time went to the training thread"


class WhatIf:
    """Predictions for one job."""

    def __init__(self, inputs: CauseInputs) -> None:
        self._run = inputs.run
        self._shares = inputs.shares
        self._split = inputs.split
        self._pipeline = inputs.pipeline
        self._making = inputs.starved_rank.making
        self._step_ns = inputs.run.mean_step_ns
        self._replay = WorkerReplay(inputs)
        self._waits = wait_causes.sum_waits(inputs)
        self._base_ns = inputs.base_ns
        self._inline = Pipeline.measure_inline(
            inputs.run,
            inputs.starved_rank,
            inputs.shares.inline_data * (1 - inputs.shares.without_core),
        )

    def predict_without(self, cause: str) -> Prediction | None:
        """Predict the step without a cause; None where the run does not contain the data."""
        condition = _REMOVALS.get(cause) or _CHANGES.get(cause)
        is_unpriced = cause == "debug_switch" and not self._shares.overhead_parts[cause]
        is_training = cause == "python_overhead" and self._shares.is_undivided
        if condition is None or is_unpriced or is_training:
            return None
        prediction = self._predict_without(cause, condition)
        return None if prediction is None else replace(prediction, cause=cause)

    def _predict_without(self, cause: str, condition: str) -> Prediction | None:
        if cause == "batch_handover" and (saved_ratio := self._replay.predict_no_handover()):
            step_ns = self._step_ns * (1 - saved_ratio)
            return Prediction.from_step(step_ns, self._step_ns, condition, is_bound=True)
        is_stage = cause in _STAGE_OF and cause not in self._waits
        if is_stage or cause in {"worker_startup", "batch_handover"}:
            condition += self._describe_returned_cpu_time(cause)
            return self._scale_pipeline(
                self._predict_pipeline_without(cause), condition, is_bound=True
            )
        if cause == "inline_data_preparation":
            return self._predict_with_loader(condition)
        if cause == "evaluation":
            return self._predict_less_evaluation(condition)
        return self._remove(
            self._compute_share(cause),
            condition,
            is_bound=cause in _REMOVALS,
            share_of=STEP_SHARE if cause in _SHARES_OF_STEP else self._shares.share_of,
            cause=None if cause in _NOT_OWN_WORK else cause,
        )

    def _remove(
        self,
        share: float,
        condition: str,
        *,
        is_bound: bool = True,
        share_of: str | None = None,
        cause: str | None = "",
    ) -> Prediction:
        """Predict the step without a share of it.

        Args:
            share: share of `share_of`.
            condition: change that removes it.
            is_bound: as of `Prediction`.
            share_of: denominator of the share; by default that of `Shares`.
            cause: cause of the share, which is work of the training thread: it may wait for batches
                instead; None where the change takes more than that.
        """
        share_of = share_of or self._shares.share_of
        base_ns = self._base_ns if share_of == CORE_SHARE else self._step_ns
        if cause is not None:
            share = self._replay.limit_saving(share * base_ns, cause) / base_ns
        return Prediction.from_step(
            base_ns * (1 - share), base_ns, condition, is_bound=is_bound, share_of=share_of
        )

    @property
    def intra_op_threads(self) -> int:
        """Intra-op threads of the process that waits longest for batches; 1 where not known."""
        return self._pipeline.threads if self._pipeline is not None else 1

    @property
    def is_inline_even(self) -> bool:
        """True if it is known that workers would not prepare batches clearly faster than the
        training thread."""
        inline = self._inline
        is_known = inline.cores is not None or inline.is_handover_longer
        return is_known and inline.find_better_workers() is None

    @property
    def has_no_use_for_workers(self) -> bool:
        """True if a batch is created faster than a worker hands one over, or workers would wait for
        the same lock."""
        pipeline = self._pipeline
        return pipeline is not None and (pipeline.is_handover_longer or pipeline.is_locked)

    def refuse_workers(self, *, is_inline: bool) -> str:
        """Find the reason against more workers: they are about even with the present ones, or
        worse; '' where some setting is clearly better, or the cores are not known."""
        pipeline = self._inline if is_inline else self._pipeline
        if pipeline is None or pipeline.find_better_workers() is not None:
            return ""
        if pipeline.is_locked:
            return "they would wait for the same lock"
        if pipeline.is_handover_longer:
            return (
                "a batch is created in "
                f"{quantities.duration(pipeline.fetch_ns / pipeline.batch_count)}, and handing it "
                f"over from a worker takes up to {quantities.duration(rules.MAX_HANDOVER_NS)}"
            )
        best = pipeline.find_best_workers(pipeline.workers + 1)
        if best is None:
            return ""
        shortest, longest = quantities.duration(best.shortest_ns), quantities.duration(best.step_ns)
        interval = longest if shortest == longest else f"{shortest} to {longest}"
        present_ns = pipeline.predict_step_ns()
        result = "longer" if best.shortest_ns > present_ns else "about even"
        return (
            f"with {describe_workers(best)} instead of "
            f"{pipeline.workers} and {pipeline.threads}, the predicted step time is {interval} "
            f"instead of {quantities.duration(present_ns)}, {result}"
        )

    def find_best_workers(self) -> WorkerEstimate | None:
        """Find the numbers of workers and intra-op threads with the shortest step; None where it is
        not shorter by more than the uncertainty of the prediction."""
        return self._pipeline.find_better_workers() if self._pipeline is not None else None

    def predict_with_workers(self, workers: int, threads: int | None = None) -> Prediction | None:
        """Predict the step with other numbers of workers and intra-op threads."""
        if self._pipeline is None:
            return None
        step_ns = self._pipeline.predict_step_ns(workers=workers, threads=threads)
        condition = "each worker stays as fast as now"
        has_fewer_threads = threads is not None and threads < self._pipeline.threads
        if has_fewer_threads:
            condition += " and half of the CPU time of the removed threads, or less, was spinning"
        return self._scale_pipeline(step_ns, condition, is_bound=has_fewer_threads)

    def find_fewer_workers(self) -> tuple[int, Prediction] | None:
        """Find the number of workers, at most that of the rank's cores, with the shortest step, and
        its prediction; None where the cores or the pipeline are not known."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.core_count is None:
            return None
        counts = range(1, max(1, round(pipeline.core_count)) + 1)
        steps = {count: pipeline.predict_uncontended_ns(count) for count in counts}
        best = min(steps, key=lambda count: steps[count])
        condition = "the workers did not wait for cores"
        prediction = self._scale_pipeline(steps[best], condition)
        return None if prediction is None else (best, prediction)

    def predict_with_twice_the_workers(self) -> Prediction | None:
        """Predict the step with twice the workers, for fetches that wait rather than compute."""
        if self._pipeline is None:
            return None
        return self.predict_with_workers(2 * (self._pipeline.workers or 1))

    def predict_without_late_batches(self) -> Prediction | None:
        """Predict the step without the waiting that the pace of the workers does not explain."""
        if self._pipeline is None:
            return None
        return self._scale_pipeline(
            self._pipeline.predict_steady_ns(),
            "no batch took longer than the others",
            is_bound=True,
        )

    def predict_with_equal_ranks(self) -> Prediction:
        """Predict the step if the slowest rank were as fast as the others are on average."""
        saved_ratio = self._split.rank_waits.add_excess(self._rank_wait)
        return self._remove(saved_ratio, "the slow rank was as fast as the others", cause=None)

    def _predict_pipeline_without(self, cause: str) -> float | None:
        if self._pipeline is None:
            return None
        if cause == "worker_startup":
            return self._pipeline.predict_step_ns(starting_ratio=0.0)
        if cause == "batch_handover":
            return self._pipeline.predict_step_ns(handing_over_ratio=0.0)
        removed = compute_stage_ratio(self._making, cause)
        return None if removed is None else self._pipeline.predict_step_ns(fetch_ratio=1 - removed)

    def _describe_returned_cpu_time(self, cause: str) -> str:
        """Describe the part of the saving that is CPU time returned to the training thread; '' for
        none."""
        removed = compute_stage_ratio(self._making, cause) if cause in _STAGE_OF else None
        if self._pipeline is None or removed is None:
            return ""
        returned_ns = self._pipeline.contended_ns * removed
        is_sizeable = returned_ns >= MIN_SAVING_RATIO * self._pipeline.predict_step_ns()
        return CPU_TIME_RETURNED if is_sizeable else ""

    def _scale_pipeline(
        self, step_ns: float | None, condition: str, *, is_bound: bool = False
    ) -> Prediction | None:
        """Scale a prediction for the starved rank to the mean step of the job."""
        if step_ns is None or self._pipeline is None:
            return None
        ratio = step_ns / self._pipeline.predict_step_ns()
        return Prediction.from_step(
            self._step_ns * ratio, self._step_ns, condition, is_bound=is_bound
        )

    def _predict_with_loader(self, condition: str) -> Prediction | None:
        """Predict the step with workers that prepare batches as fast as the training thread; None
        where that is not faster by more than the uncertainty of the prediction."""
        best = self._inline.find_better_workers()
        if best is None:
            return None
        ratio = best.step_ns / self._inline.predict_step_ns()
        condition = condition.format(setting=describe_workers(best))
        return Prediction.from_step(self._step_ns * ratio, self._step_ns, condition)

    def predict_without_optimizer_calls(self) -> Prediction:
        """Predict the step with an optimizer that updates all parameters in a few calls."""
        share = self._shares.compute_overhead["optimizer"]
        return self._remove(share, "calling the operators of the optimizer took no time")

    def predict_without_framework_calls(self) -> Prediction:
        """Predict the step without calls of the framework between the phases."""
        share = self._shares.overhead_parts["framework_calls"]
        return self._remove(share, "the loop called torch only in the phases")

    def predict_without_preparation(self) -> Prediction:
        """Predict the step without preparing batches in the training thread."""
        return self._remove(self._shares.inline_data, "preparing batches took no time")

    def _predict_less_evaluation(self, condition: str) -> Prediction:
        """Predict the step with its part of the evaluation, for fewer evaluations."""
        evaluation = self._split.evaluation
        loop_ns = self._step_ns / (1 - evaluation)
        saved_ns = SKIPPED_EVALUATIONS * evaluation * loop_ns
        return Prediction.from_step(loop_ns - saved_ns, loop_ns, condition, share_of=LOOP_SHARE)

    @property
    def _rank_wait(self) -> float:
        return sum(self._shares.rank_wait.values())

    def _compute_share(self, cause: str) -> float:
        """Compute the share of a cause outside the input pipeline; its denominator is that of
        `Shares`, but for `_SHARES_OF_STEP`."""
        shares, phases, run = self._shares, self._shares.phases, self._run
        match cause:
            case "cpu_contention" | "cpu_limit":
                if self._split.core_waits.is_recorded:
                    return shares.without_core
                return run.contention.without_core_ratio if run.contention is not None else 0.0
            case "straggler" | "uneven_ranks":
                return self._rank_wait
            case "recompilation":
                return shares.overhead_parts["compilation"]
            case (
                "garbage_collection"
                | "checkpoint"
                | "debug_switch"
                | "job_profiler"
                | "model_callbacks"
            ):
                return shares.overhead_parts[cause]
            case "memory_leak":
                leak = find_memory_leak(run)
                return leak.excess_ns / self._step_ns if leak is not None else 0.0
            case "gradient_accumulation":
                return shares.exchange * (1 - 1 / count_exchanges(run.ranks))
            case "host_to_device_copies":
                return phases["h2d"]
            case "small_batch":
                return measure_doubling_saving(run, shares)
            case "tiny_operators" | "dispatch_overhead":
                return shares.dispatch
            case "padding":
                return measure_padding_share(measure_padding(run), shares)
            case "optimizer":
                return phases["optimizer"]
            case "collectives":
                return shares.collectives
            case "gradient_exchange":
                return shares.exchange
            case _ if cause in wait_causes.WAIT_CAUSES:
                return self._waits.get(cause, 0.0)
            case "host_sync" | "logging" | "sleeping":
                return phases["other"] * compute_host_cause_share(run.ranks, cause)
            case _:
                return self._compute_python_share()

    def _compute_python_share(self) -> float:
        """Compute the share of the script's own Python code, inside the compute phases too."""
        run, shares = self._run, self._shares
        is_sampled = any(
            work.sample_count for rank in run.ranks if (work := rank.host_work) is not None
        )
        ratio = compute_host_cause_share(run.ranks, "python") if is_sampled else 1.0
        between_phases = shares.phases["other"] * ratio
        is_python = is_python_bound(run.compute_profile)
        return between_phases + shares.overhead_parts["inside_compute"] * is_python


def compute_stage_ratio(making: analysis.BatchCreation | None, cause: str) -> float | None:
    """Compute the share of batch creation of the stage behind a cause; None where not known."""
    if making is None:
        return None
    sampled = sum(stage.ratio for stage in making.stages if stage.stage == _STAGE_OF[cause])
    largest = making.stages[0].stage if making.stages else "other"
    if cause == "slow_reads" and largest == "other":  # code without a known stage waits
        return None if making.cpu_ratio is None else 1 - making.cpu_ratio
    if sampled or making.collate_ratio is None:
        return sampled or None
    measured = {"slow_collate": making.collate_ratio, "slow_dataset": 1 - making.collate_ratio}
    return measured.get(cause)


class WorkerReplay:
    """Replay of the steps of the rank that waits longest for batches, if workers make them.

    Args:
        inputs: evidence on the job.
    """

    def __init__(self, inputs: CauseInputs) -> None:
        self._rank = inputs.starved_rank
        self._has_workers = inputs.pipeline is not None and inputs.pipeline.workers > 0

    @cached_property
    def _graph(self) -> run.RunGraph | None:
        """Causal graph of the rank; None where workers make no batches, or its replay is not
        accurate enough."""
        graph = run.build_span_graph([self._rank]) if self._has_workers else ""
        if isinstance(graph, str) or abs(graph.error_ratio) > run.MAX_REPLAY_ERROR_RATIO:
            return None
        return graph

    @cached_property
    def _wall_ns(self) -> float:
        """Mean wall time of a measured step of the rank."""
        steps = self._rank.steps
        return float(steps.wall_ns[steps.measured()].mean())

    def predict_no_handover(self) -> float | None:
        """Predict the share of the step that is saved if batches are received in no time; None
        without a replay."""
        if self._graph is None:
            return None
        fix = analysis.CAUSAL_FIXES["no-handover"]
        return min(1.0, self._simulate(self._graph, (fix, None)) / self._wall_ns)

    def limit_saving(self, saved_ns: float, cause: str = "") -> float:
        """Limit what the training thread saves per step of its own work to what is left when it
        waits for its batches instead.

        Args:
            saved_ns: time per step.
            cause: cause of that work: checkpoints are in few steps, other work is in all alike.
        """
        graph = self._graph
        if graph is None:
            return saved_ns
        fixes: list[tuple[analysis.CausalFix, float | None]] = []
        fixed, rest_ns, host = graph.fixed_edges, saved_ns, analysis.make_host_fix()
        is_own = host.affects(fixed)
        if cause == "checkpoint":
            checkpoint = analysis.CAUSAL_FIXES["async-checkpoint"]
            fixes.append((checkpoint, None))
            is_saving = checkpoint.affects(fixed)
            is_own &= ~is_saving
            rest_ns -= graph.sum_weights(is_saving) / graph.step_count
        own_ns = max(1.0, graph.sum_weights(is_own) / graph.step_count)
        rest_ratio = min(1.0, max(MIN_REST_RATIO, 1 - rest_ns / own_ns))
        return min(saved_ns, self._simulate(graph, *fixes, (host, 1 / rest_ratio)))

    @staticmethod
    def _simulate(graph: run.RunGraph, *fixes: tuple[analysis.CausalFix, float | None]) -> float:
        """Simulate fixes together, and return what they save per step, in nanoseconds."""
        saved_ns = graph.simulate(*fixes).saving_ratio * graph.replayed_ns
        return max(0.0, saved_ns / graph.step_count)


MIN_REST_RATIO = 1e-6
"""Share of its own work that the training thread keeps at least."""
_NOT_OWN_WORK = frozenset(["cpu_contention", "cpu_limit", "straggler", "uneven_ranks"])
"""Causes whose fixes do not only take work from the training thread."""
_SHARES_OF_STEP = frozenset(["cpu_contention", "cpu_limit", "memory_leak"])
"""Causes whose time is measured in the step, waiting for cores included."""
_STAGE_OF = {cause: stage for stage, cause in STAGE_CAUSES.items()}

_BETWEEN_PHASES = frozenset(["host_sync", "logging", "python_overhead", "sleeping"])
"""Causes of time between the phases, which is in no step where steps do not follow each other."""

_CHANGES: Mapping[str, str] = {
    "inline_data_preparation": "{setting} were used, and each worker prepared batches as fast as "
    "the training thread",
    "debug_switch": "anomaly detection was off",
    "job_profiler": "the job did not profile itself",
    "small_batch": "each batch was twice as large, for the same number of samples",
    "memory_leak": "steps stayed as fast as the first ones",
    "evaluation": "evaluation took a tenth of its time, spread over the steps",
    "gradient_accumulation": "gradients were exchanged once per step",
}
"""Conditions that a change brings about."""

_REMOVALS: Mapping[str, str] = {
    "slow_input_pipeline": "the input pipeline had each batch ready",
    "waiting_for_a_thread": "the thread had each result ready",
    "waiting_for_a_process": "the process had each result ready",
    "waiting_for_a_service": "each answer of the service was there in time",
    "waiting_for_a_program": "each program had ended in time",
    "waiting_for_a_coroutine": "each coroutine had ended in time",
    "waiting_for_a_lock": "the lock was always free",
    "padding": "the model computed for no needless position",
    "slow_reads": "reading took no time",
    "slow_decode": "decoding took no time",
    "slow_augmentation": "augmentation took no time",
    "slow_tokenisation": "tokenisation took no time",
    "slow_collate": "collating took no time",
    "slow_dataset": "the dataset's own code took no time",
    "worker_startup": "workers started only once",
    "batch_handover": "batch handover took no time",
    "host_to_device_copies": "all copies overlapped with compute",
    "host_sync": "the loop read no value from a tensor",
    "logging": "the loop logged nothing",
    "garbage_collection": "the garbage collector never ran in the loop",
    "sleeping": "the loop never slept",
    "model_callbacks": "the functions that it calls took no time",
    "python_overhead": "the script's own Python code took no time",
    "tiny_operators": "there were no gaps between operators",
    "dispatch_overhead": "there were no gaps between operators",
    "checkpoint": "saving never blocked the training thread",
    "recompilation": "nothing was compiled in the measured steps",
    "cpu_contention": "the training thread always had a core",
    "cpu_limit": "the training thread always had a core",
    "straggler": "all ranks had the same work",
    "uneven_ranks": "all ranks had the same work in every step",
    "optimizer": "the optimizer took no time",
    "gradient_exchange": "the gradient exchange was fully hidden behind compute",
    "collectives": "the collectives took no time",
}
"""Conditions under which a part of the step takes no time: upper bounds of the saving."""


def find_classes_beside(prediction: Prediction) -> list[str]:
    """Find the classes of the job's time, outside of the steps, that an upper bound has to include:
    batches are waited for between epochs and in evaluation, too."""
    cause = prediction.cause
    if cause not in _REMOVALS:
        return []
    if cause in CAUSES["data_pipeline"]:
        return ["between_epochs", "evaluation"]
    if cause in _BETWEEN_PHASES:
        return ["between_steps"]
    return ["warm_up"] if cause == "recompilation" else []
