"""Verdict on the traces of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, rules
from stepscope.diagnosis import verdict
from stepscope.diagnosis.causes.attribution import Attribution, AttributionThresholds
from stepscope.diagnosis.causes.cause import CONTRIBUTING_RATIO, CauseFinding
from stepscope.diagnosis.measured import estimate_accuracy
from stepscope.diagnosis.sentences import list_bars, write_headline
from stepscope.diagnosis.traces import trace_shares
from stepscope.diagnosis.traces.trace_causes import find_trace_cause
from stepscope.diagnosis.traces.trace_fixes import list_trace_fixes, note_joint_saving
from stepscope.diagnosis.traces.trace_inputs import TraceInputs, mean_step_ns
from stepscope.diagnosis.traces.trace_obstacles import (
    BLOCKED,
    MAX_NAMED,
    MAX_UNEXPLAINED_RATIO,
    abstain_from_devices,
    explain_waiting,
    find_obstacle,
    find_wrong_times,
    leave_out_lost_fetches,
    leave_out_unlike,
    note_time_between,
    split_by_time,
)
from stepscope.quantities import count_of, duration, percent
from stepscope.run import DividedTrace, Run, StepSource, divide_traces, name_traces

MIN_NAMED_RATIO = 0.01
"""Smaller shares of the step are not named."""
WAITING = "waiting"
"""Cause of an attribution to none, because the process has no work."""
WHOLE_RATIO = 0.5
"""Confidence where no steps were found: start-up and evaluation count as well."""
UNTIL_DONE = ", until the device work of a step is done"
SHARE_OF: dict[StepSource, str] = {
    "job": f"step time in the traces{UNTIL_DONE}",
    "named": f"step time in the traces{UNTIL_DONE}",
    "optimizer": "time between the ends of optimizer steps in the traces",
    "ranges": "time between the starts of a repeated range in the traces",
    "whole": "time from the first to the last event of the host in the traces",
}
"""Denominator of the shares by source of the steps, the most reliable source first."""


def diagnose_traces(
    run: Run, thresholds: AttributionThresholds, notes: Sequence[str] = ()
) -> verdict.Verdict:
    """Diagnose the traces of a run that holds no watched steps. Abstains, with the reason, where
    they do not tell, or device work was not recorded, or has a layout that is not known: what the
    host did meanwhile is no cause of anything then.

    Args:
        run: a run with traces.
        thresholds: those of verdicts on jobs.
        notes: notes on the run, for the verdict.
    """
    unknown = next(
        (t.unknown_devices for t in run.traces if t.unknown_devices and not t.unrecorded_devices),
        None,
    )
    if unknown is not None:
        return verdict.make_abstention(unknown, notes, evidence_kind="traced")
    divided = divide_traces(run)
    sources = {one.source for one in divided}
    source: StepSource = next((name for name in SHARE_OF if name in sources), "whole")
    recorded, unlike = leave_out_unlike(run, [one for one in divided if one.source == source])
    notes = [*notes, *unlike]
    if not recorded:
        return verdict.make_abstention("the traces contain no time", notes, evidence_kind="traced")
    left_out = len(run.traces) - sum(one.source == source for one in divided)
    if left_out:
        notes.append(f"{count_of(left_out, 'trace')} without such steps left out.")
    wrong = next(filter(None, map(find_wrong_times, recorded)), None)
    if wrong is not None:
        return verdict.make_abstention(wrong, notes, evidence_kind="traced")
    if any(one.trace.unrecorded_devices for one in recorded):
        return abstain_from_devices(recorded, notes)
    notes += note_time_between(recorded) if source in {"named", "job"} else []
    recorded, lost = leave_out_lost_fetches(recorded)
    notes += lost
    if not recorded:
        return verdict.make_abstention(
            "in each step a fetch of a batch has no known time, so the share of the data pipeline "
            "is not known",
            notes,
            evidence_kind="traced",
        )
    groups = split_by_time(run, recorded)
    if len(groups) > 1:
        return _diagnose_apart(groups, thresholds, notes)
    waits = trace_shares.measure_waits(run, [one.without_start() for one in recorded])
    return _diagnose_together(recorded, waits, thresholds, notes)


def _diagnose_apart(
    groups: Sequence[Sequence[DividedTrace]],
    thresholds: AttributionThresholds,
    notes: Sequence[str],
) -> verdict.Verdict:
    """Diagnose ranks that were not recorded together: their verdict, if it is the same for all of
    them and not about communication, of which no share is known to be waiting for a rank."""
    waits, summaries, suspects = trace_shares.TraceWaits(), [], set()
    for group in groups:
        alone = _diagnose_together(group, waits, thresholds, ())
        suspects.add(alone.suspect)
        text = alone.headline
        if alone.suspect == "communication":
            text = (
                f"exposed communication takes {percent(alone.share_ratio)} of step time, an "
                "unknown part of it waiting for other ranks."
            )
        names = name_traces([one.trace for one in group])
        summaries.append(f"{names[:1].upper()}{names[1:]} alone: {text}")
    if len(suspects) == 1 and "communication" not in suspects:
        return _diagnose_together(
            [one for group in groups for one in group], waits, thresholds, notes
        )
    return verdict.make_abstention(
        "the ranks were recorded at different times and differ, so who waits for whom is unknown",
        [*notes, *summaries[:MAX_NAMED]],
        evidence_kind="traced",
    )


def _diagnose_together(
    recorded: Sequence[DividedTrace],
    waits: trace_shares.TraceWaits,
    thresholds: AttributionThresholds,
    notes: Sequence[str],
) -> verdict.Verdict:
    """Diagnose traces with steps of one source.

    Args:
        recorded: the traces.
        waits: waiting of their ranks for each other.
        thresholds, notes: as of `diagnose_traces`.
    """
    source = recorded[0].source
    traces = [one.without_start() for one in recorded]
    matrix = trace_shares.build_part_matrix(traces)
    shares = trace_shares.compute_trace_shares(matrix, waits)
    obstacle = find_obstacle(traces, shares)
    if obstacle is not None:
        return verdict.make_abstention(obstacle, notes, evidence_kind="traced")
    inputs = TraceInputs(traces=traces, shares=shares, waits=waits)
    attribution = _attribute(inputs, shares, thresholds)
    if attribution.cause == WAITING and inputs.wait_function is None:
        obstacle = explain_waiting(attribution.share, traces[0].trace.recorder)
        return verdict.make_abstention(obstacle, notes, evidence_kind="traced")
    finding = find_trace_cause(inputs, attribution)
    step_ns = mean_step_ns(traces)
    step_count = len(matrix)
    share_of = SHARE_OF[source].replace(UNTIL_DONE, "") if inputs.on_host else SHARE_OF[source]
    contributing = [
        verdict.ContributingCause(
            suspect=attribution.suspect,
            cause=cause,
            share_ratio=share,
            share_of=share_of,
            text=text,
        )
        for cause, share, text in finding.contributing
    ] + _find_other_suspects(inputs, attribution, thresholds, share_of)
    stability = _estimate_stability(inputs, matrix, attribution, thresholds)
    accuracy = estimate_accuracy(finding.cause, finding.evidence_kind)
    certainty = WHOLE_RATIO if source == "whole" else step_count / (step_count + 1)
    phases = trace_shares.measure_categories(traces)
    return verdict.Verdict(
        suspect=attribution.suspect,
        cause=finding.cause,
        share_ratio=attribution.share,
        share_of=share_of,
        share_basis=_explain_waiting_share(attribution, finding, shares),
        confidence_ratio=round(stability * certainty * accuracy, 3),
        evidence_kind=finding.evidence_kind,
        headline=write_headline(attribution, finding, shares.suspects["model"])
        if attribution.cause != WAITING
        else _write_waiting_headline(attribution, inputs),
        stages=finding.stages,
        evidence=[
            verdict.describe_step_time(phases, "category"),
            *finding.evidence,
            *_describe_critical_path(inputs),
        ],
        ruled_out=_rule_out(inputs, attribution, finding.cause, thresholds, contributing, share_of),
        suspects=[
            verdict.SuspectShare(suspect=name, share_ratio=shares.suspects[name], share_of=share_of)
            for name in verdict.SUSPECTS
        ],
        also=contributing,
        fixes=list_trace_fixes(finding, attribution.suspect, contributing, inputs, step_ns),
        notes=[
            *notes,
            *([waits.note] if waits.note else ()),
            *_list_notes(recorded, traces, source),
            *_note_queued(shares),
            *note_joint_saving(finding.cause, attribution.suspect, contributing, inputs),
        ],
        step_count=step_count,
        mean_step_ns=step_ns,
        phases=phases,
        bars=list_bars(phases),
    )


def _describe_critical_path(inputs: TraceInputs) -> list[verdict.Evidence]:
    """List the shares of the critical path by kind; nothing without one, or where the recorder
    names no operators, so that all of the host is Python on it."""
    if not inputs.recorder.is_torch or inputs.causal is None:
        return []
    sums = [(name, ns) for name, ns in inputs.causal.sum_categories() if ns]
    total_ns = sum(ns for _, ns in sums)
    parts = [
        f"{analysis.PATH_NAMES[name]} {percent(ns / total_ns)}"
        for name, ns in sums
        if ns >= verdict.MIN_LISTED_RATIO * total_ns
    ]
    if not parts:
        return []
    text = f"On the critical path of the steps: {', '.join(parts)}."
    return [verdict.Evidence(text=text, source="critical-path")]


def _write_waiting_headline(attribution: Attribution, inputs: TraceInputs) -> str:
    subject = "host" if inputs.on_host else "device"
    return (
        f"No bottleneck found: the {subject} has no work for {percent(attribution.share)} of step "
        f"time, while the host waits in {inputs.wait_function}."
    )


def _attribute(
    inputs: TraceInputs, shares: trace_shares.TraceShares, thresholds: AttributionThresholds
) -> Attribution:
    """Attribute the step to the largest suspect above its threshold, or to none if the process has
    no work for longer; else to the model if it computes less well than the device can, or heavily;
    else to none."""
    exceeded = [
        Attribution(suspect=suspect, share=shares.suspects[suspect])
        for suspect in thresholds.by_suspect
        if _is_exceeded(suspect, inputs, shares, thresholds)
    ]
    rank_wait = inputs.waits.add_excess(shares.rank_wait.get("model", 0.0))
    if rank_wait >= thresholds.slow_rank:
        exceeded.append(Attribution(suspect="model", share=rank_wait, cause="slow_rank"))
    if shares.suspects["healthy"] >= MAX_UNEXPLAINED_RATIO:
        waiting = shares.suspects["healthy"]
        exceeded.append(Attribution(suspect="healthy", share=waiting, cause=WAITING))
    if exceeded:
        return max(exceeded, key=lambda attribution: attribution.share)
    model = shares.suspects["model"]
    is_heavy = (
        model >= thresholds.heavy_compute
        and model * mean_step_ns(inputs.traces) >= thresholds.heavy_model_core_ns
    )
    is_model = is_heavy or inputs.model_cause is not None
    if is_model:
        return Attribution(suspect="model", share=model)
    return Attribution(suspect="healthy", share=shares.parts["compute"])


def _is_exceeded(
    suspect: verdict.Suspect,
    inputs: TraceInputs,
    shares: trace_shares.TraceShares,
    thresholds: AttributionThresholds,
) -> bool:
    if shares.suspects[suspect] < thresholds.by_suspect[suspect]:
        return False
    largest = max(*inputs.overhead_parts.values(), shares.rank_wait.get(suspect, 0.0))
    return suspect != "framework_overhead" or largest >= thresholds.overhead_cause


def _find_other_suspects(
    inputs: TraceInputs, attribution: Attribution, thresholds: AttributionThresholds, share_of: str
) -> list[verdict.ContributingCause]:
    """Find the causes of other suspects that are worth a fix, largest first."""
    shares = inputs.shares.suspects
    contributing = [
        suspect
        for suspect in sorted(thresholds.by_suspect, key=lambda name: -shares[name])
        if suspect != attribution.suspect and shares[suspect] >= CONTRIBUTING_RATIO
    ]
    causes = []
    for suspect in contributing:
        attributed = Attribution(suspect=suspect, share=shares[suspect])
        finding = find_trace_cause(inputs, attributed)
        causes.append(
            verdict.ContributingCause(
                suspect=suspect,
                cause=finding.cause,
                share_ratio=shares[suspect],
                share_of=share_of,
                text=finding.evidence[0].text,
            )
        )
    return causes


def _estimate_stability(
    inputs: TraceInputs,
    matrix: NDArray[np.int64],
    attribution: Attribution,
    thresholds: AttributionThresholds,
) -> float:
    """Estimate how often resampled steps give the same suspect (bootstrap, Efron 1979)."""
    generator = np.random.default_rng(0)
    totals = [
        matrix[generator.integers(0, len(matrix), size=len(matrix))].sum(axis=0)
        for _ in range(thresholds.resamples)
    ]
    same_count = 0
    for total, count in zip(*np.unique(totals, axis=0, return_counts=True), strict=True):
        resampled = trace_shares.compute_trace_shares(total[np.newaxis], inputs.waits)
        if _attribute(inputs, resampled, thresholds).suspect == attribution.suspect:
            same_count += int(count)
    return same_count / thresholds.resamples


def _explain_waiting_share(
    attribution: Attribution, finding: CauseFinding, shares: trace_shares.TraceShares
) -> str:
    """Explain in one sentence that a share has a part in which ranks wait for the slowest of them,
    which the categories show as communication; empty without such a part."""
    waiting = shares.rank_wait.get(attribution.suspect, 0.0)
    if waiting < MIN_NAMED_RATIO or attribution.cause is not None:
        return ""
    alone = attribution.share - waiting
    sentence = (
        f"The {percent(attribution.share)} are {percent(alone)} on the ranks themselves and "
        f"{percent(waiting)} of waiting for the slowest rank, which is communication above"
    )
    if finding.cause not in {"straggler", "uneven_ranks"}:
        return f"{sentence}."
    return (
        f"{sentence}; equal ranks would save {percent(finding.stages[0].share_ratio)}, the waiting "
        "and what the slowest rank does longer."
    )


def _rule_out(  # noqa: PLR0917
    inputs: TraceInputs,
    attribution: Attribution,
    cause: str,
    thresholds: AttributionThresholds,
    contributing: Sequence[verdict.ContributingCause],
    share_of: str,
) -> list[verdict.RuledOut]:
    """Give the reason against each suspect that takes too little of the step: neither that of the
    verdict, nor that of a contributing cause, nor the largest part of the step."""
    shares, limits = inputs.shares.suspects, thresholds.by_suspect
    suspect = attribution.suspect
    causes = {suspect, max(verdict.SUSPECTS, key=lambda name: shares[name])}
    causes |= {entry.suspect for entry in contributing}
    is_host = inputs.on_host
    with_gaps = inputs.shares.parts["queued"] >= MIN_NAMED_RATIO
    model = "computation with gaps between queued work takes" if with_gaps else "computation takes"
    reasons: dict[verdict.Suspect, str] = {
        "data_pipeline": "fetching batches takes"
        if is_host
        else "fetching batches and copying them to the device, while it has no other work, take",
        "model": "sizeable operators take" if is_host else model,
        "communication": "exposed communication takes",
        "framework_overhead": "calling operators, Python and waits take"
        if is_host
        else "the device has no work for other reasons in",
    }
    ruled_out = []
    for name in verdict.SUSPECTS:
        share = percent(shares[name])
        if name in causes:
            continue
        if name in limits and shares[name] >= limits[name]:
            largest = percent(max(inputs.overhead_parts.values()))
            why = (
                f"{reasons[name]} {share} of step time, of which the largest cause has {largest} "
                f"(threshold {percent(thresholds.overhead_cause)})."
            )
        elif name in limits:
            below = rules.percent_beside(shares[name], 100 * limits[name], 0)
            why = f"{reasons[name]} {below} of step time (threshold {percent(limits[name])})."
            is_python = suspect == "framework_overhead" and cause in {
                "python_overhead",
                verdict.UNKNOWN,
            }
            if name == "data_pipeline" and not shares[name] and is_python:
                why += f" No fetch {inputs.recorder.fetches} was recorded: batches that the script "
                why += "makes otherwise count as host overhead."
        else:
            why = f"{reasons[name]} {share} of step time."
        ruled_out.append(
            verdict.RuledOut(suspect=name, share_ratio=shares[name], share_of=share_of, why=why)
        )
    return ruled_out


def _note_queued(shares: trace_shares.TraceShares) -> list[str]:
    queued, blocked = shares.parts["queued"], shares.parts["blocked"]
    sentences = {
        f"For {percent(queued)} of step time the device has no work although its next work is "
        "queued: gaps between short kernels.": queued,
        f"For {percent(blocked)} of step time {BLOCKED}; no suspect has this time.": blocked,
    }
    return [text for text, share in sentences.items() if share >= CONTRIBUTING_RATIO]


def _list_notes(
    recorded: Sequence[DividedTrace], traces: Sequence[DividedTrace], source: StepSource
) -> list[str]:
    """List what limits the verdict.

    Args:
        recorded: the traces with all of their steps.
        traces: the same without steps of start-up.
        source: source of their steps.
    """
    first = traces[0]
    notes = []
    if source == "whole":
        notes.append(
            "The traces mark no steps, and no range repeats as steps do, so shares are of all of "
            "the recorded time, start-up included."
        )
    elif source in {"optimizer", "ranges"}:
        notes.append(
            f"The traces name no steps: a step is the time from one range “{first.range_name}” to "
            "the next, so it is one of several updates where a batch has several."
        )
    first_ns = max(
        (
            int(one.steps.wall_ns[0])
            for one, used in zip(recorded, traces, strict=True)
            if one is not used
        ),
        default=0,
    )
    if first_ns:
        notes.append(f"The first step took {duration(first_ns)} and is left out as start-up.")
    if any(len(one.work.kernel_devices) > 1 for one in traces):
        notes.append(
            "A process used several GPUs: an instant at which one of them works counts as busy."
        )
    if any(one.trace.has_stacks for one in traces):
        notes.append(
            "Python functions were recorded, which slows the host down: without them, its time "
            "between operators is shorter."
        )
    step_count = sum(len(one.steps.names) for one in traces)
    if step_count < len(traces) + 1 and source != "whole":
        notes.append(
            f"Only one step per trace was recorded ({duration(mean_step_ns(traces))}): whether it "
            "is typical is not known."
        )
    return notes
