"""Models of operators of inference servers (vLLM, SGLang, AITER), and of layers of experts.

As in `pointwise`, one operation counts for each step on each element, and every tensor is read or
written once. Signatures: vLLM
(https://github.com/vllm-project/vllm/blob/main/csrc/libtorch_stable/torch_bindings.cpp), SGLang
(https://github.com/sgl-project/sglang/blob/main/sgl-kernel/csrc/common_extension.cc), AITER
(https://github.com/ROCm/aiter/tree/main/aiter/ops).

Models of layers of experts (mixture of experts, MoE), of which each token visits k. A token visits
k experts whichever these are, so the operations follow from the number of tokens T alone, and not
from the routing. With weights w1[E,R,K] (R = 2 N if gated, else N) and w2[E,K,N],

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

Models of operators of inference servers (vLLM, SGLang, AITER), by name. Positions of arguments
follow the signatures linked in `serving`, and those of attention
https://github.com/vllm-project/flash-attention/tree/main (FlashAttention 2 and 3 of vLLM).
Signatures change between versions; arguments of another type than expected leave the work unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

import msgspec

from stepscope.analysis.roofline import attention, calls, layers, matrix
from stepscope.analysis.roofline.matrix import choose_wider, find_sizes

_PAIR_OPERATIONS = 6


def gated_activation(call: calls.Call, quantization: int = 0) -> calls.Work:
    """Estimate `silu_and_mul(out[…,N], x[…,2N])` and variants: F = 2 n (activation, product).

    Args:
        call: the call of the operator.
        quantization: operations per element that convert the result to another type.
    """
    out, x = call.tensor(0), call.tensor(1)
    return calls.Work(
        flops=(2 + quantization) * out.count, bytes=x.bytes + out.bytes, precision=x.arithmetic
    )


def quantize(call: calls.Call, x: int, out: int, operations: int) -> calls.Work:
    """Estimate a conversion to a narrower type: F = n to scale, n more for maxima; scales ignored.

    Args:
        call: the call of the operator.
        x, out: positions of input and result.
        operations: 1 with a given scale, 2 if the scale is the maximum of the elements.
    """
    source, result = call.tensor(x), call.tensor(out)
    return calls.Work(
        flops=operations * source.count,
        bytes=source.bytes + result.bytes,
        precision=source.arithmetic,
    )


def rotary_embedding(call: calls.Call) -> calls.Work:
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
        raise calls.NotModelledError("the heads do not match the number of positions")
    rotated = heads * size
    return calls.Work(
        flops=rotated // 2 * _PAIR_OPERATIONS,
        bytes=2 * rotated * query.item_bytes
        + positions.bytes
        + min(tokens, table.dims[0]) * size * table.item_bytes,
        precision=query.arithmetic,
    )


def store_cache(call: calls.Call) -> calls.Work:
    """Estimate `reshape_and_cache…(key, value, key_cache, value_cache, slots, …)`.

    Each slot receives one token: read in the type of key and value, written in that of the caches.
    Operations of a conversion to a narrower type are not counted.
    """
    slots = call.matrix(4, 1)
    moved = 0
    for position in (0, 1):
        x, cache = call.tensor(position), call.tensor(position + 2)
        moved += prod(x.dims[1:]) * (x.item_bytes + cache.item_bytes)
    return calls.Work(
        flops=0, bytes=slots.count * moved + slots.bytes, precision=call.tensor(0).arithmetic
    )


_OTHER_DEVICES = "the number of tokens of the experts of this device is unknown"
_NUMBERS_PER_ELEMENT = {1, 2, 4, 8}
"""Numbers that one element of packed weights can hold."""


class ExpertLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of the arguments of a whole layer of experts."""

    hidden: int = 0
    """Position of the input [T,K]; w1 and w2 follow."""
    out: int | None = None
    top_k: int | None = None
    """Position of k; without it, the ids of the experts [T,k] follow w2 and their weights."""


def fused_experts(call: calls.Call, at: ExpertLayout) -> calls.Work:
    """Estimate a whole layer: both products of all visited experts."""
    hidden = call.matrix(at.hidden, 2)
    w1, w2 = call.matrix(at.hidden + 1, 3), call.matrix(at.hidden + 2, 3)
    tokens, k = hidden.dims
    top_k, routing_bytes = _read_routing(call, at)
    numbers = k // w1.dims[2]
    if numbers not in _NUMBERS_PER_ELEMENT or (w1.dims[2] * numbers, w2.dims[1]) != (k, k):
        raise calls.NotModelledError("the layout of the weights of the experts is unknown")
    out = call.tensor(at.out) if at.out is not None else hidden
    active, note = _bound_active_experts(w1.dims[0], tokens, top_k)
    return calls.Work(
        flops=tokens * top_k * 2 * k * (w1.dims[1] + w2.dims[2] * numbers),
        bytes=tokens * k * (hidden.item_bytes + out.item_bytes)
        + active * (w1.bytes + w2.bytes) // w1.dims[0]
        + routing_bytes,
        precision=_find_precision(hidden, w1, numbers),
        matrix=True,
        note=note,
    )


def expert_product(call: calls.Call, weight: int, out: int) -> calls.Work:
    """Estimate one product: x[T,K] or x[T,k,K] at 0, weights[E,N,K], out[T,k,N] or out[T,N].

    Args:
        call: the call of the operator.
        weight, out: positions.
    """
    x, w, result = call.tensor(0), call.matrix(weight, 3), call.tensor(out)
    routed = x if len(x.dims) == 3 else result
    if len(routed.dims) != 3 or x.type == "unsigned char":
        raise calls.NotModelledError("the number of experts per token is unknown")
    tokens, top_k = routed.dims[:2]
    inner = x.dims[-1] * (2 if x.precision == "fp4" else 1)
    active, note = _bound_active_experts(w.dims[0], tokens, top_k)
    return calls.Work(
        flops=2 * tokens * top_k * inner * w.dims[1],
        bytes=x.bytes + active * w.bytes // w.dims[0] + result.bytes,
        precision=choose_wider(x.precision, w.precision),
        matrix=True,
        note=note,
    )


def grouped_rows(call: calls.Call, precision: calls.Precision | None = None) -> calls.Work:
    """Estimate `cutlass_moe_mm(out[rows,N], a[rows,K], b[E,…], …)` of vLLM, with sorted rows.

    F = 2 rows N K;  bytes = a + out + min(E, rows) matrices of b. In FP4, a byte is two numbers.

    Args:
        call: the call of the operator.
        precision: format of the numbers, if the operator determines it.
    """
    out, a, b = call.matrix(0, 2), call.matrix(1, 2), call.matrix(2, 3)
    rows = out.dims[0]
    active, note = _bound_active_experts(b.dims[0], rows, 1)
    return calls.Work(
        flops=2 * rows * out.dims[1] * a.dims[1] * (2 if precision else 1),
        bytes=a.bytes + out.bytes + active * b.bytes // b.dims[0],
        precision=precision or choose_wider(a.precision, b.precision),
        matrix=True,
        note=note,
    )


def marlin_experts(call: calls.Call) -> calls.Work:
    """Estimate `moe_wna16_marlin_gemm(a[M,K], …, w[E,…] at 2, …, k, …, is_ep, type, M, N, K, …)`.

    F = 2 M k N K;  bytes = a + min(E, M k) of the packed weights + M k N; multiplied in the type of
    a. The second product of a layer has M k rows and k = 1.
    """
    a, w = call.matrix(0, 2), call.tensor(2)
    position = find_sizes(call, a.dims)
    m, n, k = (call.integer(position + i) for i in range(3))
    if call.flag(position - 2):
        raise calls.NotModelledError(_OTHER_DEVICES)
    top_k = call.integer(position - 4)
    active, note = _bound_active_experts(w.dims[0], m, top_k)
    return calls.Work(
        flops=2 * m * top_k * n * k,
        bytes=a.bytes + active * w.bytes // w.dims[0] + m * top_k * n * max(2, a.item_bytes),
        precision=a.precision,
        matrix=True,
        note=note,
    )


def router(call: calls.Call) -> calls.Work:
    """Estimate `topk_softmax(weights[T,k], ids, positions, scores[T,E], …)`.

    F = 5 T E, as a softmax; the comparisons of the choice are not counted.
    """
    scores = call.matrix(3, 2)
    return calls.Work(
        flops=5 * scores.count,
        bytes=scores.bytes + sum(call.tensor(i).bytes for i in range(3)),
        precision=scores.arithmetic,
    )


def sum_experts(call: calls.Call) -> calls.Work:
    """Estimate `moe_sum(x[T,k,K], out[T,K])`: F = T k K, as a reduction."""
    x, out = call.matrix(0, 3), call.matrix(1, 2)
    return calls.Work(flops=x.count, bytes=x.bytes + out.bytes, precision=x.arithmetic)


def unknown_weights(call: calls.Call) -> calls.Work:
    """Reject an operator that finds the weights of its experts by the name of the layer."""
    raise calls.NotModelledError("the weights of the experts are not among the arguments")


def _read_routing(call: calls.Call, at: ExpertLayout) -> tuple[int, int]:
    """Read k, and the bytes of the ids of the experts and of their weights."""
    if at.top_k is not None:
        return call.integer(at.top_k), 0
    weights, ids = call.matrix(at.hidden + 3, 2), call.matrix(at.hidden + 4, 2)
    if any(t.type == "int" and len(t.dims) == 1 for t in call.tensors(at.hidden + 5)):
        raise calls.NotModelledError(_OTHER_DEVICES)
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


def _find_precision(x: calls.Tensor, weights: calls.Tensor, numbers: int) -> calls.Precision | None:
    """Find the precision of the products, None if the arguments leave it open.

    Operators convert wider inputs to FP8 if the weights are FP8. Integers and FP4 are multiplied
    as such or as wider numbers, which shapes do not tell.
    """
    precision = calls.PRECISIONS.get(weights.type)
    if weights.type == x.type or precision == "fp8":
        return precision
    is_packed = numbers > 1 or precision not in {"fp16", "bf16", "fp32"}
    return None if is_packed else choose_wider(x.precision, weights.precision)


_Norm = layers.RmsNormLayout
_NORMS = {
    "_C::rms_norm": _Norm(out=0, x=1, weight=2),
    "_C::fused_add_rms_norm": _Norm(residual=1, weight=2),
    "_C::rms_norm_static_fp8_quant": _Norm(out=0, x=1, weight=2, quantization=1),
    "_C::fused_add_rms_norm_static_fp8_quant": _Norm(
        out=0, x=1, residual=2, weight=3, quantization=1
    ),
    "_C::rms_norm_dynamic_per_token_quant": _Norm(out=0, x=1, weight=2, residual=6, quantization=2),
    "_C::rms_norm_per_block_quant": _Norm(out=0, x=1, weight=2, residual=6, quantization=2),
    "sgl_kernel::rmsnorm": _Norm(out=0, x=1, weight=2),
    "sgl_kernel::fused_add_rmsnorm": _Norm(residual=1, weight=2),
    "aiter::rms_norm": _Norm(weight=1),
    "aiter::rmsnorm2d_fwd_ck": _Norm(weight=1),
    "aiter::rmsnorm": _Norm(out=0, x=1, weight=2),
    "aiter::add_rmsnorm": _Norm(out=0, x=1, residual=2, weight=4),
    "aiter::rmsnorm2d_fwd_with_add_ck": _Norm(out=0, x=1, residual=2, weight=4),
    "vllm::rocm_aiter_rms_norm": _Norm(weight=1),
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": _Norm(residual=1, weight=2),
}
_Ragged = attention.RaggedLayout
_FLASH_2 = attention.AttentionLayout(causal=15, order="sequence_first", lengths=4)
_FLASH_3 = attention.AttentionLayout(causal=24, order="sequence_first", lengths=7)
_AITER = attention.AttentionLayout(causal=12, order="sequence_first", lengths=3)
_ATTENTION = {
    "_vllm_fa2_C::varlen_fwd": _Ragged(
        out=3, starts=4, max_queries=10, causal=15, window=16, dense=_FLASH_2, cache_marks=(6, 8)
    ),
    **dict.fromkeys(
        ("_vllm_fa3_C::fwd", "flash_attn_3::fwd"),
        _Ragged(
            out=6,
            starts=7,
            max_queries=12,
            causal=24,
            window=25,
            dense=_FLASH_3,
            cache_marks=(11, 14),
        ),
    ),
    "aiter::mha_batch_prefill": _Ragged(starts=3, max_queries=6, causal=12, window=13),
    **dict.fromkeys(
        ("aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd"),
        _Ragged(starts=3, max_queries=5, causal=12, window=13, dense=_AITER),
    ),
}
_UNIFIED_ATTENTION = "vllm::unified_attention_with_output"
_Experts = ExpertLayout
_FUSED_EXPERTS = {
    **dict.fromkeys(
        (
            "vllm::inplace_fused_experts",
            "vllm::outplace_fused_experts",
            "vllm::rocm_aiter_fused_moe",
            "sglang::inplace_fused_experts",
            "sglang::outplace_fused_experts",
            "aiter::fused_moe_",
        ),
        _Experts(),
    ),
    "aiter::fmoe_g1u1": _Experts(out=0, hidden=1, top_k=8),
    "aiter::fmoe_fp8_blockscale_g1u1": _Experts(out=0, hidden=1, top_k=8),
}

SERVER_MODELS: Mapping[calls.Family, Mapping[str, Callable[[calls.Call], calls.Work]]] = {
    "gemm": {
        **dict.fromkeys(("_rocm_C::wvSplitK", "_rocm_C::LLMM1"), matrix.swapped_linear),
        "_C::cutlass_scaled_mm": matrix.cutlass_scaled_mm,
        **dict.fromkeys(
            (
                "sgl_kernel::fp8_scaled_mm",
                "sgl_kernel::int8_scaled_mm",
                "sgl_kernel::fp8_blockwise_scaled_mm",
                "trtllm::cublas_scaled_mm",
            ),
            matrix.scaled_mm,
        ),
        **dict.fromkeys(
            (
                "aiter::gemm_a8w8_ck",
                "aiter::gemm_a8w8_bpreshuffle_ck",
                "aiter::gemm_a8w8_blockscale_ck",
                "aiter::gemm_a8w8_blockscale_cktile",
                "aiter::gemm_a8w8_blockscale_bpreshuffle_ck",
                "aiter::gemm_a8w8_blockscale_bpreshuffle_cktile",
                "aiter::flatmm_a8w8_blockscale_asm",
                "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
                "vllm::w8a8_triton_block_scaled_mm_func",
                "vllm::padded_cutlass",
            ),
            matrix.quantized_linear,
        ),
        "vllm::fp8_gemm_nt_op": partial(matrix.quantized_linear, weight=2),
        **dict.fromkeys(("_C::marlin_gemm", "_C::gptq_marlin_gemm"), matrix.marlin),
        **dict.fromkeys(
            ("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"),
            partial(matrix.fp4_linear, precision="fp4", first=1, out=0),
        ),
        **dict.fromkeys(
            ("aiter::gemm_a4w4", "aiter::_gemm_a4w4_asm", "vllm::gemm_with_dynamic_quant"),
            partial(matrix.fp4_linear, precision="mxfp4"),
        ),
    },
    "attention": {name: partial(attention.ragged, at=at) for name, at in _ATTENTION.items()},
    "moe": {
        **{name: partial(fused_experts, at=at) for name, at in _FUSED_EXPERTS.items()},
        **dict.fromkeys(("vllm::moe_forward", "vllm::moe_forward_shared"), unknown_weights),
        "aiter::moe_cktile2stages_gemm1_ck": partial(expert_product, weight=1, out=2),
        "aiter::moe_cktile2stages_gemm2_ck": partial(expert_product, weight=1, out=2),
        "aiter::ck_moe_stage1": partial(expert_product, weight=1, out=6),
        "aiter::ck_moe_stage2": partial(expert_product, weight=2, out=6),
        "_C::cutlass_moe_mm": grouped_rows,
        "_C::cutlass_fp4_group_mm": partial(grouped_rows, precision="fp4"),
        "_C::cutlass_mxfp4_group_mm": partial(grouped_rows, precision="mxfp4"),
        "_moe_C::moe_wna16_marlin_gemm": marlin_experts,
    },
    "normalization": {
        **{name: partial(layers.fused_rms_norm, at=at) for name, at in _NORMS.items()},
        "aiter::_groupnorm_run": partial(layers.group_norm, weight=2),
    },
    "elementwise": {
        **dict.fromkeys(
            (
                *(
                    f"{library}::{name}"
                    for library in ("_C", "sgl_kernel", "aiter")
                    for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")
                ),
                "_C::mul_and_silu",
                "_C::fatrelu_and_mul",
                "_C::swigluoai_and_mul",
                "_C::silu_and_mul_with_clamp",
            ),
            gated_activation,
        ),
        "_C::silu_and_mul_quant": partial(gated_activation, quantization=1),
        "_C::silu_and_mul_per_block_quant": partial(gated_activation, quantization=2),
        **dict.fromkeys(
            ("_C::static_scaled_fp8_quant", "_C::static_scaled_int8_quant"),
            partial(quantize, out=0, x=1, operations=1),
        ),
        **dict.fromkeys(
            (
                "_C::dynamic_scaled_fp8_quant",
                "_C::dynamic_scaled_int8_quant",
                "_C::dynamic_per_token_scaled_fp8_quant",
            ),
            partial(quantize, out=0, x=1, operations=2),
        ),
        **dict.fromkeys(
            (
                "_C::per_token_group_fp8_quant",
                "_C::per_token_group_quant_int8",
                "sgl_kernel::sgl_per_token_quant_fp8",
                "sgl_kernel::sgl_per_token_group_quant_8bit",
                "sgl_kernel::sgl_per_token_group_quant_fp8",
                "sgl_kernel::sgl_per_token_group_quant_int8",
            ),
            partial(quantize, x=0, out=1, operations=2),
        ),
        **dict.fromkeys(("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), rotary_embedding),
    },
    "softmax": dict.fromkeys(("_moe_C::topk_softmax", "aiter::topk_softmax"), router),
    "reduction": {"_moe_C::moe_sum": sum_experts},
    "movement": dict.fromkeys(
        (
            "_C_cache_ops::reshape_and_cache",
            "_C_cache_ops::reshape_and_cache_flash",
            "sglang::store_cache",
        ),
        store_cache,
    ),
}
"""Models by family and name."""
SERVER_WRAPPERS: Mapping[calls.Family, Mapping[str, Callable[[calls.Call], calls.Work]]] = {
    "gemm": dict.fromkeys(("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16"), matrix.linear),
    "attention": {_UNIFIED_ATTENTION: partial(attention.ragged, at=_Ragged(out=3))},
}
"""Models of operators that launch kernels, or call operators with models of their own."""
BATCH_OPERATORS = frozenset({*_ATTENTION, _UNIFIED_ATTENTION})
"""Operators whose work depends on the lengths of the sequences in a batch."""
