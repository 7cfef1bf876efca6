"""Scaled dot-product attention in one kernel, and its gradient.

Per pair of a query and a key that see each other, a forward pass does one multiply-add for each
of the d_qk elements of the score and of the d_v elements of the output:

    F = B H_q pairs (2 d_qk + 2 d_v);  bytes = Q + K + V + O [+ bias]

Softmax is left out: it is d times smaller. With grouped queries (H_q > H_kv) the arithmetic goes
by query heads, the bytes of K and V by their own. The backward pass of a kernel that keeps no
scores multiplies five times (scores again, dV, dP, dQ, dK):

    F = B H_q pairs (3 · 2 d_qk + 2 · 2 d_v);  bytes = Q + K + V + O + dO + dQ + dK + dV

which is what `torch.utils.flop_counter` counts for a full mask. A causal mask halves a square,
its diagonal counted half as the FlashAttention papers do; TraceLens refuses N_q ≠ N_kv there.
Where lengths differ, kernels either align the mask's top-left corner (query i sees keys up to i)
or its bottom-right one (the last query sees all keys), and `pairs` follows:

    top left      m²/2 + max(N_q - N_kv, 0) N_kv            m = min(N_q, N_kv)
    bottom right  N_q² / 2 + N_q (N_kv - N_q)    N_kv ≥ N_q;      N_kv² / 2    otherwise

Attention as several operators (the "math" path) is counted by its products of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.analysis.roofline.calls import Call, NotModelledError, Tensor, Work

Corner = Literal["top_left", "bottom_right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions of an attention operator's arguments."""

    causal: int
    """A boolean, or with `mask_type` the number of the mask."""
    corner: Corner = "bottom_right"
    order: Literal["heads_first", "sequence_first"] = "heads_first"
    """B, H, N, D or B, N, H, D; N, H, D with sequences behind one another, with `lengths`."""
    query: int = 0
    bias: int | None = None
    lengths: int | None = None
    """Where each sequence begins, when they stand behind one another."""
    mask_type: bool = False
    """`causal` holds 0 for no mask, 1 for top left, 2 for bottom right."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    heads: int
    queries: int
    keys: int
    d_qk: int
    d_v: int


def forward(call: Call, at: Layout) -> Work:
    """One forward kernel; see the module."""
    q, k, v = (call.tensor(at.query + i) for i in range(3))
    size, note = _sizes(call, at, q, k, v)
    twice_pairs = _twice_pairs(call, at, size)
    out = size.batch * size.heads * size.queries * size.d_v * q.item_bytes
    bias = call.optional(at.bias) if at.bias is not None else None
    return Work(
        flops=size.batch * size.heads * twice_pairs * (size.d_qk + size.d_v),
        bytes=q.bytes + k.bytes + v.bytes + out + (bias.stored_bytes if bias else 0),
        precision=q.precision,
        matrix=True,
        note=note,
    )


def backward(call: Call, at: Layout) -> Work:
    """One backward kernel; see the module."""
    q, k, v = (call.tensor(at.query + i) for i in range(3))
    size, note = _sizes(call, at, q, k, v)
    twice_pairs = _twice_pairs(call, at, size)
    out = size.batch * size.heads * size.queries * size.d_v * q.item_bytes
    bias = call.optional(at.bias) if at.bias is not None else None
    return Work(
        flops=size.batch * size.heads * twice_pairs * (3 * size.d_qk + 2 * size.d_v),
        bytes=2 * (q.bytes + k.bytes + v.bytes + out) + (bias.stored_bytes if bias else 0),
        precision=q.precision,
        matrix=True,
        note=note,
    )


def _sizes(call: Call, at: Layout, q: Tensor, k: Tensor, v: Tensor) -> tuple[_Sizes, str | None]:
    starts = call.optional(at.lengths) if at.lengths is not None else None
    if starts is not None and starts.count > 1:
        return _packed_sizes(starts, q, k, v)
    if not len(q.dims) == len(k.dims) == len(v.dims) == 4:
        raise NotModelledError("attention needs four dimensions")
    heads, sequence = (1, 2) if at.order == "heads_first" else (2, 1)
    found = _Sizes(
        batch=q.dims[0],
        heads=q.dims[heads],
        queries=q.dims[sequence],
        keys=k.dims[sequence],
        d_qk=q.dims[3],
        d_v=v.dims[3],
    )
    return found, None


def _packed_sizes(starts: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[_Sizes, str | None]:
    """Sequences of unknown lengths: equal ones have the fewest pairs for their total length."""
    rows = [t.dims[-3] for t in (q, k)]
    batch = starts.count - 1
    if min(len(t.dims) for t in (q, k, v)) < 3:
        raise NotModelledError("the lengths of the sequences are unknown")
    found = _Sizes(
        batch=batch,
        heads=q.dims[-2],
        queries=rows[0] // batch,
        keys=rows[1] // batch,
        d_qk=q.dims[-1],
        d_v=v.dims[-1],
    )
    return found, "sequences taken to be equally long, which is the least work they can be"


def _twice_pairs(call: Call, at: Layout, size: _Sizes) -> int:
    """Twice the pairs of a query and a key that see each other; so halves stay whole."""
    corner = _corner(call, at)
    n, m = size.queries, size.keys
    if corner is None:
        return 2 * n * m
    if corner == "top_left":
        return min(n, m) ** 2 + 2 * max(n - m, 0) * m
    return n**2 + 2 * n * (m - n) if m >= n else m**2


def _corner(call: Call, at: Layout) -> Corner | None:
    """Where the mask is aligned; None without one."""
    if not at.mask_type:
        return at.corner if call.flag(at.causal) else None
    corners: dict[int, Corner | None] = {0: None, 1: "top_left", 2: "bottom_right"}
    number = call.integer(at.causal)
    if number not in corners:
        raise NotModelledError("this mask is not")
    return corners[number]
