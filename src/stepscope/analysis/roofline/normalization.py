"""Models of batch, layer, group and RMS normalization.

With n elements and C channels (the normalized size of a layer norm), forward:

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

from dataclasses import dataclass, replace
from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNormLayout:
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
    return _estimate_backward(
        call.tensor(1),
        _count_channels(call.tensor(1)),
        call.optional(2),
        mask=_read_mask(call, 9),
        training=call.flag(7),
    )


def vendor_batch_norm_backward(call: Call) -> Work:
    """Estimate `cudnn_batch_norm_backward(x, grad, weight, …)`: training, all three gradients."""
    x = call.tensor(0)
    return _estimate_backward(x, _count_channels(x), call.tensor(2), mask=[True] * 3, training=True)


def layer_norm_backward(call: Call) -> Work:
    """Estimate the gradient of a layer norm.

    `native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, mask)`
    """
    weight = call.optional(5)
    size = _count_normalized(call, 2, weight)
    mask = _read_mask(call, 7)
    return _estimate_backward(call.tensor(1), size, weight, mask=mask, training=True)


def group_norm_backward(call: Call) -> Work:
    """Estimate the gradient of a group norm.

    `native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask)`
    """
    x, weight, mask = call.tensor(1), call.optional(4), _read_mask(call, 9)
    return _estimate_backward(x, _count_channels(x), weight, mask=mask, training=True)


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
    x: Tensor,
    channels: int,
    parameters: tuple[Tensor | None, Tensor | None],
    *,
    training: bool,
) -> Work:
    parameter_bytes = sum(tensor.bytes for tensor in parameters if tensor)
    statistics_bytes = channels * x.item_bytes * (4 if training else 2)
    return Work(
        flops=x.count * (5 if training else 2) + 6 * channels,
        bytes=2 * x.bytes + parameter_bytes + statistics_bytes,
        precision=x.arithmetic,
    )


def _estimate_backward(
    x: Tensor,
    channels: int,
    weight: Tensor | None,
    *,
    mask: list[bool],
    training: bool,
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
