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

Inference servers pack sequences of different lengths, with q_i new tokens and k_i ≥ q_i tokens, and
keep keys and values in pages. The bottom-right corner of a mask gives, with the same half of the
diagonal,

    pairs = Σ (q_i k_i - q_i² / 2);  bytes = Q + O of Σ q_i tokens, K + V of Σ k_i tokens

TraceLens (https://github.com/AMD-AGI/TraceLens) computes the same from the same sums, except that
it ignores the diagonal of sequences with one new token. The lengths are in tensors, so they come
from the annotation of the step (see `batches`) or from the maxima among the arguments, if these
leave one possibility. Otherwise the work is unknown.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from stepscope.analysis.roofline.calls import BatchLengths, Call, NotModelledError, Tensor, Work

Corner = Literal["top_left", "bottom_right"]
_NO_LIMIT = {"-1", None}
_ASSUMED_MASK = (
    "assumes that each token attends to itself and all earlier ones (fewer in a sliding window), "
    "and that the cache has the narrower type of queries and keys"
)


class AttentionLayout(msgspec.Struct, frozen=True, kw_only=True):
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


class RaggedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of the arguments of attention over sequences of different lengths.

    The first three are Q[tokens,H,D], and K and V[…,H,D], packed or as pages of a cache.
    """

    causal: int | None = None
    """Position of a boolean; None for an operator that does not have it."""
    starts: int | None = None
    """Position of the starts of the sequences in Q."""
    max_queries: int | None = None
    """Position of the maximum of q_i; that of k_i follows."""
    window: int | None = None
    """Position of the number of earlier tokens in a sliding window, -1 for no limit; that of later
    ones follows."""
    out: int | None = None
    dense: AttentionLayout | None = None
    """Layout of calls whose keys and values are not in a cache."""
    cache_marks: tuple[int, ...] = ()
    """Positions of tensors that only calls with a cache have: used lengths, table of pages."""


class _Sizes(msgspec.Struct, frozen=True):
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


def ragged(call: Call, at: RaggedLayout) -> Work:
    """Estimate the work of attention over sequences of different lengths.

    An operator without arguments for mask and window, such as vLLM's, is assumed to be causal,
    without a sliding window.
    """
    q, k, v = (call.tensor(i) for i in range(3))
    if min(len(t.dims) for t in (q, k, v)) < 3:
        raise NotModelledError("the numbers of heads are not among the shapes")
    causal = _read_mask(call, at)
    in_cache = (
        at.dense is None or len(q.dims) != len(k.dims) or any(call.dims[i] for i in at.cache_marks)
    )
    batch = call.batch if in_cache and causal else None
    batch = batch or _infer_equal_lengths(call, at, q, None if in_cache else k, causal=causal)
    if batch is None and at.dense is not None and not in_cache:
        return forward(call, at.dense)
    if batch is None:
        raise NotModelledError(
            "the lengths of the sequences, or of a sliding window, are not in the trace"
        )
    if batch.queries > q.count // (q.dims[-1] * q.dims[-2]):
        raise NotModelledError("the annotated lengths are not those of this call")
    twice_pairs = 2 * batch.products - (batch.squares if causal else 0)
    heads, d_qk, d_v = q.dims[-2], q.dims[-1], v.dims[-1]
    out = call.optional(at.out) if at.out is not None else None
    cache_bytes = min(k.item_bytes, q.item_bytes) if at.causal is None else k.item_bytes
    return Work(
        flops=heads * twice_pairs * (d_qk + d_v),
        bytes=batch.queries * heads * (d_qk * q.item_bytes + d_v * (out or q).item_bytes)
        + batch.keys * k.dims[-2] * (d_qk + d_v) * cache_bytes,
        precision=q.precision,
        matrix=True,
        note=_ASSUMED_MASK if at.causal is None else None,
    )


def _read_mask(call: Call, at: RaggedLayout) -> bool:
    """Read whether tokens attend to earlier ones only; no later tokens in a window are such."""
    causal = call.flag(at.causal) if at.causal is not None else True
    if at.window is None:
        return causal
    earlier, later = (call.value(at.window + i) for i in (0, 1))
    if earlier not in _NO_LIMIT or later not in {*_NO_LIMIT, "0"}:
        raise NotModelledError("sliding windows over sequences of different lengths")
    return causal or later == "0"


def _infer_equal_lengths(
    call: Call, at: RaggedLayout, q: Tensor, k: Tensor | None, *, causal: bool
) -> BatchLengths | None:
    """Infer the lengths of sequences without earlier tokens, all as long as the maximum.

    The maximum of q_i times their number is the number of tokens only if all q_i are the maximum.
    So it is for the k_i of packed keys; in a cache (without k), k_i ≥ q_i leaves one possibility if
    the maximum of k_i is the same.
    """
    starts = call.optional(at.starts) if at.starts is not None else None
    if starts is None or at.max_queries is None or not (causal or k is not None):
        return None
    count, length = starts.count - 1, call.integer(at.max_queries)
    tokens = count * length
    if call.integer(at.max_queries + 1) != length:
        return None
    if {t.dims[0] for t in (q, k) if t is not None} != {tokens}:
        return None
    return BatchLengths(
        queries=tokens, keys=tokens, squares=tokens * length, products=tokens * length
    )


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
