"""Model of the Triton kernels of torch.compile, by their names.

Inductor names a kernel after the operators that it fuses, each once and in order of the alphabet:
`triton_poi_fused__unsafe_view_mul_silu_2` (`get_fused_kernel_name`,
https://github.com/pytorch/pytorch/blob/main/torch/_inductor/utils.py). A pointwise kernel (`poi`)
runs each of them at least once per element. In a reduction (`red`, `per`), the name does not tell
the operators before it from those after it, so its arithmetic is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Work

COMPILED_PREFIXES = ("triton_poi_", "triton_red_", "triton_per_")
_POINTWISE = re.compile(r"triton_poi_fused_(.+)_\d+")
_MOVEMENT = frozenset((
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "slice", "select",
    "squeeze", "unsqueeze", "clone", "_to_copy", "copy", "cat", "stack", "split", "unbind",
    "detach", "full", "zeros", "ones", "alias", "as_strided",
))  # fmt: skip
"""Operators without arithmetic."""


def compiled(call: Call, *, arithmetic: Collection[str]) -> Work:
    """Estimate a Triton kernel of torch.compile: it reads and writes its arguments.

    F = named operators with arithmetic · elements, of a pointwise kernel
    bytes = each tensor once

    Both are lower bounds: an operator that the kernel runs twice, and a tensor that is read and
    written in place, count once.

    Args:
        call: the call.
        arithmetic: operators with one operation per element.
    """
    tensors = call.tensors()
    if not tensors:
        raise NotModelledError("no argument is a tensor of a known element type")
    operators, element_count = _parse_operators(call.name, arithmetic), _count_elements(call)
    is_known = operators is not None and element_count is not None
    operation_count = sum(name in arithmetic for name in operators or ())
    return Work(
        flops=operation_count * (element_count or 0) if is_known else None,
        bytes=sum(tensor.stored_bytes for tensor in tensors),
        precision=tensors[0].arithmetic,
        note="lower bound: each argument counts once, "
        + (
            "and each operator in the kernel's name once per element"
            if is_known
            else "and the arithmetic is unknown"
        ),
    )


def _parse_operators(name: str, arithmetic: Collection[str]) -> list[str] | None:
    """Parse the operators in the name of a pointwise kernel; None if one of them is unknown.

    >>> _parse_operators("triton_poi_fused__unsafe_view_mul_silu_2", {"mul", "silu"})
    ['_unsafe_view', 'mul', 'silu']
    """
    match = _POINTWISE.fullmatch(name)
    vocabulary = sorted(_MOVEMENT.union(arithmetic), key=len, reverse=True)
    return None if match is None else _split(match[1], vocabulary)


def _split(text: str, vocabulary: list[str]) -> list[str] | None:
    """Split a text into words joined by underscores, longer words first."""
    if text in vocabulary:
        return [text]
    for word in vocabulary:
        if text.startswith(f"{word}_"):
            rest = _split(text[len(word) + 1 :], vocabulary)
            if rest is not None:
                return [word, *rest]
    return None


def _count_elements(call: Call) -> int | None:
    """Count the elements of a pointwise kernel: its last one or two scalars.

    Scalars before them may be sizes of dynamic shapes, so the count must be that of a tensor.
    """
    scalars = [int(value) for value in call.values if value.isdecimal()]
    counts = {tensor.count for tensor in call.tensors()}
    candidates = [prod(scalars[-length:]) for length in (1, 2) if len(scalars) >= length]
    return next((count for count in candidates if count in counts), None)
