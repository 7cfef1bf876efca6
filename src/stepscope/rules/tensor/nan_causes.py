"""Reasons for the first NaN or infinite number, as far as operator and inputs show them."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.quantities import number
from stepscope.schema import NanOriginFact, TensorValues

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


def explain(origin: NanOriginFact) -> Cause:
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


def _explain_gradient(origin: NanOriginFact) -> Cause:
    node = (origin.autograd_node or "").partition("Backward")[0]
    reason = _INFINITE_GRADIENTS.get(node)
    if reason is not None and any(values.zero_count for values in origin.inputs):
        return Cause(
            reason, "Keep its argument away from 0 in the forward pass: add a small constant, or "
            "clamp it. Selecting the result with `where` afterwards does not help."
        )  # fmt: skip
    return _explain_operator(origin)


def _explain_optimizer(origin: NanOriginFact) -> Cause:
    if origin.operator in {"addcdiv", "div"} and _has_zero(origin.inputs[-1:]):
        return Cause(
            "0 divided by 0, where a parameter has had no gradient so far",
            "Use an epsilon above 0 in the optimizer, such as its default.",
        )
    return _explain_operator(origin)


def _explain_operator(origin: NanOriginFact) -> Cause:
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


def _explain_argument(origin: NanOriginFact) -> str:
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
        limits = f"{number(first.min)} to {number(first.max)}"
        return f"{name} is defined from -1 to 1, and its input was {limits}"
    if name == "pow" and has_nan and _is_below(first, 0):
        return "a fractional power of a negative number"
    if name == "mul" and has_nan and not all(_is_finite(values) for values in inputs):
        return "0 multiplied by an infinite number"
    return ""


def _describe_overflow(origin: NanOriginFact) -> str:
    largest = max((_largest(values) for values in origin.inputs), default=0.0)
    size = f", from inputs up to {number(largest)}" if largest else ""
    return f"it exceeded the largest number of {origin.result.dtype}{size}"


def _overflow_advice(result: TensorValues) -> str:
    if result.dtype == "float16":
        return (
            "Compute this part in float32 or bfloat16 (with autocast, outside of it), or scale "
            "its inputs down."
        )
    return _CLIP


def _has_zero(inputs: list[TensorValues]) -> bool:
    return any(
        values.zero_count or (values.zero_count is None and 0 in {values.min, values.max})
        for values in inputs
    )


def _is_below(values: TensorValues, limit: float) -> bool:
    return values.min is not None and values.min < limit


def _is_finite(values: TensorValues) -> bool:
    counts = (
        values.nan_count, values.positive_infinite_count, values.negative_infinite_count,
    )  # fmt: skip
    return not any(counts)


def _largest(values: TensorValues) -> float:
    return max(abs(values.min or 0.0), abs(values.max or 0.0))
