"""Calls of operators, drawn by their arguments, and the work that models estimate for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from stepscope.analysis.roofline.calls import Call, Work
from stepscope.analysis.roofline.registry import estimate_work

BF16, FP32, FP8, FP4 = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2"
INT32, INT64, BYTE = "int", "long int", "unsigned char"
Argument = tuple[Any, ...] | list[Any] | str | None
"""A tensor as (dims, type) or (dims, type, strides), a list of tensors as a list of dims, a scalar
as text, an omitted argument as None."""


def tensor(*dims: int, type_: str = BF16) -> Argument:
    """Make a tensor argument."""
    return (dims, type_)


def call(name: str, *arguments: Argument, kernel: str | None = None) -> Call:
    """Make a call; names without a namespace are of PyTorch."""
    dims: list[Any] = []
    types, strides, values = [], [], []
    for argument in arguments:
        is_tensor = isinstance(argument, tuple)
        is_list = isinstance(argument, list)
        dims.append(
            list(argument[0]) if is_tensor else [list(size) for size in argument] if is_list else []
        )
        types.append(
            argument[1]
            if is_tensor
            else "TensorList"
            if is_list
            else "Scalar"
            if argument is not None
            else ""
        )
        strides.append(list(argument[2]) if is_tensor and len(argument) > 2 else None)
        values.append(argument if isinstance(argument, str) else "")
    full = name if "::" in name or name.startswith("triton") else f"aten::{name}"
    return Call(name=full, dims=dims, types=types, strides=strides, values=values, kernel=kernel)


def work(name: str, *arguments: Argument, kernel: str | None = None) -> Work:
    """Estimate the work of a call that has a model."""
    estimate = estimate_work(call(name, *arguments, kernel=kernel))
    assert isinstance(estimate, Work), estimate
    return estimate


def reject(name: str, *arguments: Argument) -> str:
    """Return the reason why a call has no figures."""
    estimate = estimate_work(call(name, *arguments))
    assert isinstance(estimate, str), estimate
    return estimate


class Case(NamedTuple):
    """Call and its work; None where that is not checked, "-" where it is unknown."""

    name: str
    arguments: tuple[Argument, ...]
    flops: float | str | None
    bytes: int | None = None
    precision: str | None = None


def check(case: Case) -> None:
    estimate = work(case.name, *case.arguments)
    assert case.flops is None or estimate.flops == (None if case.flops == "-" else case.flops)
    assert case.bytes in (None, estimate.bytes)
    assert case.precision in (None, estimate.precision)
