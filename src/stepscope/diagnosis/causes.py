"""Which cause within a suspect, and what is worth a fix beside it."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.diagnosis import overhead_causes
from stepscope.diagnosis.attribution import Accusation, in_double_precision
from stepscope.diagnosis.cause import CONTRIBUTING_RATIO, Case, Finding
from stepscope.diagnosis.data_causes import data_pipeline_cause
from stepscope.diagnosis.rank_causes import communication_cause, slow_rank
from stepscope.diagnosis.verdict import CAUSES, Evidence, OtherCause, Stage, Suspect

LACK_OF_CORES = frozenset(["cpu_contention", "cpu_limit"])
SLOW_RANK_RATIO = 0.5
"""One slow rank is the cause when what it does beyond the others, and their waiting for that, is
more than this of what its suspect owns."""
MENTIONED_OPTIMIZER = 0.2
"""Of the step; an optimizer that takes less is left unsaid where something else is accused."""


def find_cause(case: Case, accused: Accusation) -> Finding:
    """The cause of what is accused."""
    if accused.cause == "evaluation":
        return overhead_causes.evaluation(case)
    if accused.cause in LACK_OF_CORES:
        return overhead_causes.lost_cores(case, accused.cause, accused.share)
    held_up = case.shares.held_up.get(accused.suspect, 0.0)
    if accused.cause == "slow_rank" or _one_is_slow(case, held_up, accused.share):
        return _slow_rank(case, accused.suspect)
    match accused.suspect:
        case "data_pipeline":
            return data_pipeline_cause(case)
        case "communication":
            return communication_cause(case)
        case "framework_overhead":
            return overhead_causes.overhead_cause(case)
        case "model":
            return model_cause(case)
    return Finding(cause="none", stages=model_cause(case).stages)


def _one_is_slow(case: Case, held_up: float, share: float) -> bool:
    """The mean of R ranks has a Rth of what the slow one does beyond the others, and their waiting
    for that, which is (R - 1) / R of it."""
    count = len(case.run.ranks)
    return held_up * count / max(1, count - 1) > SLOW_RANK_RATIO * share


def other_causes(
    case: Case, main: Finding, accused: Accusation, accusations: Sequence[Accusation]
) -> list[OtherCause]:
    """What else takes enough of the step to be worth a fix, the largest first.

    Nothing is named beside a lack of cores, because time without one is in every part of the step,
    and nothing where there is nothing to accuse.
    """
    if accused.cause in LACK_OF_CORES or accused.suspect == "healthy":
        return []
    found = [
        OtherCause(
            suspect=accused.suspect if cause in CAUSES[accused.suspect] else "model",
            cause=cause,
            share_ratio=share,
            text=text,
        )
        for cause, share, text in main.contributing
    ]
    for other in accusations:
        if other.cause is not None and other != accused:
            finding = find_cause(case, other)
            found.append(_other(other.suspect, finding, other.share))
    shares = case.shares
    if accused.suspect != "framework_overhead" or accused.cause is not None:
        found += [
            OtherCause(suspect="framework_overhead", cause=cause, share_ratio=share, text=text)
            for cause, share, text in overhead_causes.overhead_causes(case)
        ]
    optimizer = shares.phases["optimizer"]
    within_optimizer = bool(main.stages) and main.stages[0].name.endswith("optimizer")
    if optimizer >= MENTIONED_OPTIMIZER or within_optimizer:
        text = f"the optimizer takes {optimizer:.0%} of the step"
        found.append(
            OtherCause(suspect="model", cause="optimizer", share_ratio=optimizer, text=text)
        )
    for suspect in ("data_pipeline", "communication"):
        if suspect != accused.suspect and shares.suspects[suspect] >= CONTRIBUTING_RATIO:
            share = shares.suspects[suspect]
            finding = find_cause(case, Accusation(suspect=suspect, share=share))
            found.append(_other(suspect, finding, share))
    named = {main.cause}
    least = CONTRIBUTING_RATIO
    if accused.cause == "evaluation":
        least /= 1 - accused.share  # what is saved of a step is saved of little
    kept = []
    for each in sorted(found, key=lambda each: -each.share_ratio):
        if each.cause not in named and each.share_ratio >= least:
            named.add(each.cause)
            kept.append(each)
    return kept


def _other(suspect: Suspect, finding: Finding, share: float) -> OtherCause:
    first = finding.evidence[0].text if finding.evidence else f"it owns {share:.0%} of the step"
    return OtherCause(
        suspect=suspect, cause=finding.cause, share_ratio=share, text=finding.why or first
    )


def _slow_rank(case: Case, suspect: Suspect) -> Finding:
    """A slow rank; why it waits for its batches is worth a fix too."""
    finding = slow_rank(case, suspect)
    if suspect == "data_pipeline":
        its = data_pipeline_cause(case)
        finding.evidence += its.evidence
        why = f"on {case.fed.name}, the one that the others wait for"
        finding.contributing = [(its.cause, case.shares.suspects[suspect], why), *its.contributing]
    return finding


def model_cause(case: Case) -> Finding:
    """Which part of the model's own work is the largest."""
    ranks, phases = case.run.ranks, case.shares.phases
    passes = phases["forward"] + phases["loss"] + phases["backward"]
    cause = "optimizer" if phases["optimizer"] > passes else "compute"
    stages = [
        Stage(name=name, detail="", share_ratio=phases[name])
        for name in sorted(("forward", "loss", "backward", "optimizer"), key=lambda n: -phases[n])
        if phases[name] >= 0.01
    ]
    evidence = []
    if cause == "compute" and in_double_precision(case.run):
        text = "the model's parameters are float64: float32 takes half as long or less"
        evidence.append(Evidence(text=text, source="steps"))
    profile = case.run.compute_profile
    if profile is not None:
        evidence += overhead_causes.operator_evidence(profile)
    for optimizer in (ranks[0].facts("optimizer") or [])[:1]:
        evidence.append(
            Evidence(
                text=f"{optimizer['name']} updates {optimizer['parameter_count']:,} parameters in "
                f"{optimizer['tensor_count']} tensors every step",
                value=optimizer["parameter_count"],
                unit="count",
                source="steps",
            )
        )
    return Finding(cause=cause, stages=stages, evidence=evidence)
