"""Models of pointwise operators of inference servers, which write into tensors among the arguments.

As in `pointwise`, one operation counts for each step on each element, and every tensor is read or
written once. Signatures: vLLM
(https://github.com/vllm-project/vllm/blob/main/csrc/libtorch_stable/torch_bindings.cpp), SGLang
(https://github.com/sgl-project/sglang/blob/main/sgl-kernel/csrc/common_extension.cc), AITER
(https://github.com/ROCm/aiter/tree/main/aiter/ops).
"""

from __future__ import annotations

from math import prod

from stepscope.analysis.roofline.calls import Call, NotModelledError, Work

_PAIR_OPERATIONS = 6


def gated_activation(call: Call, quantization: int = 0) -> Work:
    """Estimate `silu_and_mul(out[…,N], x[…,2N])` and variants: F = 2 n (activation, product).

    Args:
        call: the call of the operator.
        quantization: operations per element that convert the result to another type.
    """
    out, x = call.tensor(0), call.tensor(1)
    return Work(
        flops=(2 + quantization) * out.count,
        bytes=x.bytes + out.bytes,
        precision=x.arithmetic,
    )


def quantize(call: Call, x: int, out: int, operations: int) -> Work:
    """Estimate a conversion to a narrower type: F = n to scale, n more for maxima; scales ignored.

    Args:
        call: the call of the operator.
        x, out: positions of input and result.
        operations: 1 with a given scale, 2 if the scale is the maximum of the elements.
    """
    source, result = call.tensor(x), call.tensor(out)
    return Work(
        flops=operations * source.count,
        bytes=source.bytes + result.bytes,
        precision=source.arithmetic,
    )


def rotary_embedding(call: Call) -> Work:
    """Estimate `rotary_embedding(positions, query, key, head_size, cos_sin[…,D], is_neox)`.

    The rotation of a pair of elements is 4 multiplications and 2 additions, on D elements of each
    head, in place (https://arxiv.org/abs/2104.09864): with H heads of query and key,

        F = 3 T H D;  bytes = 2 T H D b + positions + min(T, rows) D b of the table
    """
    positions, query, key = call.tensor(0), call.tensor(1), call.optional(2)
    head_size, table = call.integer(3), call.matrix(4, 2)
    tokens, size = positions.dims[-1], table.dims[1]
    heads = sum(t.count // head_size for t in (query, key) if t is not None)
    if not tokens or heads % tokens or size > head_size:
        raise NotModelledError("the heads do not match the number of positions")
    rotated = heads * size
    return Work(
        flops=rotated // 2 * _PAIR_OPERATIONS,
        bytes=2 * rotated * query.item_bytes
        + positions.bytes
        + min(tokens, table.dims[0]) * size * table.item_bytes,
        precision=query.arithmetic,
    )


def store_cache(call: Call) -> Work:
    """Estimate `reshape_and_cache…(key, value, key_cache, value_cache, slots, …)`.

    Each slot receives one token: read in the type of key and value, written in that of the caches.
    Operations of a conversion to a narrower type are not counted.
    """
    slots = call.matrix(4, 1)
    moved = 0
    for position in (0, 1):
        x, cache = call.tensor(position), call.tensor(position + 2)
        moved += prod(x.dims[1:]) * (x.item_bytes + cache.item_bytes)
    return Work(
        flops=0,
        bytes=slots.count * moved + slots.bytes,
        precision=call.tensor(0).arithmetic,
    )
