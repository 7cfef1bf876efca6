"""Convolutions and their gradients.

Source: `torch.utils.flop_counter` of PyTorch, whose counts the tests compare with; a bias is
counted here in addition. Bytes are those of a kernel that reads each operand and writes each
result once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions of a convolution's arguments; input and weight are the first two."""

    stride: int
    padding: int
    dilation: int | None = None
    bias: int | None = None
    output_padding: int | None = None
    groups: int | None = None
    transposed: int | bool = False
    """A position, or what it always is."""


def convolution(call: Call, at: Layout) -> Work:
    """A convolution of any number of dimensions, grouped, dilated or transposed.

    F = 2 prod(out) prod(w[1:]) [+ prod(out) with a bias], transposed with prod(in) in place of
    prod(out) in the product;  bytes = in + w + out + bias

    w[1] counts the channels of one group, so groups need no factor of their own.
    """
    x, w = call.tensor(0), call.tensor(1)
    if len(x.dims) < 3 or len(w.dims) != len(x.dims):
        raise NotModelledError("a convolution without a batch is not")
    bias = call.optional(at.bias) if at.bias is not None else None
    transposed = at.transposed if isinstance(at.transposed, bool) else call.flag(at.transposed)
    if transposed:
        groups = call.integer(at.groups) if at.groups is not None else 1
        out = x.dims[0] * w.dims[1] * groups * prod(_widened(call, at, x, w))
    else:
        out = x.dims[0] * w.dims[0] * prod(_narrowed(call, at, x, w))
    swept = x.count if transposed else out
    return Work(
        flops=2 * swept * prod(w.dims[1:]) + (out if bias else 0),
        bytes=x.bytes + w.bytes + out * x.item_bytes + (bias.bytes if bias else 0),
        precision=x.precision,
        matrix=True,
    )


def convolution_backward(call: Call) -> Work:
    """`convolution_backward(grad, in, w, …, transposed at 7, …, output_mask at 10)`.

    The gradients of input and of weight each take the product of the forward pass:
    F = (masks) 2 prod(out) prod(w[1:]) [+ prod(out) for the bias], transposed prod(in) for
    prod(out);  bytes = [grad + w + in] + [grad + in + w] + [grad + bias], as the mask says

    The gradient of the output has the output's shape, so no stride is needed.
    """
    return _backward(call, grad=0, x=1, transposed=7)


def vendor_convolution_backward(call: Call) -> Work:
    """`cudnn_convolution_backward(in, grad, w, …, output_mask last)` of PyTorch before 1.11."""
    return _backward(call, grad=1, x=0, transposed=None)


def vendor_gradient_of_input(call: Call) -> Work:
    """`cudnn_convolution_backward_input(sizes of in, grad, w, …)` of PyTorch before 1.11."""
    sizes, dy, w = call.integers(0), call.tensor(1), call.tensor(2)
    return _one_gradient(dy, w, sizes, prod(w.dims[1:]))


def vendor_gradient_of_weight(call: Call) -> Work:
    """`cudnn_convolution_backward_weight(sizes of w, grad, in, …)` of PyTorch before 1.11."""
    sizes, dy, x = call.integers(0), call.tensor(1), call.tensor(2)
    return _one_gradient(dy, x, sizes, prod((sizes or [0])[1:]))


def _one_gradient(dy: Tensor, other: Tensor, sizes: list[int] | None, per_element: int) -> Work:
    if not sizes:
        raise NotModelledError("the sizes of the result were not recorded")
    return Work(
        flops=2 * dy.count * per_element,
        bytes=dy.bytes + other.bytes + prod(sizes) * dy.item_bytes,
        precision=dy.precision,
        matrix=True,
    )


def _backward(call: Call, *, grad: int, x: int, transposed: int | None) -> Work:
    dy, inputs, w = call.tensor(grad), call.tensor(x), call.tensor(2)
    mask = [item == "True" for item in _mask(call)]
    is_transposed = transposed is not None and call.flag(transposed)
    one = 2 * (inputs.count if is_transposed else dy.count) * prod(w.dims[1:])
    passes = sum(mask[:2])
    bias = len(mask) > 2 and mask[2]
    channels = dy.dims[1] if len(dy.dims) > 1 else 0
    return Work(
        flops=passes * one + (dy.count if bias else 0),
        bytes=passes * (dy.bytes + inputs.bytes + w.bytes)
        + ((dy.count + channels) * dy.item_bytes if bias else 0),
        precision=inputs.precision,
        matrix=True,
    )


def _mask(call: Call) -> list[str]:
    """Which gradients were asked for: the last list of booleans."""
    for position in range(len(call.types) - 1, 2, -1):
        items = call.items(position)
        if items and items[0] in {"True", "False"}:
            return items
    raise NotModelledError("which gradients were asked for was not recorded")


def _narrowed(call: Call, at: Layout, x: Tensor, w: Tensor) -> list[int]:
    """Sizes of the output: floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1."""
    rank = len(x.dims) - 2
    stride, padding = _sizes(call, at.stride, rank, 1), _sizes(call, at.padding, rank, 0)
    dilation = _sizes(call, at.dilation, rank, 1)
    return [
        (x.dims[2 + i] + 2 * padding[i] - dilation[i] * (w.dims[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(rank)
    ]


def _widened(call: Call, at: Layout, x: Tensor, w: Tensor) -> list[int]:
    """Sizes of a transposed convolution's output:
    (in - 1) stride - 2 padding + dilation (kernel - 1) + output padding + 1."""
    rank = len(x.dims) - 2
    stride, padding = _sizes(call, at.stride, rank, 1), _sizes(call, at.padding, rank, 0)
    dilation = _sizes(call, at.dilation, rank, 1)
    extra = _sizes(call, at.output_padding, rank, 0)
    return [
        (x.dims[2 + i] - 1) * stride[i]
        - 2 * padding[i]
        + dilation[i] * (w.dims[2 + i] - 1)
        + extra[i]
        + 1
        for i in range(rank)
    ]


def _sizes(call: Call, position: int | None, rank: int, default: int) -> list[int]:
    found = call.integers(position) if position is not None else None
    if not found:
        return [default] * rank
    if len(found) == 1:
        return found * rank
    if len(found) != rank:
        raise NotModelledError("the lists of sizes do not fit the input")
    return found
