"""The diagnosis of a run: its verdict, the confidence, and the reasons against other suspects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepscope import analysis, quantities, rules, schema
from stepscope.diagnosis import measured, records
from stepscope.diagnosis.causes.attribution import (
    CORE_SHORTAGES,
    NEED_A_WINDOW,
    THRESHOLDS,
    Attribution,
    AttributionThresholds,
    Attributor,
    name_denominator,
)
from stepscope.diagnosis.causes.cause import CauseInputs
from stepscope.diagnosis.causes.causes import find_cause, find_contributing_causes
from stepscope.diagnosis.causes.core_shortage import describe_outside_load
from stepscope.diagnosis.causes.data_causes import find_starved_rank
from stepscope.diagnosis.causes.job_facts import JobFacts, is_boosting
from stepscope.diagnosis.death import find_death
from stepscope.diagnosis.fixes.advice import (
    leave_out_useless,
    list_even_changes,
    list_fixes,
    list_refusals,
)
from stepscope.diagnosis.fixes.what_if import WhatIf
from stepscope.diagnosis.host_memory import account_for_memory
from stepscope.diagnosis.job import begin_with_job
from stepscope.diagnosis.job_stages import diagnose_stages_of_job
from stepscope.diagnosis.sentences import (
    describe_load,
    explain_hatching,
    explain_share,
    explain_smaller_share,
    hedge,
    list_bars,
    word_for_inference,
    write_headline,
)
from stepscope.diagnosis.shares.debug_switches import list_debug_switches
from stepscope.diagnosis.shares.pipeline_model import Pipeline
from stepscope.diagnosis.shares.shares import (
    PhaseSplit,
    Shares,
    build_phase_matrix,
    compute_shares,
    measure_phase_shares,
    measure_phase_split,
)
from stepscope.diagnosis.stuck import find_stuck
from stepscope.diagnosis.verdict import (
    LOOP_SHARE,
    SUSPECTS,
    ContributingCause,
    RuledOut,
    Suspect,
    SuspectShare,
    Verdict,
    describe_step_time,
    make_abstention,
)
from stepscope.quantities import duration, percent
from stepscope.run import (
    NO_COLLECTIVE,
    RANK_FIGURES,
    REPLICAS,
    Rank,
    Run,
    explain_incarnations,
    explain_recording_end,
    explain_recovery,
    explain_rounding,
    find_recording_end,
    find_repeated_ranks,
    has_ended,
    has_replicas,
    has_stage_operations,
    job_state,
    list_run_doubts,
    make_with_damage,
    measure_ranks,
    read_job_time,
)

MIN_NOTED_THROTTLING = 0.05
MIN_NOTED_WAITING = 0.01
"""Waiting of ranks for the slowest, as a share of the step."""
MIN_NOTED_DELAY = 0.05
"""Batches delayed by processes outside the job, as a share of the step."""

BOOSTING_NOTE = (
    "A boosting round of XGBoost is one call: reading of external memory, communication between "
    "workers and building of trees cannot be told apart in it, and all of it counts as compute."
)


def diagnose(
    run: Run,
    thresholds: AttributionThresholds = THRESHOLDS,
    *,
    planned_step_count: int | None = None,
) -> Verdict:
    """Diagnose a run. Abstains, with the reason, where evidence is damaged or not sufficient.

    Args:
        planned_step_count: as for `account_for_job`.
    """
    verdict, damage = make_with_damage(
        run, lambda source: _diagnose_with_memory(source, thresholds)
    )
    death, _ = make_with_damage(run.whole_run, find_death)
    if damage:
        reason = f"a part of the run is damaged; {damage[0].rstrip('.')}"
        return msgspec.structs.replace(_abstain(run, reason), death=death, memory=verdict.memory)
    headline = hedge(verdict.headline, verdict.confidence_ratio)
    verdict = msgspec.structs.replace(
        verdict,
        headline=headline,
        death=death,
        stuck=find_stuck(run.whole_run),
        limitations=_list_limitations(run),
    )
    verdict = begin_with_job(run, verdict, planned_step_count)
    return msgspec.structs.replace(verdict, fixes=leave_out_useless(verdict.fixes))


def _diagnose_with_memory(run: Run, thresholds: AttributionThresholds) -> Verdict:
    verdict = _diagnose(run, thresholds)
    memory = account_for_memory(run.whole_run, verdict.cause)
    return msgspec.structs.replace(verdict, memory=memory)


def _diagnose(run: Run, thresholds: AttributionThresholds) -> Verdict:
    # Imports of what few runs need: `stepscope diagnose` and `show` must start fast.
    if not run.ranks and run.reader.info.attached_pid is not None:
        from stepscope.diagnosis.attached import diagnose_attached

        return diagnose_attached(run, thresholds, _list_loss_notes(run))
    if not run.ranks and run.traces:
        from stepscope.diagnosis.traces import diagnose_traces

        doubts = list_run_doubts(run)
        notes = _list_loss_notes(run)
        reason = records.find_damage(run, doubts)
        verdict = (
            make_abstention(reason.rstrip("."), notes, evidence_kind="traced")
            if reason
            else diagnose_traces(run, thresholds, notes)
        )
        no_collective = [doubt for doubt in doubts if doubt.check == NO_COLLECTIVE]
        if no_collective and verdict.suspect in {"model", "healthy"}:
            reason = no_collective[0].sentence.rstrip(".")
            reason = reason[:1].lower() + reason[1:]
            verdict = make_abstention(reason, verdict.notes, evidence_kind="traced")
        return msgspec.structs.replace(verdict, doubts=[doubt.sentence for doubt in doubts])
    if not run.ranks and has_stage_operations(run):
        from stepscope.diagnosis.stage_stragglers import diagnose_stages

        return diagnose_stages(run, _list_loss_notes(run))
    return diagnose_stages_of_job(run, lambda part: _judge(part, thresholds)) or _judge(
        run, thresholds
    )


def _judge(run: Run, thresholds: AttributionThresholds) -> Verdict:
    """Judge the steps of a run, or of a stage of it."""
    obstacle = _find_obstacle(run, thresholds)
    if obstacle is not None:
        return _abstain(run, obstacle)
    verdict = _diagnose_steps(run, thresholds)
    return word_for_inference(verdict) if run.ranks[0].steps.is_inference else verdict


def _diagnose_steps(run: Run, thresholds: AttributionThresholds) -> Verdict:
    """Diagnose the measured steps of a run."""
    split = measure_phase_split(run.ranks)
    matrix = build_phase_matrix(run.ranks)
    shares = compute_shares(matrix, split)
    attributor = Attributor(run, split, thresholds)
    attribution = attributor.attribute(shares)
    starved_rank = find_starved_rank(run.ranks)
    inputs = CauseInputs(
        run=run,
        shares=shares,
        split=split,
        starved_rank=starved_rank,
        pipeline=Pipeline.measure(run, starved_rank),
    )
    finding = find_cause(inputs, attribution)
    contributing = find_contributing_causes(
        inputs, finding, attribution, attributor.attribute_all(shares)
    )
    step_count = sum(int(rank.steps.measured().sum()) for rank in run.ranks)
    stability = attributor.estimate_stability(matrix, attribution, step_count)
    accuracy = measured.estimate_accuracy(finding.cause, finding.evidence_kind)
    phases = measure_phase_shares(matrix)
    what_if, facts = WhatIf(inputs), JobFacts.of(inputs)
    share_of = name_denominator(attribution, shares)
    outside = split.core_waits.outside
    bars = list_bars(
        phases, {phase: phases[phase] * ratio for phase, ratio in outside.items()}, share_of
    )
    verdict = Verdict(
        suspect=attribution.suspect,
        cause=finding.cause,
        share_ratio=attribution.share,
        share_of=share_of,
        confidence_ratio=round(stability * finding.certainty * accuracy, 3),
        evidence_kind=finding.evidence_kind,
        headline=_begin_with_loss(
            run,
            write_headline(attribution, finding, _measure_model(shares, split, share_of))
            + describe_load(attribution, contributing),
        ),
        share_basis=explain_share(
            attribution, shares, {bar.phase: bar.share_ratio for bar in bars}
        ),
        stages=finding.stages,
        evidence=[
            describe_step_time({bar.phase: bar.share_ratio for bar in bars}, "phase"),
            *finding.evidence,
        ],
        ruled_out=_rule_out(run, attribution, shares, phases, attributor, contributing),
        suspects=[
            SuspectShare(suspect=suspect, share_ratio=share, share_of=shares.share_of)
            for suspect, share in shares.suspects.items()
        ],
        also=contributing,
        fixes=measured.attach_outcomes(
            list_fixes(finding, contributing, what_if, facts), measured.read_tried_changes(run)
        ),
        notes=[
            *_list_notes(run, attribution, split, shares),
            *records.explain_inference(run),
            *records.explain_guessed_rounds(run, facts),
            *records.list_slow_settings(run, shares, facts),
            *list_even_changes(finding, what_if, facts),
        ],
        refused=list_refusals(what_if, facts, attributor.excuse_overhead(shares)),
        targets=measured.list_targets(attribution.suspect, uses_gpu=not facts.is_cpu_job),
        step_count=step_count,
        mean_step_ns=run.mean_step_ns,
        bases_ns=inputs.bases_ns,
        phases=phases,
        bars=bars,
        bars_basis=explain_hatching(bars, share_of),
    )
    return records.abstain_from_training(verdict) if shares.is_undivided else verdict


def _measure_model(shares: Shares, split: PhaseSplit, share_of: str) -> float:
    """Measure the model's share of a denominator."""
    share = shares.suspects["model"]
    if share_of == shares.share_of:
        return share
    share *= 1 - shares.without_core
    return share * (1 - split.evaluation) if share_of == LOOP_SHARE else share


def _begin_with_loss(run: Run, headline: str) -> str:
    """Begin a headline with the reason for which records are missing."""
    loss = records.explain_loss(run)
    return headline if loss is None else f"{loss[0].upper()}{loss[1:]}. {headline}"


def _find_obstacle(run: Run, thresholds: AttributionThresholds) -> str | None:
    """Find the reason why there can be no verdict; None where there can be one."""
    ranks = run.ranks
    if not ranks:
        return _explain_missing_steps(run)
    if records.count_dropped(run) > thresholds.max_dropped_ratio * run.reader.row_count("spans"):
        return records.explain_drops(run)
    step_count = min(len(rank.steps) for rank in ranks)
    measured_count = min(int(rank.steps.measured().sum()) for rank in ranks)
    if step_count < thresholds.min_steps or not measured_count:
        has_died = job_state(run.reader.statuses().values()) is schema.JobState.FAILED
        advice = "" if run.is_imported or has_died else "; let the job run longer"
        return (
            f"{quantities.count_of(step_count, 'complete step')} recorded, a verdict needs "
            f"{thresholds.min_steps}{advice}"
        )
    measure_ranks(run, RANK_FIGURES)
    unknown_times = [_explain_unknown_time(rank) for rank in ranks]
    if all(unknown_times):
        return unknown_times[0]
    for rank in ranks:
        is_measured = rank.steps.measured()
        total_ns = rank.steps.wall_ns[is_measured].sum()
        if rank.steps.phase_ns["other"][is_measured].sum() < -0.02 * total_ns:
            return f"the phases of {rank.name} take longer than its steps"
    return None


def _explain_unknown_time(rank: Rank) -> str | None:
    """Explain why the time outside the recorded phases of a rank may be anything."""
    return analysis.explain_unknown_time(
        {phase: int(times.sum()) for phase, times in rank.steps.phase_ns.items()},
        has_samples=rank.host_work is not None,
        is_imported=rank.run.is_imported,
    )


def _explain_missing_steps(run: Run) -> str:
    statuses = run.reader.statuses().values()
    failures = [status.reason for status in statuses if status.state is schema.JobState.FAILED]
    failure = next((reason for reason in failures if reason is not None), None)
    processes = [process for process in run.processes if process.role == "main"]
    reason = records.explain_loss(run)
    if reason is None and not processes:
        reason = records.explain_unrecorded(run)
    if reason is not None:
        suffix = f"; {failure}" if failure is not None else ""
        return f"no training step was recorded: {reason}{suffix}"
    if explain_recovery(run.reader) is not None:
        return "no training step is in the run: its last records are still in the spool"
    if find_recording_end(run) is not None:
        return (
            "no training step was recorded before the recording of the processes ended; raise "
            "--cpu-profiling-duration"
        )
    if failure is not None:
        return f"no training step was recorded before {failure}"
    if not processes and (run.is_imported or run.reader.info.sources):
        return "the imported files contain no event of a training process"
    if not statuses or (not processes and not has_ended(statuses)):
        return "not yet: no process of the job has recorded anything so far"
    if not processes and "preparing" in read_job_time(run).functions:
        return (
            "no training step was recorded: nothing trained with PyTorch, TensorFlow, Keras, JAX "
            "or XGBoost; mark the steps of another library's loop with stepscope.step()"
        )
    if not processes:
        return (
            "no process of the job recorded anything; no Python process that imports PyTorch, "
            "TensorFlow, Keras, JAX or XGBoost trained or used a stepscope annotation, or none "
            "could write to the spool"
        )
    notes = [note for process in processes for note in process.notes]
    if notes:
        return f"no training step was recorded; {notes[0]}"
    if run.is_imported:
        return "the imported files contain no training step"
    return (
        "no training step was recorded: no optimizer stepped and no backward pass ran; mark the "
        "steps of another kind of loop with stepscope.step()"
    )


def _abstain(run: Run, obstacle: str) -> Verdict:
    step_count = sum(len(rank.steps) for rank in run.ranks)
    loss = records.explain_loss(run)
    if loss is not None and loss not in obstacle:
        obstacle = f"{loss}; {obstacle}"
    notes = [note for note in _list_loss_notes(run) if note[1:].rstrip(".") not in obstacle]
    return make_abstention(obstacle, notes, step_count=step_count)


def _rule_out(  # noqa: PLR0917
    run: Run,
    attribution: Attribution,
    shares: Shares,
    phases: Mapping[str, float],
    attributor: Attributor,
    contributing: Sequence[ContributingCause],
) -> list[RuledOut]:
    """Give the reason against each suspect that takes too little of the step.

    That is neither the suspect of the verdict, nor that of a contributing cause, nor the largest
    part of the step.
    """
    limits = attributor.thresholds.by_suspect
    reasons: dict[Suspect, str] = {
        "data_pipeline": "waiting for batches, copies to the device and data preparation take",
        "model": _describe_model(run, shares),
        "communication": "exposed communication without waiting for slower ranks takes"
        if shares.rank_wait
        else "exposed communication takes",
        "framework_overhead": "time between phases, checkpoints and dispatch take",
    }
    causes = {attribution.suspect, max(shares.suspects, key=lambda name: shares.suspects[name])}
    causes |= {
        cause.suspect
        for cause in contributing
        if cause.share_of == shares.share_of and cause.cause not in CORE_SHORTAGES
    }
    causes |= {name for name in limits if attributor.is_exceeded(name, shares)}
    for name, limit in limits.items():
        share = rules.percent_beside(shares.suspects[name], 100 * limit, 0)
        if shares.suspects[name] >= limit:
            reasons[name] += f" {share} of step time; {attributor.excuse_overhead(shares)}."
        else:
            reasons[name] += f" {share} of step time (threshold {percent(limit)})."
            explanation = explain_smaller_share(name, shares, phases)
            reasons[name] += f" {explanation}" if explanation else ""
    waiting = sum(shares.rank_wait.values())
    if waiting >= MIN_NOTED_WAITING:
        reasons["communication"] += (
            f" Ranks wait for the slowest of them in {percent(waiting)} of step time, which counts "
            "for the work of the slowest."
        )
    if has_replicas(run) and not shares.suspects["communication"]:
        reasons["communication"] = f"{REPLICAS}."
    elif len(run.ranks) == 1 and not shares.suspects["communication"]:
        reasons["communication"] = "not applicable (single rank, no collectives)."
    return [
        RuledOut(
            suspect=name,
            share_ratio=shares.suspects[name],
            share_of=shares.share_of,
            why=reasons[name],
        )
        for name in SUSPECTS
        if name not in causes
    ]


def _describe_model(run: Run, shares: Shares) -> str:
    share, profile = percent(shares.suspects["model"]), run.compute_profile
    if profile is None:
        return f"compute takes {share} of step time."
    return (
        f"sizeable operators take {share} of step time; half of operator time is in operators of "
        f"at least {duration(profile.median_work_ns)}."
    )


def _list_notes(run: Run, attribution: Attribution, split: PhaseSplit, shares: Shares) -> list[str]:
    notes = [*_list_loss_notes(run), *(switch.text for switch in list_debug_switches(run))]
    contention = run.contention
    if (
        contention is not None
        and contention.throttled_ratio >= MIN_NOTED_THROTTLING
        and attribution.cause != "cpu_limit"
    ):
        notes.append(
            "The CPU quota of the job was exhausted for "
            f"{percent(contention.throttled_ratio)} of the time, which slows down all of its work "
            "on the host."
        )
    if shares.delayed_by_others >= MIN_NOTED_DELAY and attribution.cause not in CORE_SHORTAGES:
        notes.append(
            f"For {percent(shares.delayed_by_others)} of step time a batch was ready, but "
            "processes other than the workers had the cores; this time counts for no suspect. "
            f"{describe_outside_load(run)}"
        )
    if shares.without_core > 0 and attribution.cause not in CORE_SHORTAGES:
        is_throttled = contention is not None and contention.throttled_ratio >= MIN_NOTED_THROTTLING
        notes.append(
            f"{percent(shares.without_core)} of step time is time without a core that the job does "
            "not cause. It counts for no suspect, and shares are of the rest of the step."
            + ("" if is_throttled else f" {describe_outside_load(run)}")
        )
    notes += records.explain_recording(run)
    if is_boosting(run, shares):
        notes.append(BOOSTING_NOTE)
    elif shares.uses_jax:
        notes += records.explain_inferred_steps(run)
    elif not split.has_window and attribution.suspect in NEED_A_WINDOW:
        notes.append(
            "No profiler window was recorded: overhead inside the compute phases cannot be "
            "separated from model compute."
        )
    return notes


def _list_loss_notes(run: Run) -> list[str]:
    notes = [*run.reader.damage, *records.list_losses(run), *find_repeated_ranks(run)]
    if restarts := explain_incarnations(run):
        notes.append(restarts)
    notes += _list_process_notes(run)
    for status in run.reader.statuses().values():
        notes.extend(status.notes)
    return [*notes, *_list_limitations(run)]


def _list_limitations(run: Run) -> list[str]:
    """List the options that limited the recording, with what they leave unknown."""
    sentences = (explain_recording_end(run), explain_rounding(run))
    return [sentence for sentence in sentences if sentence is not None]


def _list_process_notes(run: Run) -> list[str]:
    """List the notes of the processes, each note once; with nodes where there are several."""
    has_nodes = len({process.node for process in run.processes}) > 1
    names: dict[str, list[str]] = {}
    for process in run.processes:
        name = f"{process.pid} on {process.node}" if has_nodes else str(process.pid)
        for note in process.notes:
            names.setdefault(note, []).append(name)
    return [
        f"{'Process' if len(processes) == 1 else 'Processes'} {', '.join(processes)}: {note}"
        for note, processes in names.items()
    ]
