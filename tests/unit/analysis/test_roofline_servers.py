"""Products and pointwise operators of inference servers, against loops over elements."""

from __future__ import annotations

from itertools import product

import pytest

from stepscope.analysis.roofline.registry import find_model
from tests.support.roofline_calls import (
    BF16,
    BYTE,
    FP8,
    FP32,
    INT32,
    INT64,
    reject,
    tensor,
    work,
)

# --- products of quantized matrices -------------------------------------------------------------


def test_quantized_products() -> None:
    a, weight = tensor(3, 6, type_=FP8), tensor(5, 6, type_=FP8)
    scale, out = tensor(1, type_=FP32), tensor(3, 5)
    estimates = [
        work("_C::cutlass_scaled_mm", out, a, tensor(6, 5, type_=FP8), scale, scale, None),
        work("sgl_kernel::fp8_scaled_mm", a, tensor(6, 5, type_=FP8), scale, scale, "15", None),
        work("aiter::gemm_a8w8_blockscale_ck", a, weight, scale, scale, out),
        work("vllm::rocm_aiter_triton_gemm_a8w8_blockscale", a, weight, scale, scale, None, None),
        work("vllm::w8a8_triton_block_scaled_mm_func", a, weight, scale, scale, "[128, 128]", "15"),
        work("vllm::fp8_gemm_nt_op", a, scale, weight, scale, out, "True"),
    ]
    for estimate in estimates:
        assert estimate.flops == sum(2 for _ in product(range(3), range(5), range(6)))
        assert estimate.bytes == 3 * 6 + 5 * 6 + 2 * 3 * 5
        assert (estimate.precision, estimate.matrix) == ("fp8", True)
    biased = work("_C::cutlass_scaled_mm", out, a, tensor(6, 5, type_=FP8), scale, scale, tensor(5))
    assert (biased.flops, biased.bytes) == (2 * 90 + 15, 48 + 2 * (15 + 5))


def test_products_of_four_bits_in_bytes() -> None:
    a, weight, scale = tensor(3, 4, type_=BYTE), tensor(5, 4, type_=BYTE), tensor(1, type_=BYTE)
    nv = work("_C::cutlass_scaled_fp4_mm", tensor(3, 5), a, weight, scale, scale, scale)
    mx = work("aiter::gemm_a4w4", a, weight, scale, scale, None)
    assert nv.flops == mx.flops == sum(2 for _ in product(range(3), range(5), range(8)))
    assert nv.bytes == mx.bytes == 3 * 4 + 5 * 4 + 2 * 3 * 5
    assert (nv.precision, mx.precision) == ("fp4", "mxfp4")
    converted = work("vllm::gemm_with_dynamic_quant", tensor(3, 8), weight, scale, "False", "15")
    assert (converted.flops, converted.precision) == (mx.flops, "mxfp4")
    assert converted.bytes == mx.bytes + 3 * (2 * 8 - 4)
    assert "two numbers" in reject("aiter::gemm_a4w4", tensor(3, 4), weight, scale, scale, None)


@pytest.mark.parametrize("arguments_before", [8, 9])
def test_products_with_packed_weights(arguments_before: int) -> None:
    """3 rows of 16 numbers; 16 columns of 4-bit numbers, packed as 1 by 32 integers."""
    weight = tensor(1, 32, type_=INT32)
    sizes = [None] * arguments_before + ["3", "16", "16", "True", "False"]
    estimate = work("_C::marlin_gemm", tensor(3, 16), None, weight, *sizes)
    assert estimate.flops == sum(2 for _ in product(range(3), range(16), range(16)))
    assert estimate.bytes == 2 * 3 * 16 + 16 * 16 // 2 + 2 * 3 * 16
    assert estimate.precision == "bf16"
    other_sizes = [*sizes[:-5], "4", "16", "16", "True", "False"]
    assert "sizes" in reject("_C::marlin_gemm", tensor(3, 16), None, weight, *other_sizes)


def test_linear_layers_of_servers() -> None:
    x, weight, bias = tensor(3, 6), tensor(5, 6), tensor(5)
    wrapper = work("vllm::rocm_unquantized_gemm", x, weight, bias)
    assert wrapper == work("aten::linear", x, weight, bias)
    assert work("aiter::gemm_a16w16", x, weight, None, "15") == work("aten::linear", x, weight)
    assert work("_rocm_C::wvSplitK", weight, x, bias, "304") == wrapper
    model = find_model("aiter::gemm_a16w16")
    assert model is not None
    assert model.leaf_only


# --- norms, activations, positions, caches ------------------------------------------------------


def count_norm_operations(rows: int, size: int, *, residual: bool) -> int:
    """Count per row: squares, their sum, mean, epsilon, root; per element: both scales."""
    operations = 0
    for _ in range(rows):
        operations += size if residual else 0
        operations += size + (size - 1) + 3
        operations += 2 * size
    return operations


def test_norms_write_into_arguments() -> None:
    x, weight = tensor(10, 16), tensor(16)
    plain = [
        work("_C::rms_norm", x, x, weight, "1e-5"),
        work("sgl_kernel::rmsnorm", x, x, weight, "1e-5", "False"),
        work("aiter::rmsnorm", x, x, weight, "1e-5"),
        work("aiter::rms_norm", x, weight, "1e-5", "0"),
        work("vllm::rocm_aiter_rms_norm", x, weight, "1e-5"),
    ]
    for estimate in plain:
        assert estimate == work("aten::_fused_rms_norm", x, "[16]", weight, "1e-5")
        assert estimate.flops == count_norm_operations(10, 16, residual=False)


def test_norms_after_a_sum() -> None:
    x, weight = tensor(10, 16), tensor(16)
    fused = [
        work("_C::fused_add_rms_norm", x, x, weight, "1e-5"),
        work("sgl_kernel::fused_add_rmsnorm", x, x, weight, "1e-5", "False"),
        work("aiter::add_rmsnorm", x, x, x, x, weight, "1e-5"),
        work("aiter::rmsnorm2d_fwd_with_add_ck", x, x, x, x, weight, "1e-5", "0"),
        work("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", x, x, weight, "1e-5"),
    ]
    for estimate in fused:
        assert estimate.flops == count_norm_operations(10, 16, residual=True)
        assert estimate.bytes == 2 * (4 * 160 + 16)  # two read, two written


def test_norms_of_quantized_results() -> None:
    x, weight, scale = tensor(10, 16), tensor(16), tensor(1, type_=FP32)
    out = tensor(10, 16, type_=FP8)
    static = work("_C::rms_norm_static_fp8_quant", out, x, weight, scale, "1e-5")
    after_sum = work("_C::fused_add_rms_norm_static_fp8_quant", out, x, x, weight, scale, "1e-5")
    dynamic = work(
        "_C::rms_norm_dynamic_per_token_quant", out, x, weight, scale, "1e-5", None, None
    )
    assert static.flops == count_norm_operations(10, 16, residual=False) + 160
    assert static.bytes == dynamic.bytes == 2 * (160 + 16) + 160
    assert dynamic.flops == count_norm_operations(10, 16, residual=False) + 2 * 160
    assert after_sum.bytes == static.bytes + 2 * 2 * 160


def test_group_norm_of_aiter() -> None:
    x, c = tensor(1, 512, 4, 4), tensor(512)
    native = work("aten::native_group_norm", x, c, c, "1", "512", "16", "32", "1e-6")
    assert work("aiter::_groupnorm_run", x, "32", c, c, "1e-6") == native


def test_gated_activations() -> None:
    x, out = tensor(5, 12), tensor(5, 6)
    for name in ("_C::silu_and_mul", "sgl_kernel::silu_and_mul", "aiter::gelu_and_mul"):
        estimate = work(name, out, x)
        assert estimate.flops == sum(2 for _ in product(range(5), range(6)))
        assert estimate.bytes == 2 * (5 * 12 + 5 * 6)
    narrow = tensor(5, 6, type_=FP8)
    quantized = work("_C::silu_and_mul_quant", narrow, x, tensor(1, type_=FP32))
    assert (quantized.flops, quantized.bytes) == (3 * 30, 2 * 60 + 30)


def test_quantization() -> None:
    x, out, scale = tensor(5, 12), tensor(5, 12, type_=FP8), tensor(1, type_=FP32)
    static = work("_C::static_scaled_fp8_quant", out, x, scale)
    dynamic = work("_C::dynamic_per_token_scaled_fp8_quant", out, x, scale, None)
    groups = work("sgl_kernel::sgl_per_token_group_quant_8bit", x, out, scale, "128")
    assert (static.flops, static.bytes) == (60, 3 * 60)
    assert (dynamic.flops, dynamic.bytes) == (groups.flops, groups.bytes) == (120, 3 * 60)


@pytest.mark.parametrize("rotated", [8, 4])
def test_rotation_of_pairs(rotated: int) -> None:
    """3 tokens; 4 heads of queries and 2 of keys with 8 elements, of which some are rotated."""
    positions, table = tensor(3, type_=INT64), tensor(100, rotated)
    operations, elements = 0, 0
    for _ in product(range(3), range(4 + 2), range(rotated // 2)):
        operations += 4 + 2  # x cos - y sin, y cos + x sin
        elements += 2
    for q, k in (
        (tensor(3, 32), tensor(3, 16)),
        (tensor(3, 4, 8), tensor(3, 2, 8)),
    ):
        estimate = work("_C::rotary_embedding", positions, q, k, "8", table, "True")
        assert estimate.flops == operations
        assert estimate.bytes == 2 * 2 * elements + 3 * 8 + 2 * 3 * rotated
    short = work("sgl_kernel::rotary_embedding", positions, tensor(3, 32), None, "8",
                 tensor(2, rotated), "True")  # fmt: skip
    assert short.bytes == 2 * 2 * 3 * 4 * rotated + 3 * 8 + 2 * 2 * rotated
    assert "heads" in reject(
        "_C::rotary_embedding", positions, tensor(4, 32), None, "8", table, "True"
    )


@pytest.mark.parametrize(("type_", "item_bytes"), [(BF16, 2), (BYTE, 1)])
def test_tokens_enter_the_cache(type_: str, item_bytes: int) -> None:
    """4 slots of 5 rows, of which one is padding; 2 heads of 8 elements, key and value."""
    x, cache, slots = tensor(5, 2, 8), tensor(100, 16, 2, 8, type_=type_), tensor(4, type_=INT64)
    estimate = work("_C_cache_ops::reshape_and_cache_flash", x, x, cache, cache, slots)
    elements = sum(1 for _ in product(range(4), range(2), range(2), range(8)))
    assert estimate.flops == 0
    assert estimate.bytes == elements * (2 + item_bytes) + 4 * 8
    flat, store = tensor(5, 16), tensor(100, 16, type_=type_)
    assert work("sglang::store_cache", flat, flat, store, store, slots).bytes == estimate.bytes
