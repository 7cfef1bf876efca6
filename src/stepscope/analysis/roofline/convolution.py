"""Models of convolutions and their gradients.

Source: `torch.utils.flop_counter` of PyTorch
(https://github.com/pytorch/pytorch/blob/main/torch/utils/flop_counter.py), which the tests compare
with; here a bias counts in addition. Bytes are those of a kernel that reads each operand and writes
each result once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLayout:
    """Positions of a convolution's arguments; input and weight are the first two."""

    stride: int
    padding: int
    dilation: int | None = None
    bias: int | None = None
    output_padding: int | None = None
    groups: int | None = None
    transposed: int | bool = False
    """Position of a boolean, or its constant value."""


def convolution(call: Call, at: ConvolutionLayout) -> Work:
    """Estimate the work of a convolution: any dimensions, grouped, dilated or transposed.

    F = 2 prod(out) prod(w[1:]) [+ prod(out) with a bias], transposed with prod(in) in place of
    prod(out) in the product;  bytes = in + w + out + bias

    w[1] counts the channels of one group, so groups need no factor of their own.
    """
    x, w = call.tensor(0), call.tensor(1)
    if len(x.dims) < 3 or len(w.dims) != len(x.dims):
        raise NotModelledError("convolutions without a batch dimension are not modelled")
    bias = call.optional(at.bias) if at.bias is not None else None
    transposed = at.transposed if isinstance(at.transposed, bool) else call.flag(at.transposed)
    if transposed:
        groups = call.integer(at.groups) if at.groups is not None else 1
        out = x.dims[0] * w.dims[1] * groups * prod(_compute_transposed_sizes(call, at, x, w))
    else:
        out = x.dims[0] * w.dims[0] * prod(_compute_output_sizes(call, at, x, w))
    positions = x.count if transposed else out
    return Work(
        flops=2 * positions * prod(w.dims[1:]) + (out if bias else 0),
        bytes=x.bytes + w.bytes + out * x.item_bytes + (bias.bytes if bias else 0),
        precision=x.precision,
        matrix=True,
    )


def convolution_backward(call: Call) -> Work:
    """Estimate `convolution_backward(grad, in, w, …, transposed at 7, …, output_mask at 10)`.

    The gradients of input and of weight each take the product of the forward pass:
    F = (masks) 2 prod(out) prod(w[1:]) [+ prod(out) for the bias], transposed prod(in) for
    prod(out);  bytes = [grad + w + in] + [grad + in + w] + [grad + bias], by the mask

    The gradient of the output has the output's shape, so no stride is needed.
    """
    return _estimate_backward(call, grad=0, x=1, transposed=7)


def vendor_convolution_backward(call: Call) -> Work:
    """Estimate `cudnn_convolution_backward(in, grad, w, …, output_mask last)`, PyTorch < 1.11."""
    return _estimate_backward(call, grad=1, x=0, transposed=None)


def vendor_gradient_of_input(call: Call) -> Work:
    """Estimate `cudnn_convolution_backward_input(sizes of in, grad, w, …)`, PyTorch < 1.11."""
    sizes, dy, w = call.integers(0), call.tensor(1), call.tensor(2)
    return _estimate_gradient(dy, w, sizes, prod(w.dims[1:]))


def vendor_gradient_of_weight(call: Call) -> Work:
    """Estimate `cudnn_convolution_backward_weight(sizes of w, grad, in, …)`, PyTorch < 1.11."""
    sizes, dy, x = call.integers(0), call.tensor(1), call.tensor(2)
    return _estimate_gradient(dy, x, sizes, prod((sizes or [0])[1:]))


def _estimate_gradient(
    dy: Tensor, operand: Tensor, sizes: list[int] | None, per_element: int
) -> Work:
    if not sizes:
        raise NotModelledError("the sizes of the result were not recorded")
    return Work(
        flops=2 * dy.count * per_element,
        bytes=dy.bytes + operand.bytes + prod(sizes) * dy.item_bytes,
        precision=dy.precision,
        matrix=True,
    )


def _estimate_backward(call: Call, *, grad: int, x: int, transposed: int | None) -> Work:
    dy, inputs, w = call.tensor(grad), call.tensor(x), call.tensor(2)
    mask = [item == "True" for item in _find_output_mask(call)]
    is_transposed = transposed is not None and call.flag(transposed)
    product_flops = 2 * (inputs.count if is_transposed else dy.count) * prod(w.dims[1:])
    products = sum(mask[:2])
    bias = len(mask) > 2 and mask[2]
    channels = dy.dims[1] if len(dy.dims) > 1 else 0
    return Work(
        flops=products * product_flops + (dy.count if bias else 0),
        bytes=products * (dy.bytes + inputs.bytes + w.bytes)
        + ((dy.count + channels) * dy.item_bytes if bias else 0),
        precision=inputs.precision,
        matrix=True,
    )


def _find_output_mask(call: Call) -> list[str]:
    """Find the mask of requested gradients: the last list of booleans."""
    for position in range(len(call.types) - 1, 2, -1):
        items = call.items(position)
        if items and items[0] in {"True", "False"}:
            return items
    raise NotModelledError("the mask of requested gradients was not recorded")


def _compute_output_sizes(call: Call, at: ConvolutionLayout, x: Tensor, w: Tensor) -> list[int]:
    """Compute the output sizes.

    floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1
    """
    rank = len(x.dims) - 2
    stride, padding = _read_sizes(call, at.stride, rank, 1), _read_sizes(call, at.padding, rank, 0)
    dilation = _read_sizes(call, at.dilation, rank, 1)
    return [
        (x.dims[2 + i] + 2 * padding[i] - dilation[i] * (w.dims[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(rank)
    ]


def _compute_transposed_sizes(call: Call, at: ConvolutionLayout, x: Tensor, w: Tensor) -> list[int]:
    """Compute the output sizes of a transposed convolution.

    (in - 1) stride - 2 padding + dilation (kernel - 1) + output padding + 1
    """
    rank = len(x.dims) - 2
    stride, padding = _read_sizes(call, at.stride, rank, 1), _read_sizes(call, at.padding, rank, 0)
    dilation = _read_sizes(call, at.dilation, rank, 1)
    output_padding = _read_sizes(call, at.output_padding, rank, 0)
    return [
        (x.dims[2 + i] - 1) * stride[i]
        - 2 * padding[i]
        + dilation[i] * (w.dims[2 + i] - 1)
        + output_padding[i]
        + 1
        for i in range(rank)
    ]


def _read_sizes(call: Call, position: int | None, rank: int, default: int) -> list[int]:
    sizes = call.integers(position) if position is not None else None
    if not sizes:
        return [default] * rank
    if len(sizes) == 1:
        return sizes * rank
    if len(sizes) != rank:
        raise NotModelledError("the lists of sizes do not match the input")
    return sizes
