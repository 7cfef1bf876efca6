"""Models of matrix products.

Source: the definition of GEMM in BLAS
(https://en.wikipedia.org/wiki/Basic_Linear_Algebra_Subprograms#Level_3);
`torch.utils.flop_counter` counts the same, without the addition of a bias. Bytes are those of a
kernel that reads each operand and writes each result once.
"""

from __future__ import annotations

from math import prod

from stepscope.analysis.roofline import calls

_WIDTHS: tuple[calls.Precision, ...] = (
    *("mxfp4", "fp4", "int8", "fp8", "fp16", "bf16", "tf32", "fp32", "fp64"),
)
"""Precisions by the width of their numbers; of 16 bits, the one with the larger range is wider."""
_MX_SCALE = "c10::Float8_e8m0fnu"
"""Type of the scales of microscaling formats: a power of two."""
_MX_RECIPE = 3
"""Number of `ScalingType.BlockWise1x32`."""


def product(
    a: calls.Tensor,
    b: calls.Tensor,
    sizes: tuple[int, int, int],
    *,
    batch: int = 1,
    bias_elements: int = 0,
    out_item_bytes: int | None = None,
) -> calls.Work:
    """Estimate the work of `batch` products of M by K and K by N matrices.

    F = batch (2 M N K [+ M N with a bias]);  bytes = batch (M K a + K N b + M N out) + bias b

    Args:
        a, b: operands, for their element types.
        sizes: M, N, K.
        batch: number of products.
        bias_elements: number of elements of the bias.
        out_item_bytes: bytes of one element of the result; those of a if None.
    """
    m, n, k = sizes
    item_bytes = a.item_bytes if out_item_bytes is None else out_item_bytes
    return calls.Work(
        flops=batch * (2 * m * n * k + (m * n if bias_elements else 0)),
        bytes=batch * (m * k * a.item_bytes + k * n * b.item_bytes + m * n * item_bytes)
        + bias_elements * item_bytes,
        precision=choose_wider(a.precision, b.precision),
        matrix=True,
    )


def choose_wider(a: calls.Precision, b: calls.Precision) -> calls.Precision:
    """Choose the precision in which operands of two precisions are multiplied: the wider one.

    >>> choose_wider("fp4", "bf16"), choose_wider("fp8", "mxfp4")
    ('bf16', 'fp8')
    """
    return max(a, b, key=_WIDTHS.index)


def mm(call: calls.Call) -> calls.Work:
    """Estimate `mm(a[M,K], b[K,N])`."""
    return _estimate_plain(call, 0)


def bmm(call: calls.Call) -> calls.Work:
    """Estimate `bmm(a[B,M,K], b[B,K,N])`: B products."""
    return _estimate_batched(call, 0)


def addmm(call: calls.Call) -> calls.Work:
    """Estimate `addmm(c, a[M,K], b[K,N], beta, alpha)`: c is read as stored, not with beta 0."""
    return _estimate_plain(call, 1, _count_added(call, 3))


def baddbmm(call: calls.Call) -> calls.Work:
    """Estimate `baddbmm(c, a[B,M,K], b[B,K,N], beta, alpha)`."""
    return _estimate_batched(call, 1, _count_added(call, 3))


def addbmm(call: calls.Call) -> calls.Work:
    """Estimate `addbmm(c, a[B,M,K], b[B,K,N])`: the products are summed into one M by N matrix.

    F = 2 B M N K + M N;  bytes as B products with a single result
    """
    a, b = call.matrix(1, 3), call.matrix(2, 3)
    batch, m, k = a.dims
    return product(a, b, (m, b.dims[2], batch * k), bias_elements=_count_added(call, 3))


def linear(call: calls.Call) -> calls.Work:
    """Estimate `linear(x[…,K], w[N,K], bias[N])`, if a backend runs it as one operator."""
    x, w, bias = call.tensor(0), call.matrix(1, 2), call.optional(2)
    n, k = w.dims
    rows = x.count // k if k else 0
    return product(x, w, (rows, n, k), bias_elements=bias.count if bias else 0)


def swapped_linear(call: calls.Call) -> calls.Work:
    """Estimate `wvSplitK(w[N,K], x[M,K], bias, …)` of vLLM on AMD devices, for few rows of x."""
    w, x = call.matrix(0, 2), call.matrix(1, 2)
    bias = call.optional(2)
    sizes = (x.dims[0], w.dims[0], x.dims[1])
    return product(x, w, sizes, bias_elements=bias.count if bias else 0)


def matmul(call: calls.Call) -> calls.Work:
    """Estimate `matmul(a[…,M,K], b[…,K,N])` with broadcast batches, if it is one operator."""
    a, b = call.tensor(0), call.tensor(1)
    if len(a.dims) < 2 or len(b.dims) < 2:
        raise calls.NotModelledError("matmul of vectors is not modelled")
    batch = prod(broadcast(a.dims[:-2], b.dims[:-2]))
    return product(a, b, (a.dims[-2], b.dims[-1], a.dims[-1]), batch=batch)


def mv(call: calls.Call) -> calls.Work:
    """Estimate `mv(a[M,K], x[K])`."""
    a, x = call.matrix(0, 2), call.matrix(1, 1)
    return product(a, x, (a.dims[0], 1, a.dims[1]))


def addmv(call: calls.Call) -> calls.Work:
    """Estimate `addmv(c, a[M,K], x[K], beta, alpha)`."""
    a, x = call.matrix(1, 2), call.matrix(2, 1)
    return product(a, x, (a.dims[0], 1, a.dims[1]), bias_elements=_count_added(call, 3))


def dot(call: calls.Call) -> calls.Work:
    """Estimate `dot(x[K], y[K])`."""
    x, y = call.matrix(0, 1), call.matrix(1, 1)
    return product(x, y, (1, 1, x.dims[0]))


def scaled_mm(call: calls.Call) -> calls.Work:
    """Estimate `_scaled_mm(a[M,K], b[K,N], scales…, bias, out_dtype)` of FP8 or FP4 matrices.

    As `mm`, with the result in `out_dtype` (two bytes per element if that was not recorded). An
    element of FP4 is two numbers, so K is twice the size in its shape. FP4 with scales in E8M0 is
    MXFP4. The bytes of the scales, one per tensor, row or block, are ignored: they are few. A bias
    differs from them by its two bytes per element. `_scaled_mm_v2` has its scales in lists, and
    numbers their kinds: `torch.nn.functional.ScalingType`.
    """
    a, b = call.matrix(0, 2), call.matrix(1, 2)
    m, n = a.dims[0], b.dims[1]
    bias = next((t for t in call.tensors(2) if t.dims == (n,) and t.item_bytes == 2), None)
    out = _find_scalar_type_bytes(call) or 2
    return calls.Work(
        flops=2 * m * n * _count_inner(a) + (m * n if bias else 0),
        bytes=a.bytes + b.bytes + (m * n + (n if bias else 0)) * out,
        precision=_find_scaled_precision(call, a, b),
        matrix=True,
    )


def quantized_linear(call: calls.Call, weight: int = 1) -> calls.Work:
    """Estimate `gemm_a8w8…(x[M,K], w[N,K], scales…, out[M,N])` of AITER, and similar of vLLM.

    As `scaled_mm` with the weight transposed; the result has two bytes per element if no tensor for
    it is among the arguments. Signatures: https://github.com/ROCm/aiter/tree/main/aiter/ops,
    https://github.com/vllm-project/vllm/tree/main/vllm/model_executor/kernels/linear.

    Args:
        call: the call of the operator.
        weight: position of w.
    """
    x, w = call.matrix(0, 2), call.matrix(weight, 2)
    m, n = x.dims[0], w.dims[0]
    out = next((t for t in call.tensors(2) if t.dims == (m, n) and t.item_bytes > 1), None)
    return calls.Work(
        flops=2 * m * n * _count_inner(x),
        bytes=x.bytes + w.bytes + m * n * (out.item_bytes if out else 2),
        precision=choose_wider(x.precision, w.precision),
        matrix=True,
    )


def fp4_linear(
    call: calls.Call, precision: calls.Precision, first: int = 0, out: int | None = None
) -> calls.Work:
    """Estimate products of matrices in FP4, with two numbers per byte: x[M,K/2] and w[N,K/2].

    x[M,K] of a wider type is converted by the operator. PyTorch may record the bytes as such, so
    the operator determines the precision.

    Args:
        call: the call of the operator.
        precision: format of the numbers.
        first: position of x; w follows.
        out: position of the result; two bytes per element without one.
    """
    x, w = call.matrix(first, 2), call.matrix(first + 1, 2)
    k = 2 * w.dims[1]
    if w.item_bytes != 1 or x.dims[1] * (2 if x.item_bytes == 1 else 1) != k:
        raise calls.NotModelledError("the weight does not hold two numbers per byte")
    m, n = x.dims[0], w.dims[0]
    item_bytes = call.tensor(out).item_bytes if out is not None else 2
    return calls.Work(
        flops=2 * m * n * k,
        bytes=x.bytes + w.bytes + m * n * item_bytes,
        precision=precision,
        matrix=True,
    )


def marlin(call: calls.Call) -> calls.Work:
    """Estimate `marlin_gemm(a[M,K], …, w at 2, …, M, N, K, …)` of vLLM (https://arxiv.org/abs/2408.11743).

    The packed weight is read as stored, and multiplied in the type of a.
    """
    a, w = call.matrix(0, 2), call.tensor(2)
    position = find_sizes(call, a.dims)
    m, n, k = (call.integer(position + i) for i in range(3))
    return calls.Work(
        flops=2 * m * n * k,
        bytes=a.bytes + w.bytes + m * n * max(2, a.item_bytes),
        precision=a.precision,
        matrix=True,
    )


def find_sizes(call: calls.Call, dims: tuple[int, ...]) -> int:
    """Find the position of the numbers M, N, K among the arguments of a product of a[M,K].

    Versions differ in the arguments before them.
    """
    texts = [str(size) for size in dims]
    fitting = [
        i for i in range(len(call.values) - 2) if [call.values[i], call.values[i + 2]] == texts
    ]
    if len(fitting) != 1:
        raise calls.NotModelledError("the sizes of the product are not among the arguments")
    return fitting[0]


def cutlass_scaled_mm(call: calls.Call) -> calls.Work:
    """Estimate `cutlass_scaled_mm(out[M,N], a[M,K], b[K,N], scales, scales, bias)` of vLLM."""
    out, a, b = (call.matrix(position, 2) for position in range(3))
    bias = call.optional(5)
    return product(
        a,
        b,
        (a.dims[0], b.dims[1], a.dims[1]),
        bias_elements=bias.count if bias else 0,
        out_item_bytes=out.item_bytes,
    )


def int_mm(call: calls.Call) -> calls.Work:
    """Estimate `_int_mm(a[M,K], b[K,N])`: 8-bit integers, 32-bit result."""
    a, b = call.matrix(0, 2), call.matrix(1, 2)
    return product(a, b, (a.dims[0], b.dims[1], a.dims[1]), out_item_bytes=4)


def grouped_mm(call: calls.Call, offsets: int = 2) -> calls.Work:
    """Estimate `_grouped_mm(a, b, offsets, bias, out_dtype)`: one product per group.

    The offsets split the rows of a[M,K] (with b[G,K,N]), the columns of b[K,N] (with a[G,M,K]) or
    the inner dimension (a[M,K] with b[K,N], result [G,M,N]): F = 2 M N K for any split, so the
    routing of tokens to experts does not matter. a[G,M,K] with b[G,K,N] are G products. All
    matrices of b are read, even those of groups without rows. FP4 and scales as in `scaled_mm`.

    Args:
        call: the call of the operator.
        offsets: position of the offsets.
    """
    a, b = call.tensor(0), call.tensor(1)
    m, n, k = a.dims[-2], b.dims[-1], _count_inner(a)
    ranks = (len(a.dims), len(b.dims))
    if ranks == (3, 3):
        products, results = a.dims[0], a.dims[0]
    elif ranks in {(2, 3), (3, 2)}:
        products, results = 1, 1
    elif ranks == (2, 2):
        products, results = 1, call.tensor(offsets).count
    else:
        raise calls.NotModelledError("this arrangement of groups is not modelled")
    scaled = a.item_bytes == 1
    out = _find_scalar_type_bytes(call) or (2 if scaled else a.item_bytes)
    return calls.Work(
        flops=products * 2 * m * n * k,
        bytes=a.bytes + b.bytes + results * m * n * out,
        precision=_find_scaled_precision(call, a, b)
        if scaled
        else choose_wider(a.precision, b.precision),
        matrix=True,
    )


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Compute the shape that tensors are broadcast to."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    merged = []
    for sizes in zip(*padded, strict=True):
        expanded = {size for size in sizes if size != 1}
        if len(expanded) > 1:
            raise calls.NotModelledError("the shapes do not broadcast")
        merged.append(expanded.pop() if expanded else 1)
    return tuple(merged)


def _count_inner(a: calls.Tensor) -> int:
    """Count the numbers in a row of a matrix; an element of FP4 is two."""
    return a.dims[-1] * (2 if a.precision == "fp4" else 1)


def _find_scalar_type_bytes(call: calls.Call) -> int | None:
    """Find the bytes of the type of the result, if a scalar after the operands is one."""
    positions = range(2, min(len(call.types), len(call.values)))
    types = [b for i in positions if (b := calls.SCALAR_TYPE_BYTES.get(call.values[i])) is not None]
    return types[-1] if types else None


def _find_scaled_precision(call: calls.Call, a: calls.Tensor, b: calls.Tensor) -> calls.Precision:
    """Find the precision of operands with scales: MXFP4 for FP4 with scales of that format."""
    precision = choose_wider(a.precision, b.precision)
    if precision != "fp4":
        return precision
    has_mx_scales = any(tensor.type == _MX_SCALE for tensor in call.tensors(2))
    is_v2 = call.name.endswith("_v2")
    return "mxfp4" if has_mx_scales or (is_v2 and _has_mx_recipe(call)) else precision


def _has_mx_recipe(call: calls.Call) -> bool:
    """Check that the scales of both operands of a `_v2` operator are those of MX formats."""
    return call.integers(3) == call.integers(6) == [_MX_RECIPE]


def _estimate_plain(call: calls.Call, first: int, bias_elements: int = 0) -> calls.Work:
    a, b = call.matrix(first, 2), call.matrix(first + 1, 2)
    return product(a, b, (a.dims[0], b.dims[1], a.dims[1]), bias_elements=bias_elements)


def _estimate_batched(call: calls.Call, first: int, bias_elements: int = 0) -> calls.Work:
    a, b = call.matrix(first, 3), call.matrix(first + 1, 3)
    batch, m, k = a.dims
    return product(a, b, (m, b.dims[2], k), batch=batch, bias_elements=bias_elements)


def _count_added(call: calls.Call, beta: int) -> int:
    """Count the elements of the first argument that are read and added."""
    factor = call.values[beta] if beta < len(call.values) else "1"
    return 0 if factor in {"0", "0."} else call.tensor(0).count
