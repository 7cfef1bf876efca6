"""Models of convolutions, of normalizations and of their gradients.

Source: `torch.utils.flop_counter` of PyTorch
(https://github.com/pytorch/pytorch/blob/main/torch/utils/flop_counter.py), which the tests compare
with; here a bias counts in addition. Bytes are those of a kernel that reads each operand and writes
each result once.

Models of batch, layer, group and RMS normalization. With n elements and C channels (the normalized
size of a layer norm), forward:

    F = 5 n + 6 C in training (sum, subtract, square and add for the statistics; scale and shift),
        2 n + 6 C with given statistics;  the 6 C make scale and shift of the statistics
    bytes = 2 n b + p C b;  p: mean and variance, weight and bias if present, and in training
        mean and variance again, which are written

The definitions are those of TraceLens (https://github.com/AMD-AGI/TraceLens), so that rows can be
compared. It counts the statistics of a layer norm, which belong to rows, as if they belonged to
channels; the difference is small because C ≪ n. It assumes that every norm is affine and in
training; here the arguments decide. Backward:

    F = 4 n (the two sums) + 5 n for the gradient of the input; that needs 2 n with given statistics
    bytes = (grad + x read, dx written: 3 n) b + q C b;  q: mean and inverse deviation, weight,
        and the requested gradients of weight and bias

RMS norm (no mean, so fewer steps), of r = n / C rows:

    F = r (2 C + 2) + n (1, or 2 with a weight);  bytes = 2 n b + C b with a weight
    backward F = 2 n + 6 n for the input + 2 n for the weight;  bytes = 3 n b + 2 C b
"""

from __future__ import annotations

from math import prod

import msgspec
from msgspec.structs import replace

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work


class ConvolutionLayout(msgspec.Struct, frozen=True, kw_only=True):
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
    return _estimate_convolution_backward(call, grad=0, x=1, transposed=7)


def vendor_convolution_backward(call: Call) -> Work:
    """Estimate `cudnn_convolution_backward(in, grad, w, …, output_mask last)`, PyTorch < 1.11."""
    return _estimate_convolution_backward(call, grad=1, x=0, transposed=None)


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


def _estimate_convolution_backward(
    call: Call, *, grad: int, x: int, transposed: int | None
) -> Work:
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


def batch_norm(call: Call) -> Work:
    """Estimate `native_batch_norm(x, weight, bias, mean, variance, training, …)` and variants."""
    x = call.tensor(0)
    parameters = (call.optional(1), call.optional(2))
    return _estimate_forward(x, _count_channels(x), parameters, training=call.flag(5))


def layer_norm(call: Call) -> Work:
    """Estimate `native_layer_norm(x, normalized_shape, weight, bias, eps)`."""
    x, parameters = call.tensor(0), (call.optional(2), call.optional(3))
    size = _count_normalized(call, 1, parameters[0])
    return _estimate_forward(x, size, parameters, training=True)


def group_norm(call: Call, weight: int = 1) -> Work:
    """Estimate `native_group_norm(x, weight, bias, N, C, HxW, groups, eps)`.

    The bias follows the weight; AITER has both after the number of groups.
    """
    x = call.tensor(0)
    parameters = (call.optional(weight), call.optional(weight + 1))
    return _estimate_forward(x, _count_channels(x), parameters, training=True)


class RmsNormLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of the arguments of an RMS norm."""

    x: int = 0
    weight: int
    out: int | None = None
    """Position of the tensor for the result; like x without one, or in place."""
    residual: int | None = None
    """Position of a tensor that is added to x before, and receives the sum."""
    quantization: int = 0
    """Operations per element that convert the result to another type."""


def rms_norm(call: Call) -> Work:
    """Estimate `_fused_rms_norm(x, normalized_shape, weight, eps)`."""
    weight = call.optional(2)
    return _estimate_rms_norm(call.tensor(0), weight, _count_normalized(call, 1, weight))


def fused_rms_norm(call: Call, at: RmsNormLayout) -> Work:
    """Estimate an RMS norm of vLLM, SGLang or AITER.

    With a residual, F gains the n additions, and bytes the residual, which is read and replaced
    by the sum: x and residual read, result and sum written.
    """
    x, weight = call.tensor(at.x), call.optional(at.weight)
    size = weight.count if weight else x.dims[-1]
    norm = _estimate_rms_norm(x, weight, max(1, size))
    out = call.tensor(at.out) if at.out is not None else x
    residual = call.optional(at.residual) if at.residual is not None else None
    operations = at.quantization + (1 if residual else 0)
    return replace(
        norm,
        flops=(norm.flops or 0) + operations * x.count,
        bytes=norm.bytes
        + x.count * (out.item_bytes - x.item_bytes)
        + (2 * residual.bytes if residual else 0),
    )


def batch_norm_backward(call: Call) -> Work:
    """Estimate `native_batch_norm_backward(grad, x, weight, …, train at 7, eps, mask at 9)`."""
    return _estimate_normalization_backward(
        call.tensor(1),
        _count_channels(call.tensor(1)),
        call.optional(2),
        mask=_read_mask(call, 9),
        training=call.flag(7),
    )


def vendor_batch_norm_backward(call: Call) -> Work:
    """Estimate `cudnn_batch_norm_backward(x, grad, weight, …)`: training, all three gradients."""
    x = call.tensor(0)
    return _estimate_normalization_backward(
        x, _count_channels(x), call.tensor(2), mask=[True] * 3, training=True
    )


def layer_norm_backward(call: Call) -> Work:
    """Estimate the gradient of a layer norm.

    `native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, mask)`
    """
    weight = call.optional(5)
    size = _count_normalized(call, 2, weight)
    mask = _read_mask(call, 7)
    return _estimate_normalization_backward(call.tensor(1), size, weight, mask=mask, training=True)


def group_norm_backward(call: Call) -> Work:
    """Estimate the gradient of a group norm.

    `native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask)`
    """
    x, weight, mask = call.tensor(1), call.optional(4), _read_mask(call, 9)
    return _estimate_normalization_backward(x, _count_channels(x), weight, mask=mask, training=True)


def rms_norm_backward(call: Call) -> Work:
    """Estimate `_fused_rms_norm_backward(grad, x, normalized_shape, rstd, weight, mask)`."""
    x, weight = call.tensor(1), call.optional(4)
    size = _count_normalized(call, 2, weight)
    mask = _read_mask(call, 5)
    flops = x.count * (1 + (1 if weight else 0) + 6 * mask[0])
    size_bytes = x.bytes * (2 + mask[0])
    if weight:
        rows = x.count // size
        flops += x.count * (2 if rows > 1 else 1) * mask[1]
        size_bytes += weight.bytes * (1 + mask[1])
    return Work(flops=flops, bytes=size_bytes, precision=x.arithmetic)


def _estimate_rms_norm(x: Tensor, weight: Tensor | None, size: int) -> Work:
    rows = x.count // size
    return Work(
        flops=rows * (2 * size + 2) + x.count * (2 if weight else 1),
        bytes=2 * x.bytes + (weight.bytes if weight else 0),
        precision=x.arithmetic,
    )


def _estimate_forward(
    x: Tensor, channels: int, parameters: tuple[Tensor | None, Tensor | None], *, training: bool
) -> Work:
    parameter_bytes = sum(tensor.bytes for tensor in parameters if tensor)
    statistics_bytes = channels * x.item_bytes * (4 if training else 2)
    return Work(
        flops=x.count * (5 if training else 2) + 6 * channels,
        bytes=2 * x.bytes + parameter_bytes + statistics_bytes,
        precision=x.arithmetic,
    )


def _estimate_normalization_backward(
    x: Tensor, channels: int, weight: Tensor | None, *, mask: list[bool], training: bool
) -> Work:
    input_flops = (5 if training else 2) * mask[0]
    item_bytes = weight.item_bytes if weight else x.item_bytes
    per_channel = 2 + (1 if weight else 0) + sum(mask[1:])
    return Work(
        flops=x.count * (4 + input_flops),
        bytes=x.bytes * (2 + mask[0]) + channels * item_bytes * per_channel,
        precision=x.arithmetic,
    )


def _count_channels(x: Tensor) -> int:
    if len(x.dims) < 2:
        raise NotModelledError("a norm needs a channel dimension")
    return x.dims[1]


def _count_normalized(call: Call, position: int, weight: Tensor | None) -> int:
    """Count the elements of one normalized row.

    The weight has the same count, for profilers that do not record values.
    """
    if weight is not None:
        return max(1, weight.count)
    sizes = call.integers(position)
    if not sizes:
        raise NotModelledError("the normalized shape was not recorded")
    return max(1, prod(sizes))


def _read_mask(call: Call, position: int) -> list[bool]:
    items = call.items(position)
    if items is None:
        raise NotModelledError("the mask of requested gradients was not recorded")
    return [item == "True" for item in items]
