"""Models of layers of experts (mixture of experts, MoE), of which each token visits k.

A token visits k experts whichever these are, so the operations follow from the number of tokens T
alone, and not from the routing. With weights w1[E,R,K] (R = 2 N if gated, else N) and w2[E,K,N],

    F = T k (2 K R + 2 N K);  bytes = T K (in + out) + experts read (R K + K N) b + routing

Products with a matrix per expert are one of the two terms, with T k rows of input, or T rows that
k experts share, and T k rows of output, or their sums. Activation, weighting and sum are ignored:
they are K or N times smaller; TraceLens (https://github.com/AMD-AGI/TraceLens) counts the last.

The experts read are between k and min(E, T k), depending on the routing, which is not in a trace;
min(E, T k) is assumed here. TraceLens assumes uniform routing instead, E (1 - (1 - k/E)^T), which
is nearly the same for many tokens. Their scales are ignored.

Packed weights: an element of the last dimension is K / w1.dims[2] numbers.

With experts on several devices (expert parallelism), the tokens of the local ones are unknown, and
so is the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analysis.roofline.calls import (
    PRECISIONS,
    Call,
    NotModelledError,
    Precision,
    Tensor,
    Work,
)
from stepscope.analysis.roofline.matrix import choose_wider, find_sizes

_OTHER_DEVICES = "the number of tokens of the experts of this device is unknown"
_NUMBERS_PER_ELEMENT = {1, 2, 4, 8}
"""Numbers that one element of packed weights can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayout:
    """Positions of the arguments of a whole layer of experts."""

    hidden: int = 0
    """Position of the input [T,K]; w1 and w2 follow."""
    out: int | None = None
    top_k: int | None = None
    """Position of k; without it, the ids of the experts [T,k] follow w2 and their weights."""


def fused_experts(call: Call, at: ExpertLayout) -> Work:
    """Estimate a whole layer: both products of all visited experts."""
    hidden = call.matrix(at.hidden, 2)
    w1, w2 = call.matrix(at.hidden + 1, 3), call.matrix(at.hidden + 2, 3)
    tokens, k = hidden.dims
    top_k, routing_bytes = _read_routing(call, at)
    numbers = k // w1.dims[2]
    if numbers not in _NUMBERS_PER_ELEMENT or (w1.dims[2] * numbers, w2.dims[1]) != (k, k):
        raise NotModelledError("the layout of the weights of the experts is unknown")
    out = call.tensor(at.out) if at.out is not None else hidden
    active, note = _bound_active_experts(w1.dims[0], tokens, top_k)
    return Work(
        flops=tokens * top_k * 2 * k * (w1.dims[1] + w2.dims[2] * numbers),
        bytes=tokens * k * (hidden.item_bytes + out.item_bytes)
        + active * (w1.bytes + w2.bytes) // w1.dims[0]
        + routing_bytes,
        precision=_find_precision(hidden, w1, numbers),
        matrix=True,
        note=note,
    )


def expert_product(call: Call, weight: int, out: int) -> Work:
    """Estimate one product: x[T,K] or x[T,k,K] at 0, weights[E,N,K], out[T,k,N] or out[T,N].

    Args:
        call: the call of the operator.
        weight, out: positions.
    """
    x, w, result = call.tensor(0), call.matrix(weight, 3), call.tensor(out)
    routed = x if len(x.dims) == 3 else result
    if len(routed.dims) != 3 or x.type == "unsigned char":
        raise NotModelledError("the number of experts per token is unknown")
    tokens, top_k = routed.dims[:2]
    inner = x.dims[-1] * (2 if x.precision == "fp4" else 1)
    active, note = _bound_active_experts(w.dims[0], tokens, top_k)
    return Work(
        flops=2 * tokens * top_k * inner * w.dims[1],
        bytes=x.bytes + active * w.bytes // w.dims[0] + result.bytes,
        precision=choose_wider(x.precision, w.precision),
        matrix=True,
        note=note,
    )


def grouped_rows(call: Call, precision: Precision | None = None) -> Work:
    """Estimate `cutlass_moe_mm(out[rows,N], a[rows,K], b[E,…], …)` of vLLM, with sorted rows.

    F = 2 rows N K;  bytes = a + out + min(E, rows) matrices of b. In FP4, a byte is two numbers.

    Args:
        call: the call of the operator.
        precision: format of the numbers, if the operator determines it.
    """
    out, a, b = call.matrix(0, 2), call.matrix(1, 2), call.matrix(2, 3)
    rows = out.dims[0]
    active, note = _bound_active_experts(b.dims[0], rows, 1)
    return Work(
        flops=2 * rows * out.dims[1] * a.dims[1] * (2 if precision else 1),
        bytes=a.bytes + out.bytes + active * b.bytes // b.dims[0],
        precision=precision or choose_wider(a.precision, b.precision),
        matrix=True,
        note=note,
    )


def marlin_experts(call: Call) -> Work:
    """Estimate `moe_wna16_marlin_gemm(a[M,K], …, w[E,…] at 2, …, k, …, is_ep, type, M, N, K, …)`.

    F = 2 M k N K;  bytes = a + min(E, M k) of the packed weights + M k N; multiplied in the type of
    a. The second product of a layer has M k rows and k = 1.
    """
    a, w = call.matrix(0, 2), call.tensor(2)
    position = find_sizes(call, a.dims)
    m, n, k = (call.integer(position + i) for i in range(3))
    if call.flag(position - 2):
        raise NotModelledError(_OTHER_DEVICES)
    top_k = call.integer(position - 4)
    active, note = _bound_active_experts(w.dims[0], m, top_k)
    return Work(
        flops=2 * m * top_k * n * k,
        bytes=a.bytes + active * w.bytes // w.dims[0] + m * top_k * n * max(2, a.item_bytes),
        precision=a.precision,
        matrix=True,
        note=note,
    )


def router(call: Call) -> Work:
    """Estimate `topk_softmax(weights[T,k], ids, positions, scores[T,E], …)`.

    F = 5 T E, as a softmax; the comparisons of the choice are not counted.
    """
    scores = call.matrix(3, 2)
    return Work(
        flops=5 * scores.count,
        bytes=scores.bytes + sum(call.tensor(i).bytes for i in range(3)),
        precision=scores.arithmetic,
    )


def sum_experts(call: Call) -> Work:
    """Estimate `moe_sum(x[T,k,K], out[T,K])`: F = T k K, as a reduction."""
    x, out = call.matrix(0, 3), call.matrix(1, 2)
    return Work(flops=x.count, bytes=x.bytes + out.bytes, precision=x.arithmetic)


def unknown_weights(call: Call) -> Work:
    """Reject an operator that finds the weights of its experts by the name of the layer."""
    raise NotModelledError("the weights of the experts are not among the arguments")


def _read_routing(call: Call, at: ExpertLayout) -> tuple[int, int]:
    """Read k, and the bytes of the ids of the experts and of their weights."""
    if at.top_k is not None:
        return call.integer(at.top_k), 0
    weights, ids = call.matrix(at.hidden + 3, 2), call.matrix(at.hidden + 4, 2)
    if any(t.type == "int" and len(t.dims) == 1 for t in call.tensors(at.hidden + 5)):
        raise NotModelledError(_OTHER_DEVICES)
    return ids.dims[1], weights.bytes + ids.bytes


def _bound_active_experts(experts: int, tokens: int, top_k: int) -> tuple[int, str | None]:
    """Bound the number of experts that some tokens visit, with a note unless it is exact."""
    bound = min(experts, tokens * top_k)
    if bound <= top_k:
        return bound, None
    return bound, (
        f"upper bound of bytes: weights of {bound} of {experts} experts, fewer if tokens choose "
        "the same ones"
    )


def _find_precision(x: Tensor, weights: Tensor, numbers: int) -> Precision | None:
    """Find the precision of the products, None if the arguments leave it open.

    Operators convert wider inputs to FP8 if the weights are FP8. Integers and FP4 are multiplied
    as such or as wider numbers, which shapes do not tell.
    """
    precision = PRECISIONS.get(weights.type)
    if weights.type == x.type or precision == "fp8":
        return precision
    is_packed = numbers > 1 or precision not in {"fp16", "bf16", "fp32"}
    return None if is_packed else choose_wider(x.precision, weights.precision)
