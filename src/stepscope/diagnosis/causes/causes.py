"""Cause within a suspect, and contributing causes that are worth a fix."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope import analysis, quantities, schema
from stepscope.diagnosis import verdict
from stepscope.diagnosis.causes import overhead_causes
from stepscope.diagnosis.causes.attribution import (
    CORE_SHORTAGES,
    Attribution,
    is_double_precision,
    name_denominator,
)
from stepscope.diagnosis.causes.batch_size import find_small_batch_cause
from stepscope.diagnosis.causes.cause import (
    CONTRIBUTING_RATIO,
    EVEN_ODDS,
    CauseFinding,
    CauseInputs,
    limit_contributing,
)
from stepscope.diagnosis.causes.core_shortage import find_core_shortage_cause
from stepscope.diagnosis.causes.data_causes import STAGE_CAUSES, find_data_pipeline_cause
from stepscope.diagnosis.causes.padding import find_padding_cause
from stepscope.diagnosis.causes.rank_causes import find_communication_cause, find_slow_rank_cause
from stepscope.diagnosis.shares.debug_switches import list_debug_switches
from stepscope.quantities import count_of

SLOW_RANK_RATIO = 0.5
"""One slow rank is the cause when its excess over the others, and their waiting for it, is more
than this share of its suspect's share."""
MIN_OPTIMIZER_RATIO = 0.2
"""An optimizer with a smaller share of the step is not mentioned as a contributing cause."""
MIN_UNTRAINED_RATIO = 0.2
"""Passes of a module that is not trained are not mentioned with a smaller share of the step."""
MIN_EVALUATION_RATIO = 0.1
"""Evaluation with a smaller share of step and evaluation time is not mentioned either."""


def find_cause(inputs: CauseInputs, attribution: Attribution) -> CauseFinding:
    """Find the cause within the suspect of an attribution."""
    suspect, share = attribution.suspect, attribution.share
    if attribution.cause == "evaluation":
        return overhead_causes.find_evaluation_cause(inputs)
    if attribution.cause == "small_batch":
        finding = find_small_batch_cause(inputs)
        overhead_causes.blame_debug_switch(inputs, finding, suspect)
        return finding
    if attribution.cause == "padding":
        return find_padding_cause(inputs)
    if attribution.cause in CORE_SHORTAGES:
        return find_core_shortage_cause(inputs, attribution.cause, share)
    rank_wait = inputs.shares.rank_wait.get(suspect, 0.0)
    if attribution.cause == "slow_rank" or _is_one_rank_slow(inputs, rank_wait, share):
        return _find_slow_rank_cause(inputs, suspect)
    match suspect:
        case "data_pipeline":
            return find_data_pipeline_cause(inputs)
        case "communication":
            finding = find_communication_cause(inputs)
            overhead_causes.blame_debug_switch(inputs, finding, suspect)
            return finding
        case "framework_overhead":
            return overhead_causes.find_overhead_cause(inputs)
        case "model":
            return _doubt_model(inputs, find_model_cause(inputs))
    model = find_model_cause(inputs)
    healthy = CauseFinding(
        cause="none",
        stages=model.stages,
        evidence=model.evidence,
        evidence_kind=model.evidence_kind,
    )
    return _doubt_model(inputs, healthy)


def _doubt_model(inputs: CauseInputs, finding: CauseFinding) -> CauseFinding:
    """Lower the certainty where a debug switch may have much of the model's time."""
    if any(switch.slows == "model" for switch in list_debug_switches(inputs.run)):
        finding.certainty *= EVEN_ODDS
    return finding


def _is_one_rank_slow(inputs: CauseInputs, rank_wait: float, share: float) -> bool:
    """Return whether ranks that wait for a slow one explain most of a suspect's share."""
    return inputs.split.rank_waits.add_excess(rank_wait) > SLOW_RANK_RATIO * share


def find_contributing_causes(
    inputs: CauseInputs,
    main: CauseFinding,
    attribution: Attribution,
    attributions: Sequence[Attribution],
) -> list[verdict.ContributingCause]:
    """Find the other causes that take enough of the step to be worth a fix, largest first.

    There are none beside a core shortage of which no delays were recorded, because then time
    without a core is part of every phase, and only evaluation and the load of other processes in a
    healthy job: they are in no share of the step.

    Args:
        main: the cause of the verdict.
        attribution: the attribution of the verdict.
        attributions: all attributions above their thresholds.
    """
    is_recorded = inputs.split.core_waits.is_recorded
    if attribution.cause in CORE_SHORTAGES and not is_recorded:
        return []
    causes = [] if attribution.cause == "evaluation" else _find_contributing_evaluation(inputs)
    for candidate in attributions:
        if candidate.cause not in {None, "evaluation"} and candidate != attribution:
            causes.append(_convert(inputs, candidate))
    if attribution.suspect == "healthy":
        return causes
    share_of = inputs.shares.share_of
    causes += [
        verdict.ContributingCause(
            suspect=attribution.suspect
            if cause in verdict.CAUSES[attribution.suspect]
            else "model",
            cause=cause,
            share_ratio=share,
            share_of=share_of,
            text=text,
        )
        for cause, share, text in main.contributing
    ]
    if attribution.suspect != "framework_overhead" or attribution.cause is not None:
        causes += _list_contributing_overhead(inputs, main, attributions)
    shares = inputs.shares
    optimizer = shares.phases["optimizer"]
    is_inside_optimizer = bool(main.stages) and main.stages[0].name.endswith("optimizer")
    if shares.has_passes and (optimizer >= MIN_OPTIMIZER_RATIO or is_inside_optimizer):
        text = f"The optimizer takes {quantities.percent(optimizer)} of step time."
        causes.append(
            verdict.ContributingCause(
                suspect="model",
                cause="optimizer",
                share_ratio=optimizer,
                share_of=share_of,
                text=text,
            )
        )
    min_share = limit_contributing(attribution.share)
    for suspect in ("data_pipeline", "communication"):
        share = shares.suspects[suspect]
        if suspect != attribution.suspect and share >= min_share:
            causes.append(_convert(inputs, Attribution(suspect=suspect, share=share)))
    main_key = _identify(attribution.suspect, main.cause)
    return _select_largest(inputs, causes, main_key, min_share)


def _list_contributing_overhead(
    inputs: CauseInputs, main: CauseFinding, attributions: Sequence[Attribution]
) -> list[verdict.ContributingCause]:
    """List the causes of overhead, or where overhead is above its threshold and none is found, that
    it is unknown."""
    causes = [
        verdict.ContributingCause(
            suspect="framework_overhead",
            cause=cause,
            share_ratio=share,
            share_of=inputs.shares.share_of,
            text=text,
        )
        for cause, share, text in overhead_causes.list_overhead_causes(inputs)
        if not main.fixed_line or f"({main.fixed_line})" not in text
    ]
    if causes or main.fixed_line:
        return causes
    return [
        _convert(inputs, candidate)
        for candidate in attributions
        if candidate.suspect == "framework_overhead" and candidate.cause is None
    ]


def _select_largest(
    inputs: CauseInputs, causes: list[verdict.ContributingCause], main_key: str, min_share: float
) -> list[verdict.ContributingCause]:
    """Select the largest entry of each cause other than the main one, largest first."""
    bases_ns, step_ns = inputs.bases_ns, inputs.run.mean_step_ns
    causes.sort(key=lambda cause: -cause.share_ratio * bases_ns.get(cause.share_of, step_ns))
    selected: dict[str, verdict.ContributingCause | None] = {main_key: None}
    for cause in causes:
        # What the main cause leaves is known of shares of the step alone, without lack of cores.
        is_of_step = cause.share_of == inputs.shares.share_of and cause.cause not in CORE_SHORTAGES
        if cause.share_ratio >= (min_share if is_of_step else CONTRIBUTING_RATIO):
            selected.setdefault(_identify(cause.suspect, cause.cause), cause)
    return [cause for cause in selected.values() if cause is not None]


def _identify(suspect: verdict.Suspect, cause: str) -> str:
    """Identify a cause: unknown causes of two suspects are two."""
    return suspect if cause == verdict.UNKNOWN else cause


def _find_contributing_evaluation(inputs: CauseInputs) -> list[verdict.ContributingCause]:
    share = inputs.split.evaluation
    if share < MIN_EVALUATION_RATIO:
        return []
    (evidence,) = overhead_causes.find_evaluation_cause(inputs).evidence
    text = (
        f"Evaluation takes {quantities.percent(share)} of step and evaluation time: {evidence.text}"
    )
    return [
        verdict.ContributingCause(
            suspect="framework_overhead",
            cause="evaluation",
            share_ratio=share,
            share_of=verdict.LOOP_SHARE,
            text=text,
        )
    ]


def _convert(inputs: CauseInputs, attribution: Attribution) -> verdict.ContributingCause:
    """Convert an attribution to a contributing cause."""
    finding, share = find_cause(inputs, attribution), attribution.share
    if finding.cause in STAGE_CAUSES.values() and finding.stages:
        share = finding.stages[0].share_ratio  # the suspect has more stages
    default = f"It takes {quantities.percent(share)} of step time."
    evidence = finding.evidence[0].text if finding.evidence else default
    return verdict.ContributingCause(
        suspect=attribution.suspect,
        cause=finding.cause,
        share_ratio=share,
        share_of=name_denominator(attribution, inputs.shares),
        text=finding.reason or finding.missing or evidence,
    )


def _find_slow_rank_cause(inputs: CauseInputs, suspect: verdict.Suspect) -> CauseFinding:
    """Find the cause of a slow rank; the reason for its late batches contributes."""
    finding = find_slow_rank_cause(inputs, suspect)
    if suspect == "data_pipeline":
        data_finding = find_data_pipeline_cause(inputs)
        finding.evidence += data_finding.evidence
        share = inputs.shares.suspects[suspect]
        reason = f"On {inputs.starved_rank.name}, which the other ranks wait for."
        finding.contributing = [(data_finding.cause, share, reason), *data_finding.contributing]
    return finding


def _describe_untrained_passes(inputs: CauseInputs) -> list[verdict.Evidence]:
    """Describe the module that predicts on batches of training and is not trained, where that takes
    much of the step."""
    rank = inputs.run.ranks[0]
    if rank.steps.clock == "device":  # the host's passes are not those of the device
        return []
    passes = analysis.measure_untrained_passes(rank.spans, rank.steps)
    name = max(passes, key=lambda name: passes[name], default="")
    share = passes.get(name, 0.0) * inputs.shares.phases["forward"]
    if share < MIN_UNTRAINED_RATIO:
        return []
    text = (
        f"{name}, which is not trained, takes {quantities.percent(share)} of step time: for inputs "
        "that are the same in every epoch, compute its outputs once and store them."
    )
    return [verdict.Evidence(text=text, value=share, unit="ratio", source="steps")]


def find_model_cause(inputs: CauseInputs) -> CauseFinding:
    """Find the largest part of the model's own work."""
    ranks, phases, work = inputs.run.ranks, inputs.shares.phases, inputs.shares.compute_work
    passes = phases["forward"] + phases["loss"] + phases["backward"]
    cause = "optimizer" if phases["optimizer"] > passes > 0 else "compute"
    stages = [
        verdict.Stage(name=name, detail="", share_ratio=share)
        for name, share in sorted(work.items(), key=lambda item: -item[1])
        if share >= 0.01
    ]
    evidence = _describe_untrained_passes(inputs)
    if cause == "compute" and is_double_precision(inputs.run):
        text = "The model's parameters are float64; float32 takes at most half the time."
        evidence.append(verdict.Evidence(text=text, source="steps"))
    profile, reason = inputs.run.compute_profile, None
    if profile is not None:
        operators = overhead_causes.describe_operators(profile)
        evidence += operators
        reason = operators[-1].text
    for optimizer in ranks[0].facts(schema.OptimizerFact)[:1]:
        evidence.append(
            verdict.Evidence(
                text=f"{optimizer.name} updates {quantities.count(optimizer.parameter_count)} "
                f"parameters in {count_of(optimizer.tensor_count, 'tensor')} in every step.",
                value=optimizer.parameter_count,
                unit="count",
                source="steps",
            )
        )
    kind: verdict.EvidenceKind = "timed" if profile is None else "profiled"
    return CauseFinding(
        cause=cause,
        reason=reason if cause == "compute" else None,
        stages=stages,
        evidence=evidence,
        evidence_kind=kind,
    )
