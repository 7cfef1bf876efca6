"""Normalisations of batches, layers, groups and by root mean square.

With n elements and C channels (the normalised size of a layer norm), forward:

    F = 5 n + 6 C in training (sum, subtract, square and add for the statistics; scale and shift),
        2 n + 6 C with given statistics;  the 6 C make scale and shift of the statistics
    bytes = 2 n b + p C b;  p: mean and variance, weight and bias where there are, and in training
        mean and variance again, which are written

The definitions are TraceLens's, so that rows can be compared. It charges a layer norm, whose
statistics belong to rows, as if they belonged to channels, which matters little because C ≪ n.
It takes every norm to be affine and in training; here the arguments decide. Backward:

    F = 4 n (the two sums) + 5 n for the gradient of the input; that needs 2 n with given statistics
    bytes = (grad + x read, dx written: 3 n) b + q C b;  q: mean and inverse deviation, weight,
        and the gradients of weight and bias as far as they are asked for

RMS norm (no mean, so fewer steps), of r = n / C rows:

    F = r (2 C + 2) + n (1, or 2 with a weight);  bytes = 2 n b + C b with a weight
    backward F = 2 n + 6 n for the input + 2 n for the weight;  bytes = 3 n b + 2 C b
"""

from __future__ import annotations

from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work


def batch_norm(call: Call) -> Work:
    """`native_batch_norm(x, weight, bias, mean, variance, training, …)`, cuDNN's and MIOpen's."""
    x = call.tensor(0)
    return _forward(x, _channels(x), (call.optional(1), call.optional(2)), training=call.flag(5))


def layer_norm(call: Call) -> Work:
    """`native_layer_norm(x, normalized_shape, weight, bias, eps)`."""
    x, parameters = call.tensor(0), (call.optional(2), call.optional(3))
    return _forward(x, _normalized(call, 1, parameters[0]), parameters, training=True)


def group_norm(call: Call) -> Work:
    """`native_group_norm(x, weight, bias, N, C, HxW, groups, eps)`."""
    x = call.tensor(0)
    return _forward(x, _channels(x), (call.optional(1), call.optional(2)), training=True)


def rms_norm(call: Call) -> Work:
    """`_fused_rms_norm(x, normalized_shape, weight, eps)`."""
    x, weight = call.tensor(0), call.optional(2)
    size = _normalized(call, 1, weight)
    rows = x.count // size
    return Work(
        flops=rows * (2 * size + 2) + x.count * (2 if weight else 1),
        bytes=2 * x.bytes + (weight.bytes if weight else 0),
        precision=x.arithmetic,
    )


def batch_norm_backward(call: Call) -> Work:
    """`native_batch_norm_backward(grad, x, weight, …, train at 7, eps, mask at 9)`."""
    return _backward(
        call.tensor(1),
        _channels(call.tensor(1)),
        call.optional(2),
        mask=_mask(call, 9),
        training=call.flag(7),
    )


def vendor_batch_norm_backward(call: Call) -> Work:
    """`cudnn_batch_norm_backward(x, grad, weight, …)`: training, all three gradients."""
    x = call.tensor(0)
    return _backward(x, _channels(x), call.tensor(2), mask=[True] * 3, training=True)


def layer_norm_backward(call: Call) -> Work:
    """`native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, mask)`."""
    weight = call.optional(5)
    size = _normalized(call, 2, weight)
    return _backward(call.tensor(1), size, weight, mask=_mask(call, 7), training=True)


def group_norm_backward(call: Call) -> Work:
    """`native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask)`."""
    x = call.tensor(1)
    return _backward(x, _channels(x), call.optional(4), mask=_mask(call, 9), training=True)


def rms_norm_backward(call: Call) -> Work:
    """`_fused_rms_norm_backward(grad, x, normalized_shape, rstd, weight, mask)`."""
    x, weight = call.tensor(1), call.optional(4)
    size = _normalized(call, 2, weight)
    mask = _mask(call, 5)
    flops = x.count * (1 + (1 if weight else 0) + 6 * mask[0])
    bytes_ = x.bytes * (2 + mask[0])
    if weight:
        rows = x.count // size
        flops += x.count * (2 if rows > 1 else 1) * mask[1]
        bytes_ += weight.bytes * (1 + mask[1])
    return Work(flops=flops, bytes=bytes_, precision=x.arithmetic)


def _forward(
    x: Tensor,
    channels: int,
    parameters: tuple[Tensor | None, Tensor | None],
    *,
    training: bool,
) -> Work:
    given = sum(tensor.bytes for tensor in parameters if tensor)
    statistics = channels * x.item_bytes * (4 if training else 2)
    return Work(
        flops=x.count * (5 if training else 2) + 6 * channels,
        bytes=2 * x.bytes + given + statistics,
        precision=x.arithmetic,
    )


def _backward(
    x: Tensor,
    channels: int,
    weight: Tensor | None,
    *,
    mask: list[bool],
    training: bool,
) -> Work:
    for_input = (5 if training else 2) * mask[0]
    item = weight.item_bytes if weight else x.item_bytes
    per_channel = 2 + (1 if weight else 0) + sum(mask[1:])
    return Work(
        flops=x.count * (4 + for_input),
        bytes=x.bytes * (2 + mask[0]) + channels * item * per_channel,
        precision=x.arithmetic,
    )


def _channels(x: Tensor) -> int:
    if len(x.dims) < 2:
        raise NotModelledError("a norm needs channels")
    return x.dims[1]


def _normalized(call: Call, position: int, weight: Tensor | None) -> int:
    """Elements of one normalised row; the weight has as many, for recorders without values."""
    if weight is not None:
        return max(1, weight.count)
    sizes = call.integers(position)
    if not sizes:
        raise NotModelledError("the normalised shape was not recorded")
    return max(1, prod(sizes))


def _mask(call: Call, position: int) -> list[bool]:
    items = call.items(position)
    if items is None:
        raise NotModelledError("which gradients were asked for was not recorded")
    return [item == "True" for item in items]
