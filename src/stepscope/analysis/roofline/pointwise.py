"""What passes over its operands once: element by element, reductions, softmax, lookups, copies.

One operation is counted for each element of the result (elementwise) or of the input (reduction),
whatever the function costs; such operators wait for memory, so it matters little. Bytes are those
of operands as they are stored: a tensor that was only expanded (stride 0) is read from memory
once. Copies do no arithmetic; TraceLens gives them an operation an element, and lets a reduction
write one element, because it cannot read the dimensions.
"""

from __future__ import annotations

from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work
from stepscope.analysis.roofline.matrix import broadcast

_SOFTMAX_OPERATIONS = 5
_SOFTMAX_BACKWARD_OPERATIONS = 4
_DROPOUT_MASK_BYTES = 1
_INDEX_BYTES = 8


def elementwise(call: Call, inputs: int, operations: int = 1) -> Work:
    """A function of `inputs` tensors, broadcast against one another.

    F = operations · prod(out);  bytes = inputs as stored + out

    The result is what follows the inputs where an `out=` tensor was passed, the first input in
    place (`add_`), else as wide as the widest input that is not a single number.
    """
    operands = [t for i in range(inputs) if (t := call.optional(i)) is not None]
    if not operands:
        raise NotModelledError("no argument is a tensor of a known element type")
    shape = operands[0].dims
    if not call.name.endswith("_"):
        shape = broadcast(*(tensor.dims for tensor in operands))
    item = _result_item_bytes(call, operands, inputs, shape)
    return Work(
        flops=operations * prod(shape),
        bytes=sum(tensor.stored_bytes for tensor in operands) + prod(shape) * item,
        precision=operands[0].arithmetic,
    )


def comparison(call: Call, inputs: int = 2) -> Work:
    """As `elementwise`, with a result of one byte an element."""
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
    """`native_dropout(x, p, train)`: also writes a mask of one byte an element.

    F = 2 n (compare, scale)
    """
    x = call.tensor(0)
    return Work(
        flops=2 * x.count,
        bytes=x.stored_bytes + x.count * (x.item_bytes + _DROPOUT_MASK_BYTES),
        precision=x.arithmetic,
    )


def generate(call: Call) -> Work:
    """`bernoulli_(x, p)`, `normal_(x, …)`: writes random numbers; how they are made is unknown."""
    x = call.tensor(0)
    return Work(flops=None, bytes=x.bytes, precision=x.arithmetic)


def mean_squared_error(call: Call) -> Work:
    """`mse_loss(x, target, reduction)`.

    F = 3 n (subtract, square, add);  bytes = both + the result, a single number when reduced
    """
    x, target = call.tensor(0), call.tensor(1)
    out = x.count if call.value(2) == "0" else 1
    return Work(
        flops=3 * x.count,
        bytes=x.stored_bytes + target.stored_bytes + out * x.item_bytes,
        precision=x.arithmetic,
    )


def max_pool(call: Call) -> Work:
    """`max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)`.

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
        room = x.dims[i - rank] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1
        out *= (-(-room // stride[i]) if call.flag(5) else room // stride[i]) + 1
    return Work(
        flops=out * prod(kernel),
        bytes=x.bytes + out * (x.item_bytes + _INDEX_BYTES),
        precision=x.arithmetic,
    )


def max_pool_backward(call: Call) -> Work:
    """`max_pool2d_with_indices_backward(grad, x, …, indices at 7)`.

    F = prod(grad);  bytes = grad + indices + the gradient of x
    """
    grad, x, indices = call.tensor(0), call.tensor(1), call.tensor(7)
    return Work(
        flops=grad.count,
        bytes=grad.stored_bytes + indices.bytes + x.bytes,
        precision=grad.arithmetic,
    )


def copy(call: Call) -> Work:
    """`copy_(to, from)`: reads one, writes the other."""
    to, source = call.tensor(0), call.tensor(1)
    return _moved(source.stored_bytes + to.bytes, to)


def fill(call: Call) -> Work:
    """`fill_(x, value)`, `zero_(x)`: writes x."""
    x = call.tensor(0)
    return _moved(x.bytes, x)


def concatenate(call: Call) -> Work:
    """`cat(tensors, dim)`: reads all, writes all."""
    tensors = call.tensor_list(0)
    stored = sum(tensor.stored_bytes + tensor.bytes for tensor in tensors)
    return _moved(stored, tensors[0])


def lookup(call: Call) -> Work:
    """`index_select(x, dim, index)`, `embedding(weight, index)`: only the chosen rows are read.

    bytes = index + 2 · chosen rows
    """
    if call.name.endswith("index_select"):
        x, index = call.tensor(0), call.tensor(2)
        size = x.dims[call.integer(1)] if x.dims else 1
    else:
        x, index = call.tensor(0), call.tensor(1)
        size = x.dims[0]
    row = x.count // size if size else 0
    return _moved(index.bytes + 2 * index.count * row * x.item_bytes, x)


def embedding_backward(call: Call) -> Work:
    """`embedding_dense_backward(grad[…,D], index, rows, …)`: adds into a fresh gradient.

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
    """Sums, means, extremes, norms over all dimensions or some.

    F = operations · prod(in);  bytes = in as stored + out (+ an index of eight bytes each, where
    the operator also says which element it was)
    """
    x = call.tensor(0)
    out, with_index = _reduced(call, x)
    item = _INDEX_BYTES if "arg" in call.name else x.item_bytes
    if call.name.endswith(("::any", "::all")):
        item = 1
    return Work(
        flops=operations * x.count,
        bytes=x.stored_bytes + out * (item + (_INDEX_BYTES if with_index else 0)),
        precision=x.arithmetic,
    )


def extreme(call: Call) -> Work:
    """`max(x)`, `max(x, dim, keepdim)`: a reduction; `max(x, other)`: elementwise."""
    other = call.optional(1)
    return elementwise(call, 2) if other is not None else reduction(call)


def scan(call: Call) -> Work:
    """`cumsum(x, dim)`: F = n, as many elements out as in."""
    x = call.tensor(0)
    return Work(flops=x.count, bytes=x.stored_bytes + x.bytes, precision=x.arithmetic)


def softmax(call: Call) -> Work:
    """`_softmax(x, dim, half_to_float)` and its logarithm.

    F = 5 n (maximum, subtract, exponential, sum, divide);  bytes = in + out
    """
    x = call.tensor(0)
    item = 4 if call.flag(2) else x.item_bytes
    return Work(
        flops=_SOFTMAX_OPERATIONS * x.count,
        bytes=x.stored_bytes + x.count * item,
        precision=x.arithmetic,
    )


def softmax_backward(call: Call) -> Work:
    """`_softmax_backward_data(grad, out, dim, dtype)` and its logarithm's.

    F = 4 n (multiply, sum, subtract, multiply);  bytes = grad + out + result
    """
    grad, out = call.tensor(0), call.tensor(1)
    return Work(
        flops=_SOFTMAX_BACKWARD_OPERATIONS * grad.count,
        bytes=grad.stored_bytes + out.stored_bytes + grad.bytes,
        precision=grad.arithmetic,
    )


def compiled(call: Call) -> Work:
    """A Triton kernel of torch.compile: its arguments are what it reads and what it writes.

    bytes = each tensor once; what it reads and writes in place counts once, so they are the least
    they can be. Nothing tells the arithmetic.
    """
    tensors = call.tensors()
    if not tensors:
        raise NotModelledError("no argument is a tensor of a known element type")
    return Work(
        flops=None,
        bytes=sum(tensor.stored_bytes for tensor in tensors),
        precision=tensors[0].arithmetic,
        note="bytes of the arguments, each once; the arithmetic is unknown",
    )


def _moved(count: int, tensor: Tensor) -> Work:
    return Work(flops=0, bytes=count, precision=tensor.arithmetic)


def _result_item_bytes(
    call: Call, operands: list[Tensor], inputs: int, shape: tuple[int, ...]
) -> int:
    if call.name.endswith("_"):
        return operands[0].item_bytes
    passed = [tensor for tensor in call.tensors(inputs) if tensor.dims == shape]
    if passed:
        return passed[-1].item_bytes
    with_shape = [tensor.item_bytes for tensor in operands if tensor.dims]
    return max(with_shape, default=operands[0].item_bytes)


def _reduced(call: Call, x: Tensor) -> tuple[int, bool]:
    """Elements of the result, and whether their places are returned too."""
    dims = call.integers(1)
    if dims is None:
        dims = call.integers(2)  # norms name their order first
    by_place = False
    if dims is None and _takes_one_dimension(call):
        dims = [call.integer(1)]
        by_place = call.name.endswith(("::max", "::min"))
    if not dims:
        return 1, False
    gone = {dim % len(x.dims) for dim in dims} if x.dims else set()
    return prod(size for i, size in enumerate(x.dims) if i not in gone), by_place


def _takes_one_dimension(call: Call) -> bool:
    """`max(x, dim, keepdim)`, `argmax(x, dim, keepdim)`: a number, then a boolean."""
    number = call.value(1)
    return (
        number is not None and number.lstrip("-").isdigit() and call.value(2) in {"True", "False"}
    )
