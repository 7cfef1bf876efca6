"""Models of operators of inference servers (vLLM, SGLang, AITER), by name.

Positions of arguments follow the signatures linked in `serving`, and those of attention
https://github.com/vllm-project/flash-attention/tree/main (FlashAttention 2 and 3 of vLLM).
Signatures change between versions; arguments of another type than expected leave the work unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from stepscope.analysis.roofline import attention, experts, matrix, normalization, serving
from stepscope.analysis.roofline.calls import Call, Family, Work

_Norm = normalization.RmsNormLayout
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
_Experts = experts.ExpertLayout
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

SERVER_MODELS: Mapping[Family, Mapping[str, Callable[[Call], Work]]] = {
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
        **{name: partial(experts.fused_experts, at=at) for name, at in _FUSED_EXPERTS.items()},
        **dict.fromkeys(("vllm::moe_forward", "vllm::moe_forward_shared"), experts.unknown_weights),
        "aiter::moe_cktile2stages_gemm1_ck": partial(experts.expert_product, weight=1, out=2),
        "aiter::moe_cktile2stages_gemm2_ck": partial(experts.expert_product, weight=1, out=2),
        "aiter::ck_moe_stage1": partial(experts.expert_product, weight=1, out=6),
        "aiter::ck_moe_stage2": partial(experts.expert_product, weight=2, out=6),
        "_C::cutlass_moe_mm": experts.grouped_rows,
        "_C::cutlass_fp4_group_mm": partial(experts.grouped_rows, precision="fp4"),
        "_C::cutlass_mxfp4_group_mm": partial(experts.grouped_rows, precision="mxfp4"),
        "_moe_C::moe_wna16_marlin_gemm": experts.marlin_experts,
    },
    "normalization": {
        **{name: partial(normalization.fused_rms_norm, at=at) for name, at in _NORMS.items()},
        "aiter::_groupnorm_run": partial(normalization.group_norm, weight=2),
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
            serving.gated_activation,
        ),
        "_C::silu_and_mul_quant": partial(serving.gated_activation, quantization=1),
        "_C::silu_and_mul_per_block_quant": partial(serving.gated_activation, quantization=2),
        **dict.fromkeys(
            ("_C::static_scaled_fp8_quant", "_C::static_scaled_int8_quant"),
            partial(serving.quantize, out=0, x=1, operations=1),
        ),
        **dict.fromkeys(
            (
                "_C::dynamic_scaled_fp8_quant",
                "_C::dynamic_scaled_int8_quant",
                "_C::dynamic_per_token_scaled_fp8_quant",
            ),
            partial(serving.quantize, out=0, x=1, operations=2),
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
            partial(serving.quantize, x=0, out=1, operations=2),
        ),
        **dict.fromkeys(
            ("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), serving.rotary_embedding
        ),
    },
    "softmax": dict.fromkeys(("_moe_C::topk_softmax", "aiter::topk_softmax"), experts.router),
    "reduction": {"_moe_C::moe_sum": experts.sum_experts},
    "movement": dict.fromkeys(
        (
            "_C_cache_ops::reshape_and_cache",
            "_C_cache_ops::reshape_and_cache_flash",
            "sglang::store_cache",
        ),
        serving.store_cache,
    ),
}
"""Models by family and name."""
SERVER_WRAPPERS: Mapping[Family, Mapping[str, Callable[[Call], Work]]] = {
    "gemm": dict.fromkeys(("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16"), matrix.linear),
    "attention": {_UNIFIED_ATTENTION: partial(attention.ragged, at=_Ragged(out=3))},
}
"""Models of operators that launch kernels, or call operators with models of their own."""
BATCH_OPERATORS = frozenset({*_ATTENTION, _UNIFIED_ATTENTION})
"""Operators whose work depends on the lengths of the sequences in a batch."""
