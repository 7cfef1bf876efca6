"""Origin of the first NaN or infinite number of a training, and its reasons."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import quantities, schema
from stepscope.rules.base import NotRecorded, Rule, Trigger
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import NoParameters

UNSEEN_PHASES = {"exchange", "unknown"}
"""Phases of an origin that another rank may know better."""
_LOSSES = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}
SEARCH_AGAIN = "Run the job with --find-nan, which checks all operators from the start."


class NanOriginDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Origin, and the searches of all processes."""

    process: str | None = None
    """Process with the origin; null if it was not found."""
    origin: schema.NanOriginFact | None = None
    searches: dict[str, list[schema.NanSearchFact]] = {}
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

    def check(self, inputs: RuleInputs) -> schema.Finding | None:
        searches = {
            process.process: facts
            for process in inputs.processes
            if (facts := _last_of_each(process.facts_of(schema.NanSearchFact)))
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
        name = schema.name_processes(inputs.processes)[process.process]
        late = [fact for fact in searches.get(process.process, []) if fact.loss is not None]
        finding = self.finding(
            triggered=_find_step(inputs, process, origin.step),
            violations=len(origins),
            datapoints=step_count,
            details=NanOriginDetails(process=process.process, origin=origin, searches=searches),
            sentences=[
                describe_origin(origin, name if len(searches) > 1 else ""),
                *map(_describe_late_search, late[-1:]),
            ],
            nodes=[process.node],
            ranks=[name],
        )
        is_older = bool(late) and origin.phase == "parameters"
        advice = SEARCH_AGAIN if is_older else explain(origin).advice
        return msgspec.structs.replace(finding, recommendation=advice)

    def _report_searches(
        self, searches: dict[str, list[schema.NanSearchFact]], step_count: int
    ) -> schema.Finding:
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
                f"{quantities.count_of(step_count, 'searched step')}."
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


def find_first_origin(processes: Iterable[schema.ProcessInfo]) -> schema.NanOriginFact | None:
    """Return the earliest origin of some processes; None if none has found one."""
    origins = _find_origins(processes)
    return origins[0][1] if origins else None


def _find_origins(
    processes: Iterable[schema.ProcessInfo],
) -> list[tuple[schema.ProcessInfo, schema.NanOriginFact]]:
    """Return the origins of some processes, those that a process has seen first, by step."""
    origins = [
        (process, fact) for process in processes for fact in process.facts_of(schema.NanOriginFact)
    ]
    return sorted(origins, key=lambda entry: (entry[1].phase in UNSEEN_PHASES, entry[1].step))


def _last_of_each(facts: list[schema.NanSearchFact]) -> list[schema.NanSearchFact]:
    """Return the last fact of each search; the first tells only that the job will search."""
    return list({fact.loss_step: fact for fact in facts}.values())


def _find_step(inputs: RuleInputs, process: schema.ProcessInfo, step: int) -> Trigger:
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


def _describe_futile_search(search: schema.NanSearchFact) -> str:
    if not search.step_count:
        return "no step after it was searched"
    return f"it did not recur in {quantities.count_of(search.step_count, 'step')} after it"


def _describe_late_search(search: schema.NanSearchFact) -> str:
    loss = _LOSSES[search.loss or "nan"]
    return f"The search began after step {search.loss_step}, whose loss was {loss}."


def describe_origin(origin: schema.NanOriginFact, process: str = "") -> str:
    """Describe an origin in two or three sentences.

    Args:
        origin: the origin.
        process: name of the process, if several were searched.
    """
    kind = _name_kind(origin.result)
    elements = _describe_share(origin.result)
    line = _describe_line(origin.file, origin.line)
    at = f" in {line}" if line else ""
    step = f"Step {origin.step} of {process}" if process else f"Step {origin.step}"
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


def _describe_phase(origin: schema.NanOriginFact | schema.NanFollower) -> str:
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


def _describe_follower(follower: schema.NanFollower) -> str:
    line = _describe_line(follower.file, follower.line)
    at = f" in {line}" if line else ""
    return f"It became NaN in `{follower.operator}`{at} ({_describe_phase(follower)})."


def _describe_failure(origin: schema.NanOriginFact) -> str:
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


def _name_kind(values: schema.TensorValues) -> str:
    if values.nan_count:
        return "NaN"
    if values.positive_infinite_count and values.negative_infinite_count:
        return "Inf and -Inf"
    return "-Inf" if values.negative_infinite_count else "Inf"


def _describe_share(values: schema.TensorValues) -> str:
    bad_counts = (
        values.nan_count, values.positive_infinite_count, values.negative_infinite_count,
    )  # fmt: skip
    bad_count, element_count = sum(n or 0 for n in bad_counts), values.element_count or 0
    if element_count == 1:
        return "a single number"
    share = quantities.percent(bad_count / element_count if element_count else None)
    return f"{share} of {quantities.count_of(element_count, 'element')}"


LOGARITHMS = {"log", "log2", "log10", "log1p"}
INVERSE_FUNCTIONS = {"acos", "asin", "atanh", "arccos", "arcsin", "arctanh"}
SOFTMAX = {"softmax", "log_softmax", "safe_softmax"}
CLASS_LOSSES = {"nll_loss_forward", "nll_loss2d_forward", "nll_loss", "cross_entropy_loss"}
DEVIATIONS = {"std", "var", "std_mean", "var_mean"}


class Cause(NamedTuple):
    """Reason, as a clause that may be empty, and what to do."""

    reason: str
    advice: str


_CLIP = "Clip gradients, lower the learning rate or its warm-up, or normalize the values before."
_INFINITE_GRADIENTS = {
    "Sqrt": "the gradient of a square root at 0 is infinite",
    "Rsqrt": "the gradient of an inverse square root at 0 is infinite",
    "Log": "the gradient of a logarithm at 0 is infinite",
    "Pow": "the gradient of a power below 1 at 0 is infinite",
    "Acos": "the gradient of an arc cosine at 1 is infinite",
    "Asin": "the gradient of an arc sine at 1 is infinite",
    "Div": "the gradient of a division by 0 is infinite",
}


def explain(origin: schema.NanOriginFact) -> Cause:
    """Return the cause of the first non-finite numbers."""
    match origin.phase:
        case "input":
            return Cause(
                "the data was not finite before the step used it",
                "Check the samples of this step and how they are prepared; leave out or repair "
                "those that are not finite.",
            )
        case "parameters":
            return Cause(
                "it was not finite before the step used it",
                "Check its initialization and the checkpoint that was loaded; if it was finite at "
                "the start, run the job with --find-nan.",
            )
        case "exchange":
            return Cause(
                "the gradients came from other ranks, or operators that the search does not see",
                "Look at the other ranks, or run them with --find-nan.",
            )
        case "unknown":
            return Cause("", "Run the job without torch.compile and with --find-nan.")
        case "optimizer":
            return _explain_optimizer(origin)
        case "backward":
            return _explain_gradient(origin)
        case _:
            return _explain_operator(origin)


def _explain_gradient(origin: schema.NanOriginFact) -> Cause:
    node = (origin.autograd_node or "").partition("Backward")[0]
    reason = _INFINITE_GRADIENTS.get(node)
    if reason is not None and any(values.zero_count for values in origin.inputs):
        return Cause(
            reason, "Keep its argument away from 0 in the forward pass: add a small constant, or "
            "clamp it. Selecting the result with `where` afterwards does not help."
        )  # fmt: skip
    return _explain_operator(origin)


def _explain_optimizer(origin: schema.NanOriginFact) -> Cause:
    if origin.operator in {"addcdiv", "div"} and _has_zero(origin.inputs[-1:]):
        return Cause(
            "0 divided by 0, where a parameter has had no gradient so far",
            "Use an epsilon above 0 in the optimizer, such as its default.",
        )
    return _explain_operator(origin)


def _explain_operator(origin: schema.NanOriginFact) -> Cause:
    name, inputs, result = origin.operator, origin.inputs, origin.result
    if name in SOFTMAX and any(values.negative_infinite_count for values in inputs):
        return Cause(
            "a row consisted of -Inf only: everything in it was masked",
            "Leave at least one element of each row unmasked, or set rows without any to 0.",
        )
    if name in CLASS_LOSSES:
        return Cause(
            "the mean of no labels: each one is ignored, or has the weight 0",
            "Skip batches in which every label is ignored, or use reduction='sum' and divide by "
            "the count of labels, at least 1.",
        )
    if name in DEVIATIONS and result.nan_count:
        return Cause(
            "the deviation of a single element is not defined",
            "Leave out incomplete batches, or compute it with correction=0.",
        )
    if name == "mean" and result.nan_count and not any(v.element_count for v in inputs):
        return Cause("the mean of no elements", "Skip empty selections.")
    reason = _explain_argument(origin)
    if reason:
        return Cause(reason, "Add a small constant to the argument, clamp it, or skip the case.")
    if not result.nan_count and all(_is_finite(values) for values in inputs):
        return Cause(_describe_overflow(origin), _overflow_advice(result))
    return Cause("", "Print the inputs of this operator at this step.")


def _explain_argument(origin: schema.NanOriginFact) -> str:
    """Return the argument for which a function has no finite value; empty if it has none."""
    name, inputs, has_nan = origin.operator, origin.inputs, bool(origin.result.nan_count)
    if not inputs:
        return ""
    first, last = inputs[0], inputs[-1]
    if name in {"div", "reciprocal", "addcdiv"}:
        if has_nan and _has_zero(inputs[:1]) and (len(inputs) == 1 or _has_zero(inputs[-1:])):
            return "0 divided by 0"
        return "division by 0" if _has_zero([last]) else ""
    if name in LOGARITHMS:
        if has_nan:
            return "the logarithm of a negative number" if _is_below(first, 0) else ""
        return "the logarithm of 0" if name != "log1p" and _has_zero([first]) else ""
    if name in {"sqrt", "rsqrt"}:
        if has_nan:
            return "the square root of a negative number" if _is_below(first, 0) else ""
        return "division by the square root of 0" if _has_zero([first]) else ""
    if name in INVERSE_FUNCTIONS:
        limits = f"{quantities.number(first.min)} to {quantities.number(first.max)}"
        return f"{name} is defined from -1 to 1, and its input was {limits}"
    if name == "pow" and has_nan and _is_below(first, 0):
        return "a fractional power of a negative number"
    if name == "mul" and has_nan and not all(_is_finite(values) for values in inputs):
        return "0 multiplied by an infinite number"
    return ""


def _describe_overflow(origin: schema.NanOriginFact) -> str:
    largest = max((_largest(values) for values in origin.inputs), default=0.0)
    size = f", from inputs up to {quantities.number(largest)}" if largest else ""
    return f"it exceeded the largest number of {origin.result.dtype}{size}"


def _overflow_advice(result: schema.TensorValues) -> str:
    if result.dtype == "float16":
        return (
            "Compute this part in float32 or bfloat16 (with autocast, outside of it), or scale "
            "its inputs down."
        )
    return _CLIP


def _has_zero(inputs: list[schema.TensorValues]) -> bool:
    return any(
        values.zero_count or (values.zero_count is None and 0 in {values.min, values.max})
        for values in inputs
    )


def _is_below(values: schema.TensorValues, limit: float) -> bool:
    return values.min is not None and values.min < limit


def _is_finite(values: schema.TensorValues) -> bool:
    counts = (
        values.nan_count, values.positive_infinite_count, values.negative_infinite_count,
    )  # fmt: skip
    return not any(counts)


def _largest(values: schema.TensorValues) -> float:
    return max(abs(values.min or 0.0), abs(values.max or 0.0))
