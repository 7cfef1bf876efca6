"""First sentence and bars of a verdict, and why a share differs from the phases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stepscope import quantities
from stepscope.diagnosis import verdict
from stepscope.diagnosis.causes.attribution import Attribution
from stepscope.diagnosis.causes.cause import CauseFinding
from stepscope.diagnosis.shares.shares import Shares
from stepscope.diagnosis.verdict import SUSPECT_NAMES


def write_headline(attribution: Attribution, finding: CauseFinding, model_share: float) -> str:
    """Write the first sentences of a verdict: the model first, where it has more of the time than
    the bottleneck.

    Args:
        attribution: the bottleneck.
        finding: its cause.
        model_share: the model's share, of the same denominator as the bottleneck's.
    """
    sentence = _write_bottleneck(attribution, finding)
    is_smaller = attribution.suspect in verdict.SUSPECTS and attribution.suspect != "model"
    if not is_smaller or model_share <= attribution.share:
        return sentence
    unit = "step and evaluation time" if finding.cause == "evaluation" else "step time"
    rest = (
        sentence
        if attribution.cause == "small_batch"
        else sentence.replace("Bottleneck: ", "Bottleneck of the rest: ", 1)
    )
    return f"Model compute: {quantities.percent(model_share)} of {unit}. {rest}"


def describe_load(
    attribution: Attribution, contributing: Sequence[verdict.ContributingCause]
) -> str:
    """Describe the load of other processes for a headline that says that nothing else is slow; ''
    without such a load."""
    load = next((cause for cause in contributing if cause.cause == "cpu_contention"), None)
    if load is None or attribution.suspect != "healthy":
        return ""
    return f" The step waits for a core {quantities.percent(load.share_ratio)} of its time."


def _write_bottleneck(attribution: Attribution, finding: CauseFinding) -> str:
    share = quantities.percent(attribution.share)
    if attribution.suspect == "healthy":
        return (
            f"No bottleneck found: {share} of step time is model compute; no other cause is large "
            "enough."
        )
    if attribution.cause == "small_batch":
        return (
            f"Bottleneck: {SUSPECT_NAMES[attribution.suspect]}; {share} of step time does not grow "
            f"with the batch. Cause: {verdict.name_cause(finding.cause)}."
        )
    unit = "step and evaluation time" if finding.cause == "evaluation" else "step time"
    suspect = f"Bottleneck: {SUSPECT_NAMES[attribution.suspect]}, {share} of {unit}."
    if finding.site:
        cause = (
            ""
            if finding.cause == verdict.UNKNOWN
            else f" Cause: {verdict.name_cause(finding.cause)}."
        )
        return f"{suspect}{cause} {finding.site}"
    if finding.cause == verdict.UNKNOWN:
        return f"{suspect} Cause: not found. {finding.missing}"
    return f"{suspect} Cause: {finding.words or verdict.name_cause(finding.cause)}."


PROBABLE_RATIO = 0.5
"""Confidence below which the headline says that the verdict is only probable."""
_HEDGES = (
    ("Bottleneck: ", "Bottleneck: probably "),
    ("Bottleneck of the rest: ", "Bottleneck of the rest: probably "),
    ("No bottleneck found: ", "Probably no bottleneck: "),
    ("Attached from outside: ", "Attached from outside: probably "),
)


def hedge(headline: str, confidence_ratio: float) -> str:
    """Say "probably" in the headline of an answer with little confidence."""
    if confidence_ratio >= PROBABLE_RATIO:
        return headline
    for certain, probable in _HEDGES:
        headline = headline.replace(certain, probable, 1)
    return headline


_WAITING = "waiting for the slowest rank"
_PHASES: Mapping[str, str] = {
    "waiting for batches": "data_wait",
    "copies to the device": "h2d",
    "collectives": "communication",
    "Python between the phases": "other",
    "garbage collection": "garbage_collection",
    "calls of compiled functions": "dispatch",
}
"""Phase of a part of another name."""
_OVERHEAD_NAMES = {
    "between_phases": "Python between the phases",
    "framework_calls": "calls of the framework between the phases",
    "compiled_calls": "calls of compiled functions",
    "inside_compute": "dispatch inside the compute phases",
    "slow_rank": _WAITING,
}


def explain_share(attribution: Attribution, shares: Shares, phases: Mapping[str, float]) -> str:
    """Name the parts of the share of a suspect in one sentence.

    Empty where the share is that of one phase, and where the share is not a sum of parts of the
    step, as that of evaluation or of time without a core.

    Args:
        attribution: the suspect and its share.
        shares: shares that the suspect's share was taken from.
        phases: shares of the phases as the verdict draws them.
    """
    if attribution.cause is not None:
        return ""
    suspect = attribution.suspect if attribution.suspect != "healthy" else "model"
    parts = {
        name: share
        for name, share in _list_parts(suspect, shares).items()
        if share >= verdict.MIN_LISTED_RATIO
    }
    total = quantities.percent(attribution.share)
    if [quantities.percent(phases.get(_PHASES.get(name, name), 0.0)) for name in parts] == [total]:
        return ""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    names = ", ".join(f"{name} {quantities.percent(share)}" for name, share in ordered)
    if len(parts) == 1:
        names = ordered[0][0]
    return f"The {total} are {names}."


def explain_smaller_share(
    suspect: verdict.Suspect, shares: Shares, phases: Mapping[str, float]
) -> str:
    """Explain in one sentence that a suspect has less than the phase it is known by; '' where it
    has all of it.

    Args:
        suspect: a suspect that is not the bottleneck.
        shares: its share.
        phases: shares of the phases as measured.
    """
    name = _MAIN_PHASES.get(suspect, "")
    phase = phases.get(name, 0.0)
    if phase - shares.suspects[suspect] < verdict.MIN_LISTED_RATIO:
        return ""
    reasons = []
    if suspect == "framework_overhead" and shares.inline_data >= verdict.MIN_LISTED_RATIO:
        reasons.append(
            "data preparation by the training thread and its waits for batches count for the "
            "data pipeline"
        )
    if (
        shares.without_core >= verdict.MIN_LISTED_RATIO
        or shares.delayed_by_others >= verdict.MIN_LISTED_RATIO
    ):
        reasons.append("time without a core that the job does not cause counts for no suspect")
    if not reasons:
        return ""
    return (
        f"The phase {name} has {quantities.percent(phase)} of step time as measured: "
        f"{', and '.join(reasons)}."
    )


_MAIN_PHASES: Mapping[verdict.Suspect, str] = {
    "data_pipeline": "data_wait",
    "framework_overhead": "other",
}


def _list_parts(suspect: verdict.Suspect, shares: Shares) -> dict[str, float]:
    """List the terms of `Shares.suspects`."""
    waiting = {_WAITING: shares.rank_wait.get(suspect, 0.0)}
    match suspect:
        case "data_pipeline":
            return {
                "waiting for batches": shares.phases["data_wait"] - shares.delayed_by_others,
                "copies to the device": shares.phases["h2d"],
                "data preparation and waits for batches in the training thread": shares.inline_data,
                "training thread without a core because of workers": shares.worker_contention,
            } | waiting
        case "communication":
            return {
                "collectives": shares.collectives,
                "exposed gradient exchange": shares.exchange,
            } | waiting
        case "framework_overhead":
            return {
                _OVERHEAD_NAMES.get(name, name.replace("_", " ")): share
                for name, share in shares.overhead_parts.items()
            }
    return shares.compute_work | waiting


def list_bars(
    phases: Mapping[str, float],
    without_core: Mapping[str, float] | None = None,
    share_of: str = verdict.STEP_SHARE,
) -> list[verdict.PhaseBar]:
    """List the bars of phases.

    Args:
        phases: shares of step wall time, as measured.
        without_core: shares of step wall time by phase; included in `phases`.
        share_of: denominator of the shares of the verdict.
    """
    waiting = without_core or {}
    is_corrected = share_of == verdict.CORE_SHARE
    base = 1 - sum(waiting.values()) if is_corrected else 1.0
    return [
        verdict.PhaseBar(
            phase=phase,
            share_ratio=(share - is_corrected * waiting.get(phase, 0.0)) / base,
            with_core_ratio=share - waiting.get(phase, 0.0),
            without_core_ratio=waiting.get(phase, 0.0),
        )
        for phase, share in phases.items()
    ]


def explain_hatching(bars: Sequence[verdict.PhaseBar], share_of: str) -> str:
    """Explain the hatched parts of the bars; '' without any."""
    waiting = sum(bar.without_core_ratio for bar in bars)
    if waiting < verdict.MIN_LISTED_RATIO:
        return ""
    suffix = ", part of no share" if share_of == verdict.CORE_SHARE else ""
    return f"Hatched: waiting for a core, {quantities.percent(waiting)} of step wall time{suffix}."


_QUOTES = re.compile(r"\w\(.*\)|[\"`]")
"""Calls and quotations in a sentence, which stay as they are in the source."""
_INFERENCE_WORDS = {
    "training thread": "main thread",
    "training process": "main process",
    "beside the training": "beside the predictions",
    "after the training": "after the predictions",
    "during training": "during the predictions",
    "while training": "while predicting",
    "before training": "before the predictions",
    "train on,": "go on,",
}
"""Words of sentences for a job that only predicts."""


def word_for_inference(answer: verdict.Verdict) -> verdict.Verdict:
    """Word the sentences of a verdict for a job that only predicts."""

    def reword(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reword(item) for key, item in value.items()}
        if isinstance(value, list):
            return [reword(item) for item in value]
        if isinstance(value, str) and not _QUOTES.search(value):
            for word, replacement in _INFERENCE_WORDS.items():
                value = value.replace(word, replacement)
        return value

    return msgspec.convert(reword(msgspec.to_builtins(answer)), verdict.Verdict)
