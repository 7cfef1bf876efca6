"""Share of the step of each suspect.

Every share is of the wall time of the measured steps of all ranks (`verdict.STEP_SHARE`). The
four suspects together have all of it, except batches delayed by other processes (see below):

    data pipeline    data_wait + h2d, and the time between and inside the other phases in which the
                     training thread prepares data, or waits for whatever fills its batches
    communication    collectives of the script, and the gradient exchange that DDP reports as
                     exposed (not hidden behind its backward pass)
    overhead         the rest of the time between phases; checkpoints, including all work of the
                     functions that write them; compilations; garbage collections; calls of
                     compiled functions while the device is idle (JAX); and the time in the compute
                     phases in which no sizeable operator runs
    model            the rest of the compute phases, and the execution of compiled functions

Two corrections follow. Time in which the training thread was runnable without a core because the
loader's workers had them moves to the data pipeline; where other processes had the cores while a
batch was ready, it counts for no suspect (`cpu_contention`). Waiting of ranks for the slowest of
them moves from communication to the extra work of that rank (`rank_waiting`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, run
from stepscope.diagnosis.shares.cpu_contention import CoreWaits, measure_core_waits
from stepscope.diagnosis.shares.debug_switches import measure_anomaly_detection_ns
from stepscope.diagnosis.shares.rank_waiting import RankWaits, measure_rank_waits
from stepscope.diagnosis.verdict import CORE_SHARE, STEP_SHARE, Suspect

PASSES = ("forward", "loss", "backward")
"""Phases that anomaly detection makes longer."""
HOST_CAUSES: tuple[analysis.HostCause, ...] = (
    *("host_sync", "logging", "wait", "sleeping", "python"),
)
"""Causes in the time between phases that are overhead; the others belong to the data pipeline and
to checkpoints."""
MAX_ROWS = 100_000
"""Maximum rows of a matrix of steps and phases; more rows do not make the result more precise."""


class PhaseSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Split of measured phases between suspects; the same for every step."""

    compute_overhead: Mapping[str, float]
    """Share of each compute phase, without waiting for the gradient exchange, in which no sizeable
    operator runs; empty without a window."""
    exposed_exchange: float
    """Share of the backward pass that is exposed gradient exchange."""
    inline_data: Mapping[str, float]
    """Share of the time between phases (`other`), and of each compute phase, in which the training
    thread prepares data itself, or waits for batches."""
    callbacks: Mapping[str, float]
    """Share of each compute phase in functions of the script that the model calls, without the
    gradient exchange."""
    inline_saving: float
    """Share of the time between phases spent in functions that write checkpoints."""
    library_work: Mapping[str, float]
    """Shares of the time between phases that belong to a compute phase: those of a library's model
    outside of its modules, and of an optimizer that is not torch's."""
    framework_calls: float
    """Share of the time between phases spent in calls of the framework."""
    job_profiler: float
    """Share of the time between phases in which the job uses a profiler of its own."""
    profiler_collections: float
    """Share of garbage collection at the lines that do."""
    largest_host_cause: float
    """Share of the overhead between phases that its largest cause has; 1 where not sampled."""
    evaluation: float
    """Evaluation over evaluation and steps together, in the measured part of the run."""
    rank_waits: RankWaits
    has_window: bool
    anomaly_detection: float
    """Share of forward and backward passes, and the loss between them, that anomaly detection
    takes."""
    core_waits: CoreWaits
    delayed_by_others: float
    """Share of `data_wait` in which a batch was ready, but processes other than workers had the
    cores."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the step."""

    phases: dict[str, float]
    """Without the time without a core that the job does not cause, and outside of `data_wait`
    without that which workers cause."""
    suspects: dict[Suspect, float]
    overhead_parts: dict[str, float]
    """checkpoint, compilation, garbage_collection, compiled_calls, between_phases, framework_calls:
    calls of the framework between the phases, job_profiler: use of a profiler by the job,
    inside_compute, debug_switch: anomaly detection in the passes, model_callbacks, and slow_rank:
    waiting for the overhead of the slowest rank."""
    largest_overhead: float
    """The largest cause of overhead except for calling operators."""
    compute_work: dict[str, float]
    """Time of sizeable operators, by compute phase, and of executing compiled functions; the
    model's own share."""
    compute_overhead: dict[str, float]
    """The rest of each compute phase; sums to `inside_compute`."""
    inline_data: float
    """Data preparation by the training thread itself, and its waits for batches between phases."""
    collectives: float
    """Collectives of the script, without waiting for the slowest rank."""
    exchange: float
    """Exposed gradient exchange, without waiting for the slowest rank."""
    rank_wait: dict[Suspect, float] = msgspec.field(default_factory=dict)
    """Waiting for the slowest rank, by the work of that rank; included in `suspects`."""
    delayed_by_others: float = 0.0
    """A batch was ready, but processes other than workers had the cores; in no suspect's share,
    because the job does not cause it."""
    without_core: float = 0.0
    """Time without a core that the job does not cause, as a share of the step as measured. All
    other shares are of the rest of the step."""
    worker_contention: float = 0.0
    """Time outside of `data_wait` without a core because workers had them; included in the share of
    the data pipeline."""

    @property
    def share_of(self) -> str:
        """Denominator of all shares but `without_core`."""
        return CORE_SHARE if self.without_core > 0 else STEP_SHARE

    @property
    def is_undivided(self) -> bool:
        """True if no phase of the training was recorded, as of a loop that is only marked: nothing
        tells the training from the script's other code."""
        names = (*analysis.COMPUTE_PHASES, "dispatch", "execution", "communication")
        return not any(self.phases[name] for name in names)

    @property
    def has_passes(self) -> bool:
        """True if there are forward and backward passes; a boosting round has none."""
        return any(self.phases[name] > 0 for name in PASSES)

    @property
    def operator_calls(self) -> float:
        """Calling operators, in the compute phases and between them."""
        return _sum_operator_calls(self.overhead_parts)

    @property
    def dispatch(self) -> float:
        """Calling operators or compiled functions."""
        return self.operator_calls + self.overhead_parts["compiled_calls"]

    @property
    def uses_jax(self) -> bool:
        """True if functions compiled by JAX take time of the step."""
        return self.phases["dispatch"] + self.phases["execution"] > 0

    @property
    def is_dispatch_between_phases(self) -> bool:
        """True if calls of the framework between the phases are the larger part of
        `operator_calls`."""
        return self.overhead_parts["framework_calls"] > self.overhead_parts["inside_compute"]


def measure_phase_split(ranks: Sequence[run.Rank]) -> PhaseSplit:
    """Measure the split over the ranks that recorded it; a window on one rank stands for all."""
    profiled = [rank for rank in ranks if rank.compute_profile is not None]
    core_waits, rank_waits = measure_core_waits(ranks), measure_rank_waits(ranks)
    handover_ns = sum(rank.late_batches.handing_over_ns for rank in ranks)
    wait_ns = sum(rank.late_batches.total_ns for rank in ranks)
    return PhaseSplit(
        compute_overhead=_compute_overhead_ratios(ranks, rank_waits),
        exposed_exchange=_compute_exchange_ratio(ranks, rank_waits),
        inline_data=_compute_inline_data(ranks),
        callbacks=_average_phases(ranks, "callbacks"),
        inline_saving=compute_host_cause_share(ranks, "checkpoint"),
        library_work={
            "forward": compute_host_cause_share(ranks, "model"),
            "optimizer": compute_host_cause_share(ranks, "optimizer"),
        },
        framework_calls=compute_host_cause_share(ranks, "framework"),
        job_profiler=sum(sum(rank.profiler_lines.values()) for rank in ranks) / len(ranks),
        profiler_collections=compute_profiler_collections(ranks),
        largest_host_cause=_compute_largest_host_cause(ranks),
        evaluation=compute_evaluation_ratio(ranks),
        rank_waits=rank_waits,
        has_window=bool(profiled),
        anomaly_detection=_compute_anomaly_ratio(ranks),
        core_waits=core_waits,
        delayed_by_others=0.0
        if core_waits.is_recorded
        else core_waits.handover_others * handover_ns / max(1, wait_ns),
    )


def compute_host_cause_share(ranks: Sequence[run.Rank], cause: analysis.HostCause) -> float:
    """Compute the share of the time between phases with one cause, over all sampled ranks."""
    works = [work for rank in ranks if (work := rank.host_work) is not None]
    sample_count = max(1, sum(work.sample_count for work in works))
    return sum(work.causes.get(cause, 0.0) * work.sample_count for work in works) / sample_count


def _compute_largest_host_cause(ranks: Sequence[run.Rank]) -> float:
    ratios = [compute_host_cause_share(ranks, cause) for cause in HOST_CAUSES]
    return max(ratios) / sum(ratios) if sum(ratios) else 1.0


def _sum_operator_calls(parts: Mapping[str, float]) -> float:
    return parts["inside_compute"] + parts["framework_calls"]


def _compute_largest_overhead(parts: Mapping[str, float], split: PhaseSplit) -> float:
    between_phases = parts["between_phases"] * split.largest_host_cause
    merged = {"inside_compute", "framework_calls", "between_phases"}
    single = [share for name, share in parts.items() if name not in merged]
    return max(between_phases, *single)


def _compute_inline_data(ranks: Sequence[run.Rank]) -> dict[str, float]:
    between = compute_host_cause_share(ranks, "data_preparation")
    between += compute_host_cause_share(ranks, "input_wait")
    return {"other": between} | _average_phases(ranks, "preparation")


def _average_phases(
    ranks: Sequence[run.Rank], field: Literal["preparation", "callbacks"]
) -> dict[str, float]:
    """Average the shares of the compute phases over all sampled ranks."""
    works = [work for rank in ranks if (work := rank.host_work) is not None]
    ratios = {}
    for phase in analysis.COMPUTE_PHASES:
        counts = [work.phase_samples.get(phase, 0) for work in works]
        shares = [getattr(work, field).get(phase, 0.0) for work in works]
        ratios[phase] = float(np.dot(shares, counts)) / max(1, sum(counts))
    return ratios


def build_phase_matrix(ranks: Sequence[run.Rank]) -> NDArray[np.int64]:
    """Build the matrix of nanoseconds by step and phase: the measured steps of all ranks, one rank
    after another.

    With more than `MAX_ROWS` steps, each row is the sum of several consecutive steps.
    """
    measured = [np.flatnonzero(rank.steps.measured()) for rank in ranks]
    steps_per_row = -(-sum(map(len, measured)) // MAX_ROWS)
    rows = [np.empty((0, len(analysis.PHASES)), dtype=np.int64)]
    for rank, steps in zip(ranks, measured, strict=True):
        if len(steps):
            first = np.arange(0, len(steps), steps_per_row)
            times = rank.steps.phase_ns
            columns = [np.add.reduceat(times[p][steps], first) for p in analysis.PHASES]
            rows.append(np.stack(columns, axis=1))
    return np.concatenate(rows)


def measure_phase_shares(phase_ns: NDArray[np.int64]) -> dict[str, float]:
    """Measure the shares of the phases in some steps, delays included.

    Args:
        phase_ns: rows of `build_phase_matrix`.
    """
    totals = phase_ns.sum(axis=0)
    return dict(zip(analysis.PHASES, (totals / totals.sum()).tolist(), strict=True))


def compute_shares(phase_ns: NDArray[np.int64], split: PhaseSplit) -> Shares:
    """Compute the shares over some steps.

    Args:
        phase_ns: rows of `build_phase_matrix`.
    """
    totals = phase_ns.sum(axis=0).astype(np.float64)
    with_delays_ns = totals.sum()
    totals *= [1 - split.core_waits.outside.get(phase, 0.0) for phase in analysis.PHASES]
    measured = dict(zip(analysis.PHASES, (totals / totals.sum()).tolist(), strict=True))
    with_core = 1 - split.core_waits.outside_data_wait
    phase = {
        name: share if name == "data_wait" else share * with_core
        for name, share in measured.items()
    }
    worker_contention = (1 - measured["data_wait"]) * split.core_waits.outside_data_wait
    delayed_by_others = phase["data_wait"] * split.delayed_by_others
    exchange = phase["backward"] * split.exposed_exchange
    compute = {name: phase[name] for name in analysis.COMPUTE_PHASES}
    compute["backward"] -= exchange
    anomaly = {name: compute[name] * split.anomaly_detection for name in PASSES}
    compute |= {name: compute[name] - share for name, share in anomaly.items()}
    callbacks = {name: share * split.callbacks.get(name, 0.0) for name, share in compute.items()}
    compute = {name: share - callbacks[name] for name, share in compute.items()}
    inline, compute_overhead = _split_compute(compute, phase["other"], split)
    library_work = {name: phase["other"] * ratio for name, ratio in split.library_work.items()}
    compute_work = {
        name: share - inline[name] - compute_overhead[name] + library_work.get(name, 0.0)
        for name, share in compute.items()
    } | {"execution": phase["execution"]}
    saving = phase["other"] * split.inline_saving
    profiling = phase["other"] * split.job_profiler
    collections = phase["garbage_collection"] * split.profiler_collections
    # Calls of the profiler are calls of the framework.
    calling = max(0.0, phase["other"] * split.framework_calls - profiling)
    elsewhere = saving + sum(library_work.values()) + calling + profiling
    waiting = (phase["communication"] + exchange) * split.rank_waits.ratio
    rank_wait = {suspect: waiting * ratio for suspect, ratio in split.rank_waits.by_suspect.items()}
    transfer_ratio = 1 - split.rank_waits.ratio if rank_wait else 1.0
    parts = {
        "checkpoint": phase["checkpoint"] + saving,
        "compilation": phase["compilation"],
        "garbage_collection": phase["garbage_collection"] - collections,
        "job_profiler": profiling + collections,
        "compiled_calls": phase["dispatch"],
        "between_phases": max(0.0, phase["other"] - inline["other"] - elsewhere),
        "framework_calls": calling,
        "inside_compute": sum(compute_overhead.values()),
        "debug_switch": sum(anomaly.values()),
        "model_callbacks": sum(callbacks.values()),
        "slow_rank": rank_wait.get("framework_overhead", 0.0),
    }
    return Shares(
        phases=phase,
        suspects={
            "data_pipeline": phase["data_wait"]
            - delayed_by_others
            + worker_contention
            + phase["h2d"]
            + sum(inline.values())
            + rank_wait.get("data_pipeline", 0.0),
            "model": sum(compute_work.values()) + rank_wait.get("model", 0.0),
            "communication": (phase["communication"] + exchange) * transfer_ratio
            + rank_wait.get("communication", 0.0),
            "framework_overhead": sum(parts.values()),
        },
        overhead_parts=parts,
        largest_overhead=_compute_largest_overhead(parts, split),
        compute_work=compute_work,
        compute_overhead=compute_overhead,
        inline_data=sum(inline.values()),
        collectives=phase["communication"] * transfer_ratio,
        exchange=exchange * transfer_ratio,
        rank_wait=rank_wait,
        worker_contention=worker_contention,
        delayed_by_others=delayed_by_others,
        without_core=1 - float(totals.sum() / with_delays_ns),
    )


def _split_compute(
    compute: Mapping[str, float], between: float, split: PhaseSplit
) -> tuple[dict[str, float], dict[str, float]]:
    """Compute the data preparation, and the time without operators, in each compute phase; data
    preparation also between the phases."""
    inline = {
        name: share * split.inline_data.get(name, 0.0)
        for name, share in (dict(compute) | {"other": between}).items()
    }
    # Preparing data in a compute phase is time without operators.
    compute_overhead = {
        name: max(0.0, share * split.compute_overhead.get(name, 0.0) - inline[name])
        for name, share in compute.items()
    }
    return inline, compute_overhead


def _compute_overhead_ratios(ranks: Sequence[run.Rank], waits: RankWaits) -> dict[str, float]:
    """Compute the overhead inside each compute phase of the first rank with a window, as a share of
    the phase without waiting for the gradient exchange: that is time without operators too, and
    must not count twice.

    A phase that the window does not contain is taken to be like the others.
    """
    for index, rank in enumerate(ranks):
        profile = rank.compute_profile
        if profile is None:
            continue
        ratios = {
            phase: profile.overhead_by_phase.get(phase, profile.overhead_ratio)
            for phase in analysis.COMPUTE_PHASES
        }
        backward_ns = _measure_mean_ns(rank, "backward")
        exchange_ns = min(waits.exchange_ns[index], backward_ns) if waits.exchange_ns else 0.0
        if exchange_ns:
            overhead_ns = max(0.0, ratios["backward"] * backward_ns - exchange_ns)
            ratios["backward"] = overhead_ns / max(1.0, backward_ns - exchange_ns)
        return ratios
    return {}


def _compute_anomaly_ratio(ranks: Sequence[run.Rank]) -> float:
    """Compute the share of the passes that anomaly detection takes, over the ranks with it."""
    pass_ns = sum(_measure_mean_ns(rank, phase) for rank in ranks for phase in PASSES)
    cost_ns = sum(measure_anomaly_detection_ns(rank) or 0.0 for rank in ranks)
    return min(1.0, cost_ns / pass_ns) if pass_ns else 0.0


def _compute_exchange_ratio(ranks: Sequence[run.Rank], waits: RankWaits) -> float:
    """Compute exposed gradient exchange over backward time."""
    backward_ns = sum(_measure_mean_ns(rank, "backward") for rank in ranks)
    return sum(waits.exchange_ns) / backward_ns if backward_ns else 0.0


def _measure_mean_ns(rank: run.Rank, phase: str) -> float:
    return float(rank.steps.phase_ns[phase][rank.steps.measured()].mean())


def compute_profiler_collections(ranks: Sequence[run.Rank]) -> float:
    """Compute the share of the time of garbage collection that is at lines which use a profiler of
    the job: its events are many objects."""
    total_ns = profiler_ns = 0
    for rank in ranks:
        lines = {f"{file.rpartition('/')[2]}:{line}" for file, line in rank.profiler_lines}
        spans = rank.spans.of("garbage_collection")
        total_ns += int(spans.duration.sum())
        for code, time_ns in zip(spans.name.tolist(), spans.duration.tolist(), strict=True):
            profiler_ns += time_ns * (spans.names[code] in lines)
    return profiler_ns / total_ns if total_ns else 0.0


def compute_evaluation_ratio(ranks: Sequence[run.Rank]) -> float:
    """Compute evaluation over evaluation and steps together, in the measured part of the run."""
    evaluation_ns = training_ns = 0
    for rank in ranks:
        measured = np.flatnonzero(rank.steps.measured())
        if len(measured):
            extent = intervals.Intervals(rank.steps.start[measured[:1]], rank.steps.end[-1:])
            evaluation_ns += int(intervals.overlap(extent, rank.steps.evaluation).sum())
            training_ns += int(rank.steps.wall_ns[measured[0] :].sum())
    return evaluation_ns / (evaluation_ns + training_ns) if evaluation_ns else 0.0
