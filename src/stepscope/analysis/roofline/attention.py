"""Models of scaled dot-product attention in one kernel, and of its gradient.

For each pair of a query and a key that attend to each other, a forward pass does one multiply-add
per element of the score (d_qk) and of the output (d_v):

    F = B H_q pairs (2 d_qk + 2 d_v);  bytes = Q + K + V + O [+ bias]

Softmax is ignored: it is d times smaller. With grouped queries (H_q > H_kv) the arithmetic scales
with query heads, the bytes of K and V with their own heads. The backward pass of a kernel that
stores no scores multiplies five times (scores again, dV, dP, dQ, dK):

    F = B H_q pairs (3 · 2 d_qk + 2 · 2 d_v);  bytes = Q + K + V + O + dO + dQ + dK + dV

`torch.utils.flop_counter` counts the same for a full mask
(https://github.com/pytorch/pytorch/blob/main/torch/utils/flop_counter.py). A causal mask halves a
square, with half of the diagonal as in the FlashAttention papers (https://arxiv.org/abs/2307.08691);
TraceLens rejects N_q ≠ N_kv there. If the lengths differ, kernels align either the top-left corner
of the mask (query i attends to keys up to i) or the bottom-right one (the last query attends to all
keys), and `pairs` follows:

    top left      m²/2 + max(N_q - N_kv, 0) N_kv            m = min(N_q, N_kv)
    bottom right  N_q² / 2 + N_q (N_kv - N_q)    N_kv ≥ N_q;      N_kv² / 2    otherwise

Attention as several operators (the "math" path) is counted by its matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work

Corner = Literal["top_left", "bottom_right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayout:
    """Positions of an attention operator's arguments."""

    causal: int
    """Position of a boolean, or with `mask_type` of the number of the mask."""
    corner: Corner = "bottom_right"
    order: Literal["heads_first", "sequence_first"] = "heads_first"
    """B, H, N, D or B, N, H, D; N, H, D for packed sequences, with `lengths`."""
    query: int = 0
    bias: int | None = None
    lengths: int | None = None
    """Position of the starts of packed sequences."""
    mask_type: bool = False
    """True if `causal` is 0 for no mask, 1 for top left, 2 for bottom right."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    heads: int
    queries: int
    keys: int
    d_qk: int
    d_v: int


def forward(call: Call, at: AttentionLayout) -> Work:
    """Estimate the work of a forward kernel; the module's docstring has the formula."""
    return _estimate(call, at, products=(1, 1), passes=1)


def backward(call: Call, at: AttentionLayout) -> Work:
    """Estimate the work of a backward kernel; the module's docstring has the formula."""
    return _estimate(call, at, products=(3, 2), passes=2)


def _estimate(call: Call, at: AttentionLayout, *, products: tuple[int, int], passes: int) -> Work:
    """Estimate the work of one kernel.

    Args:
        call: the call of the operator.
        at: positions of its arguments.
        products: number of matrix products over d_qk and over d_v.
        passes: how often Q, K, V and O (or their gradients) are transferred.
    """
    q, k, v = (call.tensor(at.query + i) for i in range(3))
    size, note = _read_sizes(call, at, q, k, v)
    twice_pairs = _count_twice_pairs(call, at, size)
    out_bytes = size.batch * size.heads * size.queries * size.d_v * q.item_bytes
    bias = call.optional(at.bias) if at.bias is not None else None
    elements_per_pair = products[0] * size.d_qk + products[1] * size.d_v
    return Work(
        flops=size.batch * size.heads * twice_pairs * elements_per_pair,
        bytes=passes * (q.bytes + k.bytes + v.bytes + out_bytes)
        + (bias.stored_bytes if bias else 0),
        precision=q.precision,
        matrix=True,
        note=note,
    )


def _read_sizes(
    call: Call, at: AttentionLayout, q: Tensor, k: Tensor, v: Tensor
) -> tuple[_Sizes, str | None]:
    starts = call.optional(at.lengths) if at.lengths is not None else None
    if starts is not None and starts.count > 1:
        return _estimate_packed_sizes(starts, q, k, v)
    if not len(q.dims) == len(k.dims) == len(v.dims) == 4:
        raise NotModelledError("attention needs tensors of four dimensions")
    heads, sequence = (1, 2) if at.order == "heads_first" else (2, 1)
    sizes = _Sizes(
        batch=q.dims[0],
        heads=q.dims[heads],
        queries=q.dims[sequence],
        keys=k.dims[sequence],
        d_qk=q.dims[3],
        d_v=v.dims[3],
    )
    return sizes, None


def _estimate_packed_sizes(
    starts: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[_Sizes, str | None]:
    """Estimate the sizes of sequences of unknown lengths.

    Equal lengths have the smallest number of pairs for a total length.
    """
    rows = [t.dims[-3] for t in (q, k)]
    batch = starts.count - 1
    if min(len(t.dims) for t in (q, k, v)) < 3:
        raise NotModelledError("the lengths of the sequences are unknown")
    sizes = _Sizes(
        batch=batch,
        heads=q.dims[-2],
        queries=rows[0] // batch,
        keys=rows[1] // batch,
        d_qk=q.dims[-1],
        d_v=v.dims[-1],
    )
    return sizes, "lower bound: sequences are assumed to be equally long"


def _count_twice_pairs(call: Call, at: AttentionLayout, size: _Sizes) -> int:
    """Count twice the pairs of a query and a key that attend to each other (an integer)."""
    corner = _find_corner(call, at)
    n, m = size.queries, size.keys
    if corner is None:
        return 2 * n * m
    if corner == "top_left":
        return min(n, m) ** 2 + 2 * max(n - m, 0) * m
    return n**2 + 2 * n * (m - n) if m >= n else m**2


def _find_corner(call: Call, at: AttentionLayout) -> Corner | None:
    """Find the corner that the mask is aligned to; None without a mask."""
    if not at.mask_type:
        return at.corner if call.flag(at.causal) else None
    corners: dict[int, Corner | None] = {0: None, 1: "top_left", 2: "bottom_right"}
    number = call.integer(at.causal)
    if number not in corners:
        raise NotModelledError("masks of this type are not modelled")
    return corners[number]
