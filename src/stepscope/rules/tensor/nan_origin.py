"""Origin of the first NaN or infinite number of a training."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

import msgspec
import numpy as np

from stepscope.quantities import count_of, percent
from stepscope.rules.base import NotRecorded, Rule
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import NoParameters
from stepscope.rules.tensor.nan_causes import explain
from stepscope.rules.trigger import Trigger
from stepscope.schema import (
    Finding,
    NanFollower,
    NanOriginFact,
    NanSearchFact,
    ProcessInfo,
    TensorValues,
)

UNSEEN_PHASES = {"exchange", "unknown"}
"""Phases of an origin that another rank may know better."""
_LOSSES = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}
SEARCH_AGAIN = "Run the job with --find-nan, which checks all operators from the start."


class NanOriginDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Origin, and the searches of all processes."""

    process: str | None = None
    """Process with the origin; null if it was not found."""
    origin: NanOriginFact | None = None
    searches: dict[str, list[NanSearchFact]] = {}
    """By process."""


class NanOrigin(Rule[NoParameters]):
    """Finds the operator that produced the first NaN or infinite number.

    ## What it checks
    The result of the search that `--find-nan` of `stepscope run` makes in all steps, and `--on-nan
    find` in the steps after the first loss that is not finite. It ends at the first loss on which
    the script calls `backward()`, gradient that an optimizer uses, or parameter after its step,
    that is not finite, and goes back to the first operator whose result was not finite while its
    inputs were. Infinite constants of masks, and gradients for which a GradScaler skips the step,
    are no origin. The rule fires if there is an origin, or if a loss was not finite and that did
    not recur while the search was on. Datapoints are searched steps; violations are processes.

    ## Why it matters
    NaN spreads to every parameter within one step, so that the place where it shows is seldom the
    place where it comes from.

    ## What to do
    Change the line that the finding names; the finding says how.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "tensors"
    recommendation = SEARCH_AGAIN
    evidence = ("tensors",)
    missing_in_traces = "imported traces do not hold the values of tensors"

    def check(self, inputs: RuleInputs) -> Finding | None:
        searches = {
            process.process: facts
            for process in inputs.processes
            if (facts := _last_of_each(process.facts_of(NanSearchFact)))
        }
        origins = _find_origins(inputs.processes)
        if not searches and not origins:
            raise NotRecorded(
                "the job did not search for NaN",
                advice="run it with `--on-nan find`, or with `--find-nan`",
            )
        step_count = sum(fact.step_count for facts in searches.values() for fact in facts)
        if not origins:
            return self._report_searches(searches, step_count)
        process, origin = origins[0]
        late = [fact for fact in searches.get(process.process, []) if fact.loss is not None]
        finding = self.finding(
            triggered=_find_step(inputs, process, origin.step),
            violations=len(origins),
            datapoints=step_count,
            details=NanOriginDetails(process=process.process, origin=origin, searches=searches),
            sentences=[
                describe_origin(origin, process if len(searches) > 1 else None),
                *map(_describe_late_search, late[-1:]),
            ],
            nodes=[process.node],
            ranks=[process.title],
        )
        is_older = bool(late) and origin.phase == "parameters"
        advice = SEARCH_AGAIN if is_older else explain(origin).advice
        return msgspec.structs.replace(finding, recommendation=advice)

    def _report_searches(
        self, searches: dict[str, list[NanSearchFact]], step_count: int
    ) -> Finding:
        """Report searches without an origin."""
        losses = [fact for facts in searches.values() for fact in facts if fact.loss is not None]
        sentences = [
            f"Step {fact.loss_step}: the loss was {_LOSSES[fact.loss or 'nan']}. Its origin is not "
            f"known: {_describe_futile_search(fact)}."
            for fact in losses
        ]
        if not losses and step_count:
            sentences = [
                f"No NaN or infinite number reached a loss, gradient or parameter in "
                f"{count_of(step_count, 'searched step')}."
            ]
        elif not losses:
            sentences = ["No loss was seen that is NaN or infinite."]
        return self.finding(
            triggered=len(losses),
            violations=len(losses),
            datapoints=step_count,
            details=NanOriginDetails(searches=searches),
            sentences=sentences,
        )


def find_first_origin(processes: Iterable[ProcessInfo]) -> NanOriginFact | None:
    """Return the earliest origin of some processes; None if none has found one."""
    origins = _find_origins(processes)
    return origins[0][1] if origins else None


def _find_origins(processes: Iterable[ProcessInfo]) -> list[tuple[ProcessInfo, NanOriginFact]]:
    """Return the origins of some processes, those that a process has seen first, by step."""
    origins = [(process, fact) for process in processes for fact in process.facts_of(NanOriginFact)]
    return sorted(origins, key=lambda entry: (entry[1].phase in UNSEEN_PHASES, entry[1].step))


def _last_of_each(facts: list[NanSearchFact]) -> list[NanSearchFact]:
    """Return the last fact of each search; the first tells only that the job will search."""
    return list({fact.loss_step: fact for fact in facts}.values())


def _find_step(inputs: RuleInputs, process: ProcessInfo, step: int) -> Trigger:
    """Return the time of a step; one that did not end is at the end of the run."""
    start_ns = end_ns = inputs.end_ns - 1
    for steps in inputs.steps:
        index = np.flatnonzero(steps.number == step)
        if steps.process.process == process.process and len(index):
            start_ns, end_ns = int(steps.start_ns[index[0]]), int(steps.end_ns[index[0]])
    trigger = Trigger()
    trigger.add_times(inputs, [end_ns])
    trigger.cover(start_ns, end_ns)
    return trigger


def _describe_futile_search(search: NanSearchFact) -> str:
    if not search.step_count:
        return "no step after it was searched"
    return f"it did not recur in {count_of(search.step_count, 'step')} after it"


def _describe_late_search(search: NanSearchFact) -> str:
    loss = _LOSSES[search.loss or "nan"]
    return f"The search began after step {search.loss_step}, whose loss was {loss}."


def describe_origin(origin: NanOriginFact, process: ProcessInfo | None = None) -> str:
    """Describe an origin in two or three sentences.

    Args:
        origin: the origin.
        process: process to name, if several were searched.
    """
    kind = _name_kind(origin.result)
    elements = _describe_share(origin.result)
    line = _describe_line(origin.file, origin.line)
    at = f" in {line}" if line else ""
    step = f"Step {origin.step}" if process is None else f"Step {origin.step} of {process.title}"
    reason = explain(origin).reason
    match origin.phase:
        case "input":
            text = f"{step}: a tensor that is used{at} already held {kind} ({elements})"
        case "parameters":
            name = f"`{origin.parameter}`" if origin.parameter else "a parameter"
            text = f"{step}: {name}, which is used{at}, already held {kind} ({elements})"
        case "exchange" | "unknown":
            text = f"{step}: an operator that was not seen produced {kind} ({elements})"
        case _:
            phase = _describe_phase(origin)
            text = (
                f"{step}: `{origin.operator}`{at} ({phase}) produced the first {kind} ({elements})"
            )
    sentences = [f"{text}: {reason}." if reason and origin.operator else f"{text}."]
    if origin.follower is not None:
        sentences.append(_describe_follower(origin.follower))
    sentences.append(_describe_failure(origin))
    return " ".join(sentences)


def _describe_phase(origin: NanOriginFact | NanFollower) -> str:
    match origin.phase:
        case "backward" if origin.autograd_node:
            node = origin.autograd_node.partition("Backward")[0]
            text = f"backward pass of {node}"
        case "backward":
            text = "backward pass"
        case "forward" | "loss":
            text = origin.phase
        case _:
            text = "optimizer step"
    module_class = getattr(origin, "module_class", "")
    if origin.module:
        return f"{text} of `{origin.module}`"
    return f"{text} of `{module_class}`" if module_class else text


def _describe_follower(follower: NanFollower) -> str:
    line = _describe_line(follower.file, follower.line)
    at = f" in {line}" if line else ""
    return f"It became NaN in `{follower.operator}`{at} ({_describe_phase(follower)})."


def _describe_failure(origin: NanOriginFact) -> str:
    later = "" if origin.reached_step == origin.step else f" of step {origin.reached_step}"
    name = f"`{origin.reached_parameter}`" if origin.reached_parameter else "a parameter"
    match origin.reached:
        case "loss":
            return f"It reached the loss{later}."
        case "gradients":
            return f"It reached the gradient of {name}{later}."
        case "parameters":
            return f"It reached {name}{later}."
        case _:
            return f"It reached a value{later} that the script tested before it failed."


def _describe_line(file: str, line: int) -> str:
    return f"{PurePath(file).name}:{line}" if file else ""


def _name_kind(values: TensorValues) -> str:
    if values.nan_count:
        return "NaN"
    if values.positive_infinite_count and values.negative_infinite_count:
        return "Inf and -Inf"
    return "-Inf" if values.negative_infinite_count else "Inf"


def _describe_share(values: TensorValues) -> str:
    bad_counts = (
        values.nan_count, values.positive_infinite_count, values.negative_infinite_count,
    )  # fmt: skip
    bad_count, element_count = sum(n or 0 for n in bad_counts), values.element_count or 0
    if element_count == 1:
        return "a single number"
    share = percent(bad_count / element_count if element_count else None)
    return f"{share} of {count_of(element_count, 'element')}"
