"""Causes of framework and host overhead."""

from __future__ import annotations

from stepscope import analysis, intervals, quantities
from stepscope.diagnosis.causes import batch_size, memory_leak, stalls, wait_causes
from stepscope.diagnosis.causes.cause import (
    EVEN_ODDS,
    MIN_CONTRIBUTING_RATIO,
    CauseFinding,
    CauseInputs,
    describe_utilization,
    explain_missing_lines,
)
from stepscope.diagnosis.shares.debug_switches import list_debug_switches
from stepscope.diagnosis.shares.shares import HOST_CAUSES, compute_host_cause_share
from stepscope.diagnosis.verdict import UNKNOWN, Evidence, Stage, Suspect
from stepscope.quantities import count_of, duration, percent

MAIN_LINE_RATIO = 0.5
"""A line with more than this share of the calls of operators is the reason for them."""
MIN_FRAMEWORK_LINE_RATIO = 0.1
"""A line that calls the framework between the phases has a fix of its own from this share of the
step on; clearing and clipping gradients take less."""
_PART_NAMES = {
    "checkpoint": "writing checkpoints",
    "compilation": "compiling",
    "garbage_collection": "collecting garbage",
    "compiled_calls": "calls of compiled functions",
    "between_phases": "Python between the phases",
    "framework_calls": "calls of the framework between the phases",
    "debug_switch": "anomaly detection of autograd",
    "job_profiler": "the job's own profiler",
    "model_callbacks": "functions that the model calls",
}
_PHASE_NAMES = {
    "forward": "forward pass",
    "loss": "time between forward and backward pass",
    "backward": "backward pass",
}


def find_overhead_cause(inputs: CauseInputs) -> CauseFinding:
    """Find the largest part of the overhead; other large parts contribute."""
    parts = inputs.shares.overhead_parts
    if inputs.run.compute_profile is not None:
        parts = parts | {"inside_compute": inputs.shares.operator_calls, "framework_calls": 0.0}
    largest = max((*_PART_NAMES, "inside_compute"), key=lambda name: parts[name])
    match largest:
        case "checkpoint":
            evidence = stalls.describe_checkpoints(inputs.run)
            finding = CauseFinding(cause="checkpoint", evidence=evidence)
        case "compilation":
            evidence = stalls.describe_compilations(inputs.run)
            finding = CauseFinding(cause="recompilation", evidence=evidence)
        case "garbage_collection":
            evidence = stalls.describe_collections(inputs.run)
            finding = CauseFinding(cause="garbage_collection", evidence=evidence)
        case "compiled_calls":
            evidence = stalls.describe_compiled_calls(inputs.run)
            finding = CauseFinding(cause="dispatch_overhead", evidence=evidence)
        case "debug_switch":
            finding = _find_anomaly_cause(inputs)
        case "job_profiler":
            finding = _find_profiler_cause(inputs)
        case "model_callbacks":
            evidence = [line.describe() for line in _list_callback_lines(inputs)[:3]]
            evidence += _describe_growth(inputs)
            finding = CauseFinding(
                cause="model_callbacks", evidence=evidence, evidence_kind="sampled"
            )
        case "inside_compute":
            finding = _find_compute_overhead_cause(inputs)
        case _:
            finding = _find_host_cause(inputs)
    blame_debug_switch(inputs, finding, "framework_overhead")
    finding.contributing = [
        entry for entry in list_overhead_causes(inputs) if entry[0] != finding.cause
    ]
    finding.stages = _list_stages(inputs)
    return finding


SLOWED_CAUSES = frozenset(
    [
        *("python_overhead", "tiny_operators", "dispatch_overhead", "small_batch", "logging"),
        *("host_sync", "gradient_exchange", "collectives", UNKNOWN),
    ]
)
"""Causes that a debug switch brings about, or makes larger."""


def blame_debug_switch(inputs: CauseInputs, finding: CauseFinding, suspect: Suspect) -> None:
    """Make a debug switch the cause where it slows down what was found to be slow.

    A run with the switch does not tell how fast that would be without it, but the switch is known
    to slow it down, and is the first thing to remove.
    """
    switches = [
        switch
        for switch in list_debug_switches(inputs.run)
        if switch.slows == suspect and not switch.is_priced
    ]
    if not switches or finding.cause not in SLOWED_CAUSES:
        return
    finding.evidence = [
        *(Evidence(text=switch.text, source="steps") for switch in switches),
        *finding.evidence,
    ]
    finding.cause, finding.evidence_kind, finding.missing = "debug_switch", "configured", ""
    finding.certainty = EVEN_ODDS


def _find_anomaly_cause(inputs: CauseInputs) -> CauseFinding:
    profile, share = inputs.run.compute_profile, inputs.shares.overhead_parts["debug_switch"]
    assert profile is not None  # noqa: S101 - without a window this part is zero
    text = (
        f"Anomaly detection takes {percent(share)} of step time: per step, "
        f"{count_of(round(profile.node_count_per_step), 'operation')} capture a Python stack, and "
        f"checks for NaN take {duration(profile.nan_check_ns_per_step)}."
    )
    evidence = Evidence(text=text, value=share, unit="ratio", source="steps")
    return CauseFinding(cause="debug_switch", evidence=[evidence], evidence_kind="profiled")


def _find_profiler_cause(inputs: CauseInputs) -> CauseFinding:
    share, lines = inputs.shares.overhead_parts["job_profiler"], _name_profiler_lines(inputs)
    evidence = [
        Evidence(
            text=f"Starting, stopping and reading PyTorch's profiler in the script ({lines}) takes "
            f"{percent(share)} of step time; operators are slower while it records.",
            value=share,
            unit="ratio",
            source="steps",
        )
    ]
    site = f"The job profiles itself: {lines}."
    return CauseFinding(cause="job_profiler", site=site, evidence=evidence, evidence_kind="sampled")


def _name_profiler_lines(inputs: CauseInputs) -> str:
    """Name the lines that use a profiler of the job, largest first: 'train.py:21, train.py:18'."""
    totals: dict[str, float] = {}
    for rank in inputs.run.ranks:
        for (file, line), share in rank.profiler_lines.items():
            location = f"{file.rpartition('/')[2]}:{line}"
            totals[location] = totals.get(location, 0.0) + share
    return ", ".join(sorted(totals, key=lambda location: -totals[location])[:3])


def _list_stages(inputs: CauseInputs) -> list[Stage]:
    """List the parts of the overhead, inside the compute phases by phase."""
    overhead_parts = inputs.shares.overhead_parts
    parts = {_PART_NAMES[n]: share for n, share in overhead_parts.items() if n in _PART_NAMES}
    details = {
        _PART_NAMES["between_phases"]: stalls.name_first(
            stalls.list_lines(inputs, *HOST_CAUSES, phases=("other",))
        ),
        _PART_NAMES["job_profiler"]: _name_profiler_lines(inputs),
        _PART_NAMES["model_callbacks"]: stalls.name_first(_list_callback_lines(inputs)),
        _PART_NAMES["framework_calls"]: stalls.name_first(stalls.list_framework_lines(inputs)),
    }
    kind = "Python" if _is_python_bound(inputs) else "dispatch"
    for phase, share in inputs.shares.compute_overhead.items():
        name = f"{kind} inside the {_PHASE_NAMES.get(phase, phase)}"
        parts[name] = share
        if kind == "Python":
            details[name] = stalls.name_first(stalls.list_lines(inputs, "python", phases=(phase,)))
    return [
        Stage(name=name, detail=details.get(name, ""), share_ratio=share)
        for name, share in sorted(parts.items(), key=lambda item: -item[1])
        if share >= 0.01
    ]


def list_overhead_causes(inputs: CauseInputs) -> list[tuple[str, float, str]]:
    """List the causes of overhead that are worth a fix, each with its share of the step and a
    sentence, largest first."""
    shares, ranks = inputs.shares, inputs.run.ranks
    parts = shares.overhead_parts
    causes = [
        ("checkpoint", parts["checkpoint"], "writing checkpoints"),
        ("recompilation", parts["compilation"], "compiling"),
        ("garbage_collection", parts["garbage_collection"], stalls.name_collections(inputs.run)),
        ("dispatch_overhead", parts["compiled_calls"], _PART_NAMES["compiled_calls"]),
        ("debug_switch", parts["debug_switch"], _PART_NAMES["debug_switch"]),
        (
            "job_profiler",
            parts["job_profiler"],
            f"{_PART_NAMES['job_profiler']} ({_name_profiler_lines(inputs)})",
        ),
    ]
    callback = stalls.name_first(_list_callback_lines(inputs))
    name = f"{_PART_NAMES['model_callbacks']}{f' ({callback})' if callback else ''}"
    causes.append(("model_callbacks", parts["model_callbacks"], name))
    profile, inside_compute = inputs.run.compute_profile, parts["inside_compute"]
    framework_calls = parts["framework_calls"]
    is_python = _is_python_bound(inputs) and bool(_list_compute_lines(inputs))
    if profile is not None and not _is_python_bound(inputs):
        cause = _name_dispatch_cause(inputs, profile)
        causes.append((cause, shares.operator_calls, "dispatching operators"))
        line = find_framework_line(inputs)
        if line is not None and cause != "dispatch_overhead":
            name = f"{_PART_NAMES['framework_calls']} ({line.location})"
            causes.append(("dispatch_overhead", line.share, name))
    else:
        causes.append(("dispatch_overhead", framework_calls, _PART_NAMES["framework_calls"]))
    for host_cause in HOST_CAUSES:
        share = shares.phases["other"] * compute_host_cause_share(ranks, host_cause)
        if host_cause == "python" and is_python:
            share += inside_compute
        lines = stalls.list_lines(inputs, host_cause)
        name = analysis.HOST_CAUSE_LABELS[host_cause]
        causes.append(
            (
                _name_cause(inputs, host_cause),
                share,
                f"{name} ({lines[0].location})" if lines else name,
            )
        )
    return [
        (cause, share, _describe_part(inputs, cause, name, share))
        for cause, share, name in sorted(causes, key=lambda entry: -entry[1])
        if share >= MIN_CONTRIBUTING_RATIO
    ]


def _describe_part(inputs: CauseInputs, cause: str, name: str, share: float) -> str:
    if cause == "small_batch":  # twice the batch saves some of the time between the phases as well
        return batch_size.describe_batch(inputs)[0].text
    verb = "take" if name.startswith(("calls ", "functions ")) else "takes"
    return f"{name[:1].upper()}{name[1:]} {verb} {percent(share)} of step time."


def find_evaluation_cause(inputs: CauseInputs) -> CauseFinding:
    """Describe the evaluation and its share of the time."""
    ranks = inputs.run.ranks
    # Another stage of the training has evaluations of its own.
    evaluations = [
        intervals.select_near(steps.evaluation, int(steps.start[0]), int(steps.end[-1]))
        for steps in (rank.steps for rank in ranks)
        if len(steps)
    ]
    evaluation_count = sum(len(evaluation.start) for evaluation in evaluations)
    total_ns = sum(evaluation.total_ns for evaluation in evaluations)
    step_count = sum(len(rank.steps) for rank in ranks)
    share = inputs.split.evaluation
    divisor = max(1, evaluation_count)
    step_ratio = step_count / divisor
    interval = "step" if round(step_ratio) == 1 else f"{quantities.number(step_ratio)} steps"
    return CauseFinding(
        cause="evaluation",
        stages=[Stage(name="evaluation", detail="between the steps", share_ratio=share)],
        evidence=[
            Evidence(
                text=f"{count_of(evaluation_count, 'evaluation')}, {duration(total_ns / divisor)} "
                f"each, one every {interval}; a step without evaluation "
                f"takes {duration(inputs.run.mean_step_ns)}.",
                value=share,
                unit="ratio",
                source="steps",
            )
        ],
    )


def describe_operators(profile: analysis.ComputeProfile) -> list[Evidence]:
    """Describe the operators of a window."""
    largest = ", ".join(
        f"{name} {percent(ratio)}" for name, ratio in list(profile.largest.items())[:3]
    )
    work_ratio = 1 - profile.overhead_ratio
    return [
        Evidence(
            text=f"{quantities.count(round(profile.operator_count_per_step))} operators per step, "
            f"{percent(profile.small_ratio)} of them shorter than 20 µs.",
            value=profile.operator_count_per_step,
            unit="count",
            source="steps",
        ),
        Evidence(
            text=f"Sizeable operators run for {percent(work_ratio)} of the compute phases. Of all "
            f"operators, sizeable or not, these take the most time: {largest}.",
            value=work_ratio,
            unit="ratio",
            source="steps",
        ),
    ]


def _name_cause(inputs: CauseInputs, host_cause: analysis.HostCause) -> str:
    if host_cause == "wait":
        waits = wait_causes.list_overhead_waits(inputs)
        return waits[0].cause if waits else "waiting_for_a_service"
    return {"python": "python_overhead", "framework": "dispatch_overhead"}.get(
        host_cause, host_cause
    )


def _name_dispatch_cause(inputs: CauseInputs, profile: analysis.ComputeProfile) -> str:
    if _is_python_bound(inputs):
        return "python_overhead" if _list_compute_lines(inputs) else UNKNOWN
    shares = inputs.shares
    if _has_main_line(inputs):
        return "dispatch_overhead"
    is_small = batch_size.is_batch_small_for(inputs.run, shares, profile)
    if is_small and not batch_size.is_dispatch_in_optimizer(shares):
        return "small_batch"
    if shares.is_dispatch_between_phases:
        return "dispatch_overhead"
    return "tiny_operators" if profile.small_ratio >= 0.5 else "dispatch_overhead"


def _is_python_bound(inputs: CauseInputs) -> bool:
    """Return whether Python code delays the operators, and not their calls: stack samples of the
    compute phases show it, or there are none."""
    if not batch_size.is_python_bound(inputs.run.compute_profile):
        return False
    counts = [rank.host_work.phase_samples for rank in inputs.run.ranks if rank.host_work]
    has_samples = any(count.get(phase) for count in counts for phase in analysis.COMPUTE_PHASES)
    return not has_samples or bool(_list_compute_lines(inputs))


def find_framework_line(inputs: CauseInputs) -> stalls.StepLine | None:
    """Find the line whose calls of the framework between the phases have a fix of their own: the
    longest one where most operators are called there, and any long one, such as that of a copy of
    the model, beside those that the batch is too small for."""
    lines = stalls.list_framework_lines(inputs)
    profile = inputs.run.compute_profile
    if not lines or inputs.shares.is_dispatch_between_phases or profile is None:
        return lines[0] if lines and inputs.shares.is_dispatch_between_phases else None
    is_long = lines[0].share >= MIN_FRAMEWORK_LINE_RATIO
    has_fix = _name_dispatch_cause(inputs, profile) in {"small_batch", "tiny_operators"}
    return lines[0] if is_long and has_fix else None


def _has_main_line(inputs: CauseInputs) -> bool:
    """Return whether one line between the phases, such as that of a copy of the model, has most of
    the time of calling operators: it is the reason, and not the batch."""
    if not inputs.shares.is_dispatch_between_phases:
        return False
    lines = stalls.list_framework_lines(inputs)
    return bool(lines) and lines[0].share > MAIN_LINE_RATIO * inputs.shares.operator_calls


def _find_compute_overhead_cause(inputs: CauseInputs) -> CauseFinding:
    profile = inputs.run.compute_profile
    assert profile is not None  # noqa: S101 - without a window this part is zero
    cause, evidence = _name_dispatch_cause(inputs, profile), describe_operators(profile)
    if inputs.shares.is_dispatch_between_phases:
        evidence = [line.describe() for line in stalls.list_framework_lines(inputs)[:3]] + evidence
    missing = ""
    match cause:
        case "small_batch":
            evidence = batch_size.describe_batch(inputs) + evidence
        case "python_overhead":
            evidence = [line.describe() for line in _list_compute_lines(inputs)[:3]] + evidence
        case "unknown":
            missing = explain_missing_lines(inputs.run.ranks[0])
    return CauseFinding(cause=cause, missing=missing, evidence=evidence, evidence_kind="profiled")


def _describe_growth(inputs: CauseInputs) -> list[Evidence]:
    """Describe steps that take longer and longer: hooks that are registered again in every step."""
    steps = max((rank.steps for rank in inputs.run.ranks), key=len)
    growth = analysis.measure_growth(steps.wall_ns[steps.measured()])
    if (
        growth is None
        or growth.steady_ratio < memory_leak.STEADY_RATIO
        or growth.last < 2 * growth.first
    ):
        return []
    return [
        Evidence(
            text=f"Steps grow from {duration(growth.first)} to {duration(growth.last)}: more is "
            "called in each, as where a hook is registered again in every step.",
            value=growth.last - growth.first,
            unit="ns",
            source="steps",
        )
    ]


def _list_callback_lines(inputs: CauseInputs) -> list[stalls.StepLine]:
    return stalls.list_lines(inputs, "model_callbacks", phases=analysis.COMPUTE_PHASES)


def _list_compute_lines(inputs: CauseInputs) -> list[stalls.StepLine]:
    """List the lines of Python in the compute phases, largest first."""
    return stalls.list_lines(inputs, "python", phases=analysis.COMPUTE_PHASES)


def _find_host_cause(inputs: CauseInputs) -> CauseFinding:
    """Find the cause of the time between phases, from stack samples."""
    run = inputs.run
    works = [work for rank in run.ranks if (work := rank.host_work) is not None]
    lines = stalls.list_lines(inputs, *HOST_CAUSES, "framework", phases=("other",))
    evidence = [line.describe() for line in lines[:3]]
    share = inputs.shares.overhead_parts["between_phases"]
    leak = memory_leak.find_memory_leak(run)
    if leak is not None and leak.excess_ns >= memory_leak.LEAK_RATIO * share * inputs.base_ns:
        return CauseFinding(
            cause="memory_leak", evidence=[*memory_leak.describe_leak(leak), *evidence]
        )
    if not lines:
        return CauseFinding(
            cause=UNKNOWN,
            missing=explain_missing_lines(run.ranks[0]),
            evidence=describe_utilization(run),
        )
    ratios: dict[analysis.HostCause, float] = {
        name: compute_host_cause_share(run.ranks, name) for name in (*HOST_CAUSES, "framework")
    }
    first, second = sorted(ratios, key=lambda name: -ratios[name])[:2]
    certainty = analysis.estimate_lead_probability(
        ratios[first], ratios[second], sum(work.sample_count for work in works)
    )
    evidence = [
        *stalls.describe_callbacks(inputs),
        *(line.describe() for line in _put_first(lines, first)[:3]),
    ]
    waits = wait_causes.list_overhead_waits(inputs) if first == "wait" else []
    return CauseFinding(
        cause=_name_cause(inputs, first),
        site=waits[0].describe() if waits else "",
        certainty=certainty,
        evidence=evidence,
        evidence_kind="sampled",
    )


def _put_first(lines: list[stalls.StepLine], cause: analysis.HostCause) -> list[stalls.StepLine]:
    """Put the lines with a cause before the others."""
    return sorted(lines, key=lambda line: line.line.cause != cause)
