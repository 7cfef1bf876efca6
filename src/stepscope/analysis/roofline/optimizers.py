"""Models of updates of many parameters in one call.

All of them stream over their lists once, so they are bound by bytes. Profilers do not record the
element type of a list; it is inferred from the kernel.
"""

from __future__ import annotations

from stepscope.analysis.roofline.calls import Call, Work

_ADAM_OPERATIONS = 13
_DECAY_OPERATIONS = 2


def foreach(call: Call, lists: int, operations: int = 1) -> Work:
    """Estimate `_foreach_…(lists, …)`: F = operations · n;  bytes = the lists + the result.

    In place, the result is the first list; the result of `_foreach_norm` is negligible.
    """
    operands = [call.tensor_list(i) for i in range(lists) if call.types[i] == "TensorList"]
    first = operands[0] if operands else call.tensor_list(0)
    written_bytes = 0 if call.name.endswith("_norm") else sum(tensor.bytes for tensor in first)
    return Work(
        flops=operations * sum(tensor.count for tensor in first),
        bytes=sum(tensor.bytes for tensors in operands for tensor in tensors) + written_bytes,
        precision=first[0].arithmetic,
    )


def adam(call: Call) -> Work:
    """Estimate `_fused_adam_` and `_fused_adamw_`.

    Arguments: `(params, grads, averages, squares, maxima, steps, …)`.

    Per element: the average 3 operations, the square 4, the denominator 3, the step 3, decay 2.
    bytes = 7 n b: parameter, average and square read and written, gradient read; 9 n b with
    maxima.
    """
    parameters = call.tensor_list(0)
    count = sum(tensor.count for tensor in parameters)
    with_maxima = len(call.dims) > 4 and bool(call.dims[4])
    return Work(
        flops=(_ADAM_OPERATIONS + _DECAY_OPERATIONS) * count,
        bytes=(9 if with_maxima else 7) * sum(tensor.bytes for tensor in parameters),
        precision=parameters[0].arithmetic,
    )


def sgd(call: Call) -> Work:
    """Estimate `_fused_sgd_(params, grads, momenta, …)`.

    Per element: the step 2 operations, decay 2, momentum 2. bytes = 3 n b (parameter read and
    written, gradient read), 5 n b with momentum.
    """
    parameters = call.tensor_list(0)
    count = sum(tensor.count for tensor in parameters)
    with_momentum = len(call.dims) > 2 and bool(call.dims[2])
    return Work(
        flops=(2 + _DECAY_OPERATIONS + (2 if with_momentum else 0)) * count,
        bytes=(5 if with_momentum else 3) * sum(tensor.bytes for tensor in parameters),
        precision=parameters[0].arithmetic,
    )


def unscale(call: Call) -> Work:
    """Estimate `_amp_foreach_non_finite_check_and_unscale_(grads, …)`: F = n;  bytes = 2 n b."""
    gradients = call.tensor_list(0)
    return Work(
        flops=sum(tensor.count for tensor in gradients),
        bytes=2 * sum(tensor.bytes for tensor in gradients),
        precision=gradients[0].arithmetic,
    )
