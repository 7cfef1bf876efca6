"""Products of matrices.

Source: the definition of BLAS's GEMM; `torch.utils.flop_counter` counts the same, without the
addition of a bias. Bytes are those of a kernel that reads each operand and writes each result
once.
"""

from __future__ import annotations

from math import prod

from stepscope.analysis.roofline.calls import (
    SCALAR_TYPE_BYTES,
    Call,
    NotModelledError,
    Tensor,
    Work,
)


def product(
    a: Tensor,
    b: Tensor,
    sizes: tuple[int, int, int],
    *,
    batch: int = 1,
    bias_elements: int = 0,
    out_item_bytes: int | None = None,
) -> Work:
    """`batch` products of M by K and K by N matrices.

    F = batch (2 M N K [+ M N with a bias]);  bytes = batch (M K a + K N b + M N out) + bias b

    Args:
        a, b: for their element types.
        sizes: M, N, K.
        bias_elements: elements of what is added.
        out_item_bytes: of the result; a's if None.
    """
    m, n, k = sizes
    out = a.item_bytes if out_item_bytes is None else out_item_bytes
    return Work(
        flops=batch * (2 * m * n * k + (m * n if bias_elements else 0)),
        bytes=batch * (m * k * a.item_bytes + k * n * b.item_bytes + m * n * out)
        + bias_elements * out,
        precision=a.precision,
        matrix=True,
    )


def mm(call: Call) -> Work:
    """`mm(a[M,K], b[K,N])`."""
    return _plain(call, 0)


def bmm(call: Call) -> Work:
    """`bmm(a[B,M,K], b[B,K,N])`: B products."""
    return _batched(call, 0)


def addmm(call: Call) -> Work:
    """`addmm(c, a[M,K], b[K,N], beta, alpha)`: c is read as stored; not at all with beta 0."""
    return _plain(call, 1, _added(call, 3))


def baddbmm(call: Call) -> Work:
    """`baddbmm(c, a[B,M,K], b[B,K,N], beta, alpha)`."""
    return _batched(call, 1, _added(call, 3))


def addbmm(call: Call) -> Work:
    """`addbmm(c, a[B,M,K], b[B,K,N])`: the products are summed into one M by N matrix.

    F = 2 B M N K + M N;  bytes as B products with a single result
    """
    a, b = call.matrix(1, 3), call.matrix(2, 3)
    batch, m, k = a.dims
    return product(a, b, (m, b.dims[2], batch * k), bias_elements=_added(call, 3))


def linear(call: Call) -> Work:
    """`linear(x[…,K], w[N,K], bias[N])`, where a backend runs it as one operator."""
    x, w, bias = call.tensor(0), call.matrix(1, 2), call.optional(2)
    n, k = w.dims
    rows = x.count // k if k else 0
    return product(x, w, (rows, n, k), bias_elements=bias.count if bias else 0)


def matmul(call: Call) -> Work:
    """`matmul(a[…,M,K], b[…,K,N])` with batches broadcast, where it is one operator."""
    a, b = call.tensor(0), call.tensor(1)
    left, right = a.dims, b.dims
    if len(left) < 2 or len(right) < 2:
        raise NotModelledError("matmul of vectors is not")
    batch = prod(broadcast(left[:-2], right[:-2]))
    return product(a, b, (left[-2], right[-1], left[-1]), batch=batch)


def mv(call: Call) -> Work:
    """`mv(a[M,K], x[K])`."""
    a, x = call.matrix(0, 2), call.matrix(1, 1)
    return product(a, x, (a.dims[0], 1, a.dims[1]))


def addmv(call: Call) -> Work:
    """`addmv(c, a[M,K], x[K], beta, alpha)`."""
    a, x = call.matrix(1, 2), call.matrix(2, 1)
    return product(a, x, (a.dims[0], 1, a.dims[1]), bias_elements=_added(call, 3))


def dot(call: Call) -> Work:
    """`dot(x[K], y[K])`."""
    x, y = call.matrix(0, 1), call.matrix(1, 1)
    return product(x, y, (1, 1, x.dims[0]))


def scaled_mm(call: Call) -> Work:
    """`_scaled_mm(a[M,K], b[K,N], scales…, bias, out_dtype)` of FP8 or FP4 matrices.

    As `mm`, with the result in `out_dtype`, two bytes an element where that was not recorded. An
    element of FP4 holds two numbers, so K is twice what the shape says. The scales, one for each
    tensor, row or block, are left out: they are thousands of times smaller. A bias is told from
    them by its two bytes an element.
    """
    a, b = call.matrix(0, 2), call.matrix(1, 2)
    m, n = a.dims[0], b.dims[1]
    packed = 2 if a.precision == "fp4" else 1
    bias = next((t for t in call.tensors(2) if t.dims == (n,) and t.item_bytes == 2), None)
    out = 2
    for position in range(2, len(call.types)):
        text = call.values[position] if position < len(call.values) else ""
        out = SCALAR_TYPE_BYTES.get(text, out)
    work = product(
        a, b, (m, n, a.dims[1]), bias_elements=bias.count if bias else 0, out_item_bytes=out
    )
    flops = 2 * m * n * a.dims[1] * packed + (m * n if bias else 0)
    return Work(flops=flops, bytes=work.bytes, precision=a.precision, matrix=True)


def int_mm(call: Call) -> Work:
    """`_int_mm(a[M,K], b[K,N])`: 8-bit integers into a 32-bit result."""
    a, b = call.matrix(0, 2), call.matrix(1, 2)
    return product(a, b, (a.dims[0], b.dims[1], a.dims[1]), out_item_bytes=4)


def grouped_mm(call: Call) -> Work:
    """`_grouped_mm(a, b, offsets)`: groups of rows, or of columns of K, with a matrix each.

    F = 2 M N K however the offsets split rows (a[M,K], b[G,K,N]) or K (a[M,K], b[K,N], result
    [G,M,N]); a[G,M,K] with b[G,K,N] are G products.
    """
    a, b = call.tensor(0), call.tensor(1)
    ranks = (len(a.dims), len(b.dims))
    if ranks == (3, 3):
        batch, m, k = a.dims
        return product(a, b, (m, b.dims[2], k), batch=batch, out_item_bytes=2)
    offsets = call.tensor(4 if call.name.endswith("_scaled_grouped_mm") else 2)
    if ranks == (2, 3):
        (m, k), n, results = a.dims, b.dims[2], 1
    elif ranks == (2, 2):
        (m, k), n, results = a.dims, b.dims[1], offsets.count
    else:
        raise NotModelledError("this arrangement of groups is not")
    return Work(
        flops=2 * m * n * k,
        bytes=a.bytes + b.bytes + results * m * n * 2,
        precision=a.precision,
        matrix=True,
    )


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that tensors of these shapes are broadcast to."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    merged = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise NotModelledError("the shapes do not broadcast")
        merged.append(wide.pop() if wide else 1)
    return tuple(merged)


def _plain(call: Call, first: int, bias_elements: int = 0) -> Work:
    a, b = call.matrix(first, 2), call.matrix(first + 1, 2)
    return product(a, b, (a.dims[0], b.dims[1], a.dims[1]), bias_elements=bias_elements)


def _batched(call: Call, first: int, bias_elements: int = 0) -> Work:
    a, b = call.matrix(first, 3), call.matrix(first + 1, 3)
    batch, m, k = a.dims
    return product(a, b, (m, b.dims[2], k), batch=batch, bias_elements=bias_elements)


def _added(call: Call, beta: int) -> int:
    """Elements of the first argument that are read and added."""
    factor = call.values[beta] if beta < len(call.values) else "1"
    return 0 if factor in {"0", "0."} else call.tensor(0).count
