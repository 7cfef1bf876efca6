"""What keeps the host from feeding operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    HOST_CAUSE_LABELS,
    ComputeProfile,
    Growth,
    HostCause,
    estimate_lead_probability,
    measure_growth,
)
from stepscope.diagnosis.cause import (
    CONTRIBUTING_RATIO,
    UNRECOGNISED,
    Case,
    Finding,
    line_evidence,
)
from stepscope.diagnosis.shares import share_of_host_cause
from stepscope.diagnosis.stalls import (
    checkpoint_evidence,
    collecting,
    collection_evidence,
    compilation_evidence,
)
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.run import Rank, Run, samples_at_a_time

LEAK_RATIO = 0.5
"""Work that has grown since the first steps is a leak when it makes up this much of the share …"""
STEADY_RATIO = 0.85
"""… and of so many pairs of stretches of the run the later one took longer …"""
LEAKED_BYTES = 4_000_000
"""… while the memory of the process has grown by this: an allocator's own caches are smaller."""
SMALL_BATCH = 8
"""Samples in a call of the model. Operators that are short although they do more at a time than
this are the model's own, and a batch several times as large hardly changes that."""
SLOWEST_CALL_NS = 100_000
"""Of an operator through Python and the framework: usually 5 to 50 us."""
MENTIONED_STOLEN = 0.05
"""Cores that a hypervisor gave to others, from which on they are mentioned."""
HOST_CAUSES: tuple[HostCause, ...] = ("host_sync", "logging", "python")
"""Of the time between phases; the others belong to the data pipeline and to checkpoints."""


def overhead_cause(case: Case) -> Finding:
    """The largest part of the overhead; the others that are large enough contribute."""
    parts = case.shares.overhead_parts
    largest = max(_PART_NAMES, key=lambda name: parts[name])
    match largest:
        case "checkpoint":
            finding = Finding(cause="checkpoint", evidence=checkpoint_evidence(case.run))
        case "compilation":
            finding = Finding(cause="recompilation", evidence=compilation_evidence(case.run))
        case "garbage_collection":
            evidence = collection_evidence(case.run)
            finding = Finding(cause="garbage_collection", evidence=evidence)
        case "inside_compute":
            finding = _inside_compute(case)
        case _:
            finding = _between_phases(case)
    finding.contributing = [each for each in overhead_causes(case) if each[0] != finding.cause]
    finding.stages = _stages(case)
    return finding


def _stages(case: Case) -> list[Stage]:
    """Parts of the overhead, that inside the compute phases phase by phase."""
    parts = {_PART_NAMES[n]: s for n, s in case.shares.overhead_parts.items() if n in _PART_NAMES}
    profile = case.run.compute_profile
    if profile is not None and (whole := sum(profile.overhead_by_phase.values())):
        inside = parts.pop(_PART_NAMES["inside_compute"])
        what = "Python" if python_inside(profile) else "dispatch"
        for phase, ratio in profile.overhead_by_phase.items():
            parts[f"{what} inside the {_PASSES.get(phase, phase)}"] = inside * ratio / whole
    return [
        Stage(name=name, detail="", share_ratio=share)
        for name, share in sorted(parts.items(), key=lambda item: -item[1])
        if share >= 0.01
    ]


def overhead_causes(case: Case) -> list[tuple[str, float, str]]:
    """All causes of overhead with their share of the step and a sentence, the largest first;
    those that are worth no fix are left out."""
    shares, ranks = case.shares, case.run.ranks
    parts = shares.overhead_parts
    found = [
        ("checkpoint", parts["checkpoint"], "writing checkpoints"),
        ("recompilation", parts["compilation"], "compiling"),
        ("garbage_collection", parts["garbage_collection"], collecting(case.run)),
    ]
    profile, inside = case.run.compute_profile, parts["inside_compute"]
    in_python = python_inside(profile)
    if profile is not None and not in_python:
        found.append((_dispatch_cause(case, profile), inside, "dispatching operators"))
    for name in HOST_CAUSES:
        share = shares.phases["other"] * share_of_host_cause(ranks, name)
        if name == "python" and in_python:
            share += inside
        found.append((_cause_of(name), share, HOST_CAUSE_LABELS[name]))
    return [
        (cause, share, f"{what} takes {share:.0%} of the step")
        for cause, share, what in sorted(found, key=lambda each: -each[1])
        if share >= CONTRIBUTING_RATIO
    ]


def lost_cores(case: Case, cause: str, lost: float) -> Finding:
    """The training thread loses this share of its time because it has no core."""
    seen = case.run.contention
    assert seen is not None  # noqa: S101 - asked only when cores were lost
    cores = case.run.cores_available or 0
    if cause == "cpu_limit":
        why = Evidence(
            text=f"the CPU quota of the job ({cores:g} cores) was used up "
            f"{seen.throttled_ratio:.0%} of the time",
            value=seen.throttled_ratio,
            unit="ratio",
            source="system",
        )
    else:
        why = Evidence(
            text=neighbours(case.run),
            value=seen.outside_cores,
            unit="count",
            source="system",
        )
    waited = Evidence(
        text=f"the training thread was ready to run but had no core for {lost:.0%} of the time",
        value=lost,
        unit="ratio",
        source="system",
    )
    stage = Stage(
        name="ready to run, but without a core",
        detail="main thread of the training process",
        share_ratio=lost,
    )
    return Finding(cause=cause, stages=[stage], evidence=[why, waited])


def neighbours(run: Run) -> str:
    """How many cores others used."""
    seen = run.contention
    assert seen is not None  # noqa: S101 - asked only when cores were lost
    text = (
        f"processes outside the job kept {seen.outside_cores:.1f} of "
        f"{run.cores_available or 0:g} cores busy while it trained"
    )
    if seen.stolen_cores >= MENTIONED_STOLEN:
        text += f", {seen.stolen_cores:.1f} of them in other virtual machines"
    return text


def evaluation(case: Case) -> Finding:
    """Evaluation takes a large part of the time."""
    ranks = case.run.ranks
    runs = sum(len(rank.steps.evaluation.start) for rank in ranks)
    total = sum(rank.steps.evaluation.total_ns for rank in ranks)
    steps = sum(len(rank.steps) for rank in ranks)
    share = case.split.evaluation
    return Finding(
        cause="evaluation",
        stages=[Stage(name="evaluation", detail="beside the steps", share_ratio=share)],
        evidence=[
            Evidence(
                text=f"{runs} evaluations of {total / max(1, runs) / 1e6:.3g} ms each, one every "
                f"{steps / max(1, runs):.3g} steps; the steps without them take "
                f"{case.run.mean_step_ns / 1e6:.3g} ms",
                value=share,
                unit="ratio",
                source="steps",
            )
        ],
    )


def operator_evidence(profile: ComputeProfile) -> list[Evidence]:
    """What a window says about the operators."""
    largest = ", ".join(f"{name} {ratio:.0%}" for name, ratio in list(profile.largest.items())[:3])
    return [
        Evidence(
            text=f"{profile.operator_count_per_step:,.0f} operators a step, "
            f"{profile.small_ratio:.0%} of them shorter than 20 us",
            value=profile.operator_count_per_step,
            unit="count",
            source="steps",
        ),
        Evidence(
            text=f"sizeable operators run for {1 - profile.overhead_ratio:.0%} of the compute "
            f"phases; the largest: {largest}",
            value=1 - profile.overhead_ratio,
            unit="ratio",
            source="steps",
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Time between the phases that grows steadily together with the memory of the process."""

    time: Growth
    """Nanoseconds of a step."""
    memory: Growth
    """Bytes."""
    step_count: int

    @property
    def excess_ns(self) -> float:
        """What a step takes longer, in the mean, than at the beginning of the run."""
        return max(0.0, self.time.excess)


def find_leak(run: Run) -> Leak | None:
    """That of the rank with most of it; None where nothing grows."""
    leaks = [leak for rank in run.ranks if (leak := _leak_of(rank)) is not None]
    return max(leaks, key=lambda leak: leak.excess_ns, default=None)


def _leak_of(rank: Rank) -> Leak | None:
    measured = rank.steps.measured()
    time = measure_growth(rank.steps.phase_ns["other"][measured])
    if time is None or time.steady_ratio < STEADY_RATIO:
        return None
    memory = measure_growth(_memory(rank, measured))
    if memory is None or memory.last - memory.first < LEAKED_BYTES:
        return None
    return Leak(time=time, memory=memory, step_count=int(measured.sum()))


def _memory(rank: Rank, measured: NDArray[np.bool_]) -> NDArray[np.float64]:
    metrics = rank.run.metrics.get(rank.process.node)
    rows = np.flatnonzero(measured)
    if metrics is None or not len(rows):
        return np.empty(0)
    during = metrics.between(int(rank.steps.start[rows[0]]), int(rank.steps.end[rows[-1]]))
    return during.series("process_memory_bytes", str(rank.process.pid))


_PART_NAMES = {
    "checkpoint": "writing checkpoints",
    "compilation": "compiling",
    "garbage_collection": "collecting garbage",
    "between_phases": "Python between the phases",
    "inside_compute": "dispatch inside the compute phases",
}


_PASSES = {
    "forward": "forward pass",
    "loss": "time between forward and backward pass",
    "backward": "backward pass",
}


def _cause_of(host_cause: str) -> str:
    return "python_overhead" if host_cause == "python" else host_cause


def python_inside(profile: ComputeProfile | None) -> bool:
    """Whether the script's own Python is what keeps operators from following each other: there is
    more time between them than calling them can take. Not without a window."""
    return profile is not None and profile.overhead_per_call_ns > SLOWEST_CALL_NS


def _dispatch_cause(case: Case, profile: ComputeProfile) -> str:
    if python_inside(profile):
        return "python_overhead"
    samples = samples_at_a_time(case.run.ranks[0])
    if samples is not None and samples <= SMALL_BATCH:
        return "small_batch"
    return "tiny_operators" if profile.small_ratio >= 0.5 else "dispatch_overhead"


def _inside_compute(case: Case) -> Finding:
    profile = case.run.compute_profile
    assert profile is not None  # noqa: S101 - without a window this part is zero
    cause, evidence = _dispatch_cause(case, profile), operator_evidence(profile)
    if cause == "small_batch":
        evidence.insert(0, _batch_evidence(case.run.ranks[0]))
    return Finding(cause=cause, evidence=evidence)


def _batch_evidence(rank: Rank) -> Evidence:
    samples = samples_at_a_time(rank) or 0
    passes = len(rank.spans.of("forward")) / max(1, len(rank.steps))
    often = f", {passes:.0f} times a step" if passes >= 1.5 else ""
    plural = "s" if samples > 1 else ""
    return Evidence(
        text=f"the model is given {samples} sample{plural} at a time{often}",
        value=samples,
        unit="count",
        source="steps",
    )


def _between_phases(case: Case) -> Finding:
    run = case.run
    works = [work for rank in run.ranks if (work := rank.host_work) is not None]
    lines = max(works, key=lambda w: w.sample_count).lines if works else []
    evidence = [line_evidence(w.file, w.line, w.text, w.ratio) for w in lines[:3]]
    share = case.shares.overhead_parts["between_phases"]
    leak = find_leak(run)
    if leak is not None and leak.excess_ns >= LEAK_RATIO * share * run.mean_step_ns:
        return Finding(cause="memory_leak", evidence=[*_leak_evidence(leak), *evidence])
    if not works:
        return Finding(cause="python_overhead", certainty=UNRECOGNISED)
    ratios = {name: share_of_host_cause(run.ranks, name) for name in HOST_CAUSES}
    top, second = sorted(ratios, key=lambda name: -ratios[name])[:2]
    certainty = estimate_lead_probability(
        ratios[top], ratios[second], sum(work.sample_count for work in works)
    )
    if top == "python":
        certainty *= UNRECOGNISED
    return Finding(cause=_cause_of(top), certainty=certainty, evidence=evidence)


def _leak_evidence(leak: Leak) -> list[Evidence]:
    time, memory = leak.time, leak.memory
    return [
        Evidence(
            text=f"the time between the phases grows from {time.first / 1e6:.3g} ms to "
            f"{time.last / 1e6:.3g} ms a step",
            value=time.last - time.first,
            unit="ns",
            source="steps",
        ),
        Evidence(
            text=f"meanwhile the memory of the process grows by "
            f"{(memory.last - memory.first) / 1e6:.0f} MB in {leak.step_count} steps",
            value=memory.last - memory.first,
            unit="bytes",
            source="system",
        ),
    ]
