"""Models of operators with one pass over their operands: elementwise, reductions, updates, copies.

One operation counts for each element of the result (elementwise) or of the input (reduction),
regardless of the cost of the function; such operators are bound by memory, so the difference is
small. Bytes are those of operands as stored: an expanded tensor (stride 0) is read from memory
once. Copies do no arithmetic; TraceLens (https://github.com/AMD-AGI/TraceLens) counts one operation
per element for them, and one element as the result of a reduction, because it does not read the
dimensions.

Models of updates of many parameters in one call. All of them stream over their lists once, so they
are bound by bytes. Profilers do not record the element type of a list; it is inferred from the
kernel.

Model of the Triton kernels of torch.compile, by their names. Inductor names a kernel after the
operators that it fuses, each once and in order of the alphabet:
`triton_poi_fused__unsafe_view_mul_silu_2` (`get_fused_kernel_name`,
https://github.com/pytorch/pytorch/blob/main/torch/_inductor/utils.py). A pointwise kernel (`poi`)
runs each of them at least once per element. In a reduction (`red`, `per`), the name does not tell
the operators before it from those after it, so its arithmetic is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work
from stepscope.analysis.roofline.matrix import broadcast

_SOFTMAX_OPERATIONS = 5
_SOFTMAX_BACKWARD_OPERATIONS = 4
_DROPOUT_MASK_BYTES = 1
_INDEX_BYTES = 8


def elementwise(call: Call, inputs: int, operations: int = 1) -> Work:
    """Estimate a function of `inputs` tensors, broadcast against each other.

    F = operations · prod(out);  bytes = inputs as stored + out

    The result has the element size of the argument after the inputs if an `out=` tensor was
    passed, of the first input in place (`add_`), otherwise of the widest input that is not a single
    number.
    """
    operands = [t for i in range(inputs) if (t := call.optional(i)) is not None]
    if not operands:
        raise NotModelledError("no argument is a tensor of a known element type")
    shape = operands[0].dims
    if not call.name.endswith("_"):
        shape = broadcast(*(tensor.dims for tensor in operands))
    item_bytes = _find_result_item_bytes(call, operands, inputs, shape)
    return Work(
        flops=operations * prod(shape),
        bytes=sum(tensor.stored_bytes for tensor in operands) + prod(shape) * item_bytes,
        precision=operands[0].arithmetic,
    )


def comparison(call: Call, inputs: int = 2) -> Work:
    """Estimate an `elementwise` function with a result of one byte per element."""
    operands = [t for i in range(inputs) if (t := call.optional(i)) is not None]
    if not operands:
        raise NotModelledError("no argument is a tensor of a known element type")
    count = prod(broadcast(*(tensor.dims for tensor in operands)))
    return Work(
        flops=count,
        bytes=sum(tensor.stored_bytes for tensor in operands) + count,
        precision=operands[0].arithmetic,
    )


def dropout(call: Call) -> Work:
    """Estimate `native_dropout(x, p, train)`: also writes a mask of one byte per element.

    F = 2 n (compare, scale)
    """
    x = call.tensor(0)
    return Work(
        flops=2 * x.count,
        bytes=x.stored_bytes + x.count * (x.item_bytes + _DROPOUT_MASK_BYTES),
        precision=x.arithmetic,
    )


def generate(call: Call) -> Work:
    """Estimate `bernoulli_(x, p)`, `normal_(x, …)`: writes random numbers, unknown arithmetic."""
    x = call.tensor(0)
    return Work(flops=None, bytes=x.bytes, precision=x.arithmetic)


def mean_squared_error(call: Call) -> Work:
    """Estimate `mse_loss(x, target, reduction)`.

    F = 3 n (subtract, square, add);  bytes = both + the result, a single number if reduced
    """
    x, target = call.tensor(0), call.tensor(1)
    out = x.count if call.value(2) == "0" else 1
    return Work(
        flops=3 * x.count,
        bytes=x.stored_bytes + target.stored_bytes + out * x.item_bytes,
        precision=x.arithmetic,
    )


def max_pool(call: Call) -> Work:
    """Estimate `max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)`.

    F = prod(out) prod(kernel);  bytes = in + out + an index of eight bytes for each of out
    """
    x, kernel = call.tensor(0), call.integers(1) or []
    rank = len(kernel)
    stride, padding, dilation = (
        call.integers(position) or default
        for position, default in ((2, kernel), (3, [0] * rank), (4, [1] * rank))
    )
    out = prod(x.dims[:-rank])
    for i in range(rank):
        extent = x.dims[i - rank] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1
        out *= (-(-extent // stride[i]) if call.flag(5) else extent // stride[i]) + 1
    return Work(
        flops=out * prod(kernel),
        bytes=x.bytes + out * (x.item_bytes + _INDEX_BYTES),
        precision=x.arithmetic,
    )


def max_pool_backward(call: Call) -> Work:
    """Estimate `max_pool2d_with_indices_backward(grad, x, …, indices at 7)`.

    F = prod(grad);  bytes = grad + indices + the gradient of x
    """
    grad, x, indices = call.tensor(0), call.tensor(1), call.tensor(7)
    return Work(
        flops=grad.count,
        bytes=grad.stored_bytes + indices.bytes + x.bytes,
        precision=grad.arithmetic,
    )


def copy(call: Call) -> Work:
    """Estimate `copy_(to, from)`: reads one, writes the other."""
    target, source = call.tensor(0), call.tensor(1)
    return _make_movement(source.stored_bytes + target.bytes, target)


def fill(call: Call) -> Work:
    """Estimate `fill_(x, value)`, `zero_(x)`: writes x."""
    x = call.tensor(0)
    return _make_movement(x.bytes, x)


def concatenate(call: Call) -> Work:
    """Estimate `cat(tensors, dim)`: reads all, writes all."""
    tensors = call.tensor_list(0)
    size_bytes = sum(tensor.stored_bytes + tensor.bytes for tensor in tensors)
    return _make_movement(size_bytes, tensors[0])


def lookup(call: Call) -> Work:
    """Estimate `index_select(x, dim, index)`, `embedding(weight, index)`: reads selected rows.

    bytes = index + 2 · selected rows
    """
    if call.name.endswith("index_select"):
        x, index = call.tensor(0), call.tensor(2)
        size = x.dims[call.integer(1)] if x.dims else 1
    else:
        x, index = call.tensor(0), call.tensor(1)
        size = x.dims[0]
    row_elements = x.count // size if size else 0
    return _make_movement(index.bytes + 2 * index.count * row_elements * x.item_bytes, x)


def embedding_backward(call: Call) -> Work:
    """Estimate `embedding_dense_backward(grad[…,D], index, rows, …)`: adds into a new gradient.

    F = prod(grad);  bytes = grad + index + rows D b
    """
    grad, index = call.tensor(0), call.tensor(1)
    width = grad.dims[-1] if grad.dims else 1
    return Work(
        flops=grad.count,
        bytes=grad.stored_bytes + index.bytes + call.integer(2) * width * grad.item_bytes,
        precision=grad.arithmetic,
    )


def reduction(call: Call, operations: int = 1) -> Work:
    """Estimate sums, means, extremes and norms over all or some dimensions.

    F = operations · prod(in);  bytes = in as stored + out (+ an index of eight bytes each, if the
    operator also returns the position of the element)
    """
    x = call.tensor(0)
    out, with_index = _count_reduced(call, x)
    item_bytes = _INDEX_BYTES if "arg" in call.name else x.item_bytes
    if call.name.endswith(("::any", "::all")):
        item_bytes = 1
    return Work(
        flops=operations * x.count,
        bytes=x.stored_bytes + out * (item_bytes + (_INDEX_BYTES if with_index else 0)),
        precision=x.arithmetic,
    )


def extreme(call: Call) -> Work:
    """Estimate `max(x)`, `max(x, dim, keepdim)` (reductions), `max(x, other)` (elementwise)."""
    second = call.optional(1)
    return elementwise(call, 2) if second is not None else reduction(call)


def scan(call: Call) -> Work:
    """Estimate `cumsum(x, dim)`: F = n, as many elements out as in."""
    x = call.tensor(0)
    return Work(flops=x.count, bytes=x.stored_bytes + x.bytes, precision=x.arithmetic)


def softmax(call: Call) -> Work:
    """Estimate `_softmax(x, dim, half_to_float)` and its logarithm.

    F = 5 n (maximum, subtract, exponential, sum, divide);  bytes = in + out
    """
    x = call.tensor(0)
    item_bytes = 4 if call.flag(2) else x.item_bytes
    return Work(
        flops=_SOFTMAX_OPERATIONS * x.count,
        bytes=x.stored_bytes + x.count * item_bytes,
        precision=x.arithmetic,
    )


def softmax_backward(call: Call) -> Work:
    """Estimate `_softmax_backward_data(grad, out, dim, dtype)` and that of its logarithm.

    F = 4 n (multiply, sum, subtract, multiply);  bytes = grad + out + result
    """
    grad, out = call.tensor(0), call.tensor(1)
    return Work(
        flops=_SOFTMAX_BACKWARD_OPERATIONS * grad.count,
        bytes=grad.stored_bytes + out.stored_bytes + grad.bytes,
        precision=grad.arithmetic,
    )


def _make_movement(size_bytes: int, tensor: Tensor) -> Work:
    return Work(flops=0, bytes=size_bytes, precision=tensor.arithmetic)


def _find_result_item_bytes(
    call: Call, operands: list[Tensor], inputs: int, shape: tuple[int, ...]
) -> int:
    if call.name.endswith("_"):
        return operands[0].item_bytes
    out_tensors = [tensor for tensor in call.tensors(inputs) if tensor.dims == shape]
    if out_tensors:
        return out_tensors[-1].item_bytes
    with_shape = [tensor.item_bytes for tensor in operands if tensor.dims]
    return max(with_shape, default=operands[0].item_bytes)


def _count_reduced(call: Call, x: Tensor) -> tuple[int, bool]:
    """Count the elements of the result, and check whether their indices are returned too."""
    dims = call.integers(1)
    if dims is None:
        dims = call.integers(2)  # in norms, the order comes first
    with_index = False
    if dims is None and _has_one_dimension(call):
        dims = [call.integer(1)]
        with_index = call.name.endswith(("::max", "::min"))
    if not dims:
        return 1, False
    reduced = {dim % len(x.dims) for dim in dims} if x.dims else set()
    return prod(size for i, size in enumerate(x.dims) if i not in reduced), with_index


def _has_one_dimension(call: Call) -> bool:
    """Recognize `max(x, dim, keepdim)`, `argmax(x, dim, keepdim)`: a number, then a boolean."""
    number = call.value(1)
    return (
        number is not None and number.lstrip("-").isdigit() and call.value(2) in {"True", "False"}
    )


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
