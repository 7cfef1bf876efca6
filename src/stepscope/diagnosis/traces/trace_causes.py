"""Cause within a suspect, from traces."""

from __future__ import annotations

from msgspec.structs import replace

from stepscope import analysis, run
from stepscope.analysis import MAX_CALL_NS
from stepscope.diagnosis.causes.attribution import Attribution
from stepscope.diagnosis.causes.cause import CONTRIBUTING_RATIO, CauseFinding, times
from stepscope.diagnosis.causes.causes import SLOW_RANK_RATIO
from stepscope.diagnosis.traces import trace_details, trace_python
from stepscope.diagnosis.traces.trace_inputs import TraceInputs, mean_step_ns
from stepscope.diagnosis.traces.trace_shares import SUSPECT_OF_PART, find_slow_rank, make_evidence
from stepscope.diagnosis.verdict import UNKNOWN, Evidence, Stage, Suspect
from stepscope.quantities import count, count_of, duration, number, percent

OPTIMIZER_RATIO = 0.5
"""The optimizer has the overhead where this share of it is in optimizer steps."""
HOST_PART_NAMES = {"compute": "sizeable operators"}
"""Names of parts that differ where the host computes itself."""


def find_trace_cause(inputs: TraceInputs, attribution: Attribution) -> CauseFinding:
    """Find the cause within a suspect; `none` where the computation is as fast as it can be."""
    suspect = attribution.suspect
    wait = inputs.waits.add_excess(inputs.shares.rank_wait.get(suspect, 0.0))
    if suspect == "healthy":
        finding = _describe_waiting(inputs)
    elif attribution.cause == "slow_rank" or wait > SLOW_RANK_RATIO * attribution.share:
        finding = find_slow_rank(inputs.waits, inputs.shares, suspect)
    elif suspect == "data_pipeline":
        finding = _find_data_cause(inputs)
    elif suspect == "communication":
        finding = _find_communication_cause(inputs)
    elif suspect == "framework_overhead":
        finding = _find_overhead_cause(inputs)
    else:
        finding = inputs.model_cause or CauseFinding(cause="compute")
    stages = finding.stages or _list_stages(inputs, suspect)
    return replace(finding, evidence_kind="traced", stages=stages)


def _list_stages(inputs: TraceInputs, suspect: Suspect) -> list[Stage]:
    names = analysis.PART_NAMES | (HOST_PART_NAMES if inputs.on_host else {})
    owner = "model" if suspect == "healthy" else suspect
    return [
        Stage(name=names[part], detail="", share_ratio=share)
        for part, share in sorted(inputs.shares.parts.items(), key=lambda item: -item[1])
        if SUSPECT_OF_PART.get(part) == owner and share >= 0.01
    ]


def _describe_waiting(inputs: TraceInputs) -> CauseFinding:
    finding = CauseFinding(cause="none")
    if inputs.shares.parts["waiting"] >= CONTRIBUTING_RATIO:
        waiting_ns = inputs.mean_ns("waiting")
        text = f"The host has no work for {duration(waiting_ns)} per step"
        function = inputs.wait_function
        text += f": it waits in {function}." if function else ", or runs Python code."
        finding.evidence = [make_evidence(text, waiting_ns, "ns", "idle")]
    return finding


def _find_data_cause(inputs: TraceInputs) -> CauseFinding:
    parts = inputs.shares.parts
    if parts["copy_to_device"] > parts["data_loader"]:
        return _find_copy_cause(inputs)
    divided = inputs.choose("data_loader")
    fetches = run.measure_fetches(divided.trace, divided.steps)
    subject = "training thread" if inputs.on_host else "device"
    waiting = make_evidence(
        f"The {subject} waits {duration(inputs.mean_ns('data_loader'))} per step for batches.",
        inputs.mean_ns("data_loader"),
        "ns",
        "steps",
    )
    if fetches is None:
        return CauseFinding(cause=UNKNOWN, evidence=[waiting])
    if not inputs.recorder.is_torch:
        return _find_stage_cause(inputs, divided)
    if fetches.has_workers:
        return CauseFinding(
            cause=UNKNOWN,
            missing="Spans of the DataLoader workers would show it; the trace contains only the "
            "training process.",
            evidence=[waiting],
        )
    loading = make_evidence(
        f"The training process makes its batches itself, {duration(fetches.ns_per_step)} per step.",
        fetches.ns_per_step,
        "ns",
        "steps",
    )
    return CauseFinding(cause="too_few_workers", evidence=[loading, waiting])


def _find_stage_cause(inputs: TraceInputs, divided: run.DividedTrace) -> CauseFinding:
    """Find the stage of a pipeline of another framework that takes longest."""
    waited_ns = inputs.mean_ns("data_loader")
    text = f"Steps wait {duration(waited_ns)} each for batches {inputs.recorder.fetches}."
    stage = trace_details.describe_longest_stage(divided.trace)
    return CauseFinding(
        cause="slow_dataset" if stage else UNKNOWN,
        evidence=[make_evidence(text, waited_ns, "ns", "steps"), *stage],
    )


def _find_copy_cause(inputs: TraceInputs) -> CauseFinding:
    evidence = [
        make_evidence(
            f"Copies to the device take {duration(inputs.mean_ns('copy_to_device'))} per step in "
            "which nothing else runs on it.",
            inputs.mean_ns("copy_to_device"),
            "ns",
            "activity",
        )
    ]
    pageable = trace_details.measure_pageable_ratio(inputs.choose("copy_to_device"))
    if inputs.copies_without_waits:
        evidence.append(
            make_evidence(
                "They read pinned memory, and the host does not wait for them, but kernels do.",
                None,
                "",
                "activity",
            )
        )
    if pageable:
        evidence.append(
            make_evidence(
                f"{percent(pageable)} of that copying reads pageable memory, which the host "
                "waits for.",
                pageable,
                "ratio",
                "activity",
            )
        )
    return CauseFinding(cause="host_to_device_copies", evidence=evidence)


def _find_communication_cause(inputs: TraceInputs) -> CauseFinding:
    divided = inputs.choose("communication")
    exposed_ns = inputs.mean_ns("communication")
    text = trace_details.describe_collectives(divided, exposed_ns)
    waiting_ns = sum(inputs.waits.ratios.values()) * exposed_ns
    if waiting_ns >= CONTRIBUTING_RATIO * exposed_ns:
        text += f" {duration(waiting_ns)} of these are waiting for the slowest rank, not transfer."
    return CauseFinding(
        cause="gradient_exchange" if inputs.issuer == "DDP" else "collectives",
        evidence=[make_evidence(text, exposed_ns, "ns", "distributed")],
    )


def _find_overhead_cause(inputs: TraceInputs) -> CauseFinding:
    parts = inputs.overhead_parts
    cause = max(parts, key=lambda name: parts[name])
    finding = CauseFinding(cause=cause, evidence=describe_overhead(inputs, cause))
    if cause == "python_overhead":
        _find_site(inputs, finding)
    finding.contributing = [
        (name, share, describe_overhead(inputs, name)[0].text)
        for name, share in sorted(parts.items(), key=lambda item: -item[1])
        if name != cause and share >= CONTRIBUTING_RATIO
    ]
    return finding


def _find_site(inputs: TraceInputs, finding: CauseFinding) -> None:
    """Name the function that has the time between operators, or in a trace without stacks the range
    of the script: a range tells where it is, and not why."""
    divided = inputs.choose("python")
    has_stacks = divided.trace.has_stacks
    find = trace_python.find_functions if has_stacks else trace_python.find_sites
    step_count, step_ns = len(divided.steps.names), float(divided.steps.wall_ns.mean())
    sites = [
        site for site in find(divided) if site.time_ns >= CONTRIBUTING_RATIO * step_ns * step_count
    ]
    if not has_stacks and (not sites or not sites[0].is_function):
        finding.cause = UNKNOWN
        finding.missing = (
            "Python functions of the training thread would show it; the trace contains none "
            f"({inputs.recorder.advise('stacks')})."
        )
    for site in sites[: trace_details.MAX_NAMED_FUNCTIONS]:
        kind = "function" if site.is_function else "range"
        time_ns = site.time_ns / step_count
        text = (
            f"{duration(time_ns)} of {duration(step_ns)} per step lie in the {kind} "
            f"“{site.name}”, between operators."
        )
        finding.site = finding.site or text
        finding.evidence.append(make_evidence(text, time_ns, "ns", "timeline"))


def describe_overhead(inputs: TraceInputs, cause: str) -> list[Evidence]:
    """Describe one cause of overhead by what the traces show."""
    match cause:
        case "host_sync":
            return _describe_reads(inputs) if inputs.on_host else _describe_waits(inputs)
        case "recompilation":
            compilations = trace_details.count_compilations(inputs.choose("compilation"))
            return _describe_calls(
                compilations,
                times(compilations),
                "The compiler runs {} per step and takes {}"
                + ("." if inputs.on_host else " while the device is idle."),
                inputs.mean_ns("compilation"),
            )
        case "memory_allocation":
            calls = trace_details.count_allocations(inputs.choose("allocation"))
            return _describe_calls(
                calls,
                number(calls),
                "{} calls per step allocate or release device memory, and the device is idle for "
                "{} meanwhile.",
                inputs.mean_ns("allocation"),
            )
        case "long_calls":
            return _describe_long_calls(inputs)
        case "device_to_host_copies":
            return _describe_copies_out(inputs)
        case "python_overhead":
            return _describe_script_python(inputs)
    return _describe_launches(inputs, cause)


def _describe_calls(calls: float, words: str, text: str, time_ns: float) -> list[Evidence]:
    return [make_evidence(text.format(words, duration(time_ns)), calls, "count", "launches")]


def _describe_waits(inputs: TraceInputs) -> list[Evidence]:
    waits = trace_details.measure_waits_for_device(inputs.choose("synchronization", "copy_to_host"))
    idle_ns = inputs.mean_ns("synchronization", "copy_to_host")
    evidence = [
        make_evidence(
            f"The host waits for the device {times(waits.count_per_step)} per step; "
            f"afterwards the device is idle for {duration(idle_ns)} per step.",
            idle_ns,
            "ns",
            "idle",
        )
    ]
    if waits.operators:
        names = ", ".join(f"{name} {percent(share)}" for name, share in waits.operators)
        evidence.append(make_evidence(f"Where it waits: {names}.", None, "", "launches"))
    return evidence


def _describe_copies_out(inputs: TraceInputs) -> list[Evidence]:
    copying_ns = inputs.mean_ns("copy_out")
    text = (
        f"Copies to the host take {duration(copying_ns)} per step in which nothing else runs on "
        "the device; the host does not wait for them."
    )
    return [make_evidence(text, copying_ns, "ns", "activity")]


def _describe_long_calls(inputs: TraceInputs) -> list[Evidence]:
    time_ns = inputs.mean_ns("long_call")
    divided = inputs.choose("long_call")
    calls = trace_details.name_long_calls(divided, divided.activity.long_calls)
    text = (
        f"Runtime calls that take more than {duration(analysis.LONG_CALL_NS)} each leave the "
        f"device without work for {duration(time_ns)} per step: {calls}."
    )
    return [make_evidence(text, time_ns, "ns", "launches")]


def _describe_reads(inputs: TraceInputs) -> list[Evidence]:
    time_ns = inputs.reads.time_ns / inputs.step_count
    text = (
        f"The host reads {count_of(round(inputs.reads.count / inputs.step_count), 'value')} per "
        f"step from tensors, one after another, in {duration(time_ns)}."
    )
    return [make_evidence(text, time_ns, "ns", "launches")]


def _describe_script_python(inputs: TraceInputs) -> list[Evidence]:
    python_ns = inputs.overhead_parts["python_overhead"] * mean_step_ns(inputs.traces)
    text = (
        f"Between operators, {times(inputs.script_python.count_per_step)} per step, Python "
        f"runs for more than {duration(MAX_CALL_NS)}: {duration(python_ns)} per step."
    )
    evidence = [make_evidence(text, python_ns, "ns", "launches")]
    if not inputs.recorder.is_torch:
        evidence += trace_python.describe_functions(inputs.choose("python"), CONTRIBUTING_RATIO)
    return evidence


def _describe_launches(inputs: TraceInputs, cause: str) -> list[Evidence]:
    launches, divided = inputs.launches, inputs.choose("dispatch", "python")
    pieces = "operators" if divided.on_host else "kernels and copies"
    verb = "runs no sizeable operator" if divided.on_host else "has no work"
    subject = "The host" if divided.on_host else "The device"
    idle_ns = inputs.overhead_parts[cause] * mean_step_ns(inputs.traces)
    evidence = [
        make_evidence(
            f"{count(round(launches.count_per_step))} {pieces} per step, half of them shorter "
            f"than {duration(launches.median_ns)}.",
            launches.count_per_step,
            "count",
            "launches",
        ),
        make_evidence(
            f"{subject} {verb} for {duration(idle_ns)} per step, while the host calls the next.",
            idle_ns,
            "ns",
            "idle",
        ),
    ]
    optimizer = trace_details.measure_optimizer_ratio(divided, "dispatch", "python")
    if optimizer >= OPTIMIZER_RATIO:
        evidence.insert(
            0,
            make_evidence(
                f"{percent(optimizer)} of that time is in optimizer steps.",
                optimizer,
                "ratio",
                "annotations",
            ),
        )
    return evidence


def is_overhead_in_optimizer(inputs: TraceInputs) -> bool:
    """Return whether most of the time between operators is in optimizer steps."""
    divided = inputs.choose("dispatch", "python")
    return trace_details.measure_optimizer_ratio(divided, "dispatch", "python") >= OPTIMIZER_RATIO
