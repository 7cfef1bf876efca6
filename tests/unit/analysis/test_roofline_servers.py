"""Products and pointwise operators of inference servers, against counts of their elements."""

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
    Case,
    check,
    reject,
    tensor,
    work,
)

# --- products of quantized matrices: 3 rows, 5 columns, 6 or 8 terms ----------------------------

A, B, B_T = tensor(3, 6, type_=FP8), tensor(5, 6, type_=FP8), tensor(6, 5, type_=FP8)
A4, B4, SCALE4 = tensor(3, 4, type_=BYTE), tensor(5, 4, type_=BYTE), tensor(1, type_=BYTE)
SCALE, OUT = tensor(1, type_=FP32), tensor(3, 5)
PRODUCTS = [
    *(
        Case(name, arguments, 2 * 3 * 5 * 6, 3 * 6 + 5 * 6 + 2 * 3 * 5, "fp8")
        for name, arguments in (
            ("_C::cutlass_scaled_mm", (OUT, A, B_T, SCALE, SCALE, None)),
            ("sgl_kernel::fp8_scaled_mm", (A, B_T, SCALE, SCALE, "15", None)),
            ("aiter::gemm_a8w8_blockscale_ck", (A, B, SCALE, SCALE, OUT)),
            ("vllm::rocm_aiter_triton_gemm_a8w8_blockscale", (A, B, SCALE, SCALE, None, None)),
            ("vllm::w8a8_triton_block_scaled_mm_func", (A, B, SCALE, SCALE, "[128, 128]", "15")),
            ("vllm::fp8_gemm_nt_op", (A, SCALE, B, SCALE, OUT, "True")),
        )
    ),
    Case("_C::cutlass_scaled_mm", (OUT, A, B_T, SCALE, SCALE, tensor(5)),
         2 * 90 + 15, 48 + 2 * (15 + 5)),
    # Two numbers of four bits in a byte.
    Case("_C::cutlass_scaled_fp4_mm", (OUT, A4, B4, SCALE4, SCALE4, SCALE4),
         2 * 3 * 5 * 8, 3 * 4 + 5 * 4 + 2 * 3 * 5, "fp4"),
    Case("aiter::gemm_a4w4", (A4, B4, SCALE4, SCALE4, None),
         2 * 3 * 5 * 8, 3 * 4 + 5 * 4 + 2 * 3 * 5, "mxfp4"),
    Case("vllm::gemm_with_dynamic_quant", (tensor(3, 8), B4, SCALE4, "False", "15"),
         2 * 3 * 5 * 8, 2 * 3 * 8 + 5 * 4 + 2 * 3 * 5, "mxfp4"),
    # 3 rows of 16 numbers; 16 columns of 4-bit numbers, packed as 1 by 32 integers.
    *(
        Case("_C::marlin_gemm",
             (tensor(3, 16), None, tensor(1, 32, type_=INT32), *[None] * before,
              "3", "16", "16", "True", "False"),
             2 * 3 * 16 * 16, 2 * 3 * 16 + 16 * 16 // 2 + 2 * 3 * 16, "bf16")
        for before in (8, 9)
    ),
]  # fmt: skip

# --- norms, activations, positions, caches ------------------------------------------------------

X, W = tensor(10, 16), tensor(16)
NORM = 10 * (16 + (16 - 1) + 3 + 2 * 16)
"""Squares, their sum, mean, epsilon and root of each row; both scales of each element."""
NARROW = tensor(10, 16, type_=FP8)
GATED, HALF = tensor(5, 12), tensor(5, 6)
NORMS = [
    *(
        Case(name, arguments, NORM, 2 * (2 * 160 + 16))
        for name, arguments in (
            ("aten::_fused_rms_norm", (X, "[16]", W, "1e-5")),
            ("_C::rms_norm", (X, X, W, "1e-5")),
            ("sgl_kernel::rmsnorm", (X, X, W, "1e-5", "False")),
            ("aiter::rmsnorm", (X, X, W, "1e-5")),
            ("aiter::rms_norm", (X, W, "1e-5", "0")),
            ("vllm::rocm_aiter_rms_norm", (X, W, "1e-5")),
        )
    ),
    *(  # after a sum: two are read, two written
        Case(name, arguments, NORM + 160, 2 * (4 * 160 + 16))
        for name, arguments in (
            ("_C::fused_add_rms_norm", (X, X, W, "1e-5")),
            ("sgl_kernel::fused_add_rmsnorm", (X, X, W, "1e-5", "False")),
            ("aiter::add_rmsnorm", (X, X, X, X, W, "1e-5")),
            ("aiter::rmsnorm2d_fwd_with_add_ck", (X, X, X, X, W, "1e-5", "0")),
            ("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", (X, X, W, "1e-5")),
        )
    ),
    Case("_C::rms_norm_static_fp8_quant", (NARROW, X, W, SCALE, "1e-5"),
         NORM + 160, 2 * (160 + 16) + 160),
    Case("_C::rms_norm_dynamic_per_token_quant", (NARROW, X, W, SCALE, "1e-5", None, None),
         NORM + 2 * 160, 2 * (160 + 16) + 160),
    Case("_C::fused_add_rms_norm_static_fp8_quant", (NARROW, X, X, W, SCALE, "1e-5"),
         None, 2 * (160 + 16) + 160 + 2 * 2 * 160),
]  # fmt: skip
POINTWISE = [
    *(
        Case(name, (HALF, GATED), 2 * 5 * 6, 2 * (5 * 12 + 5 * 6))
        for name in ("_C::silu_and_mul", "sgl_kernel::silu_and_mul", "aiter::gelu_and_mul")
    ),
    Case("_C::silu_and_mul_quant", (tensor(5, 6, type_=FP8), GATED, SCALE), 3 * 30, 2 * 60 + 30),
    Case("_C::static_scaled_fp8_quant", (tensor(5, 12, type_=FP8), GATED, SCALE), 60, 3 * 60),
    Case("_C::dynamic_per_token_scaled_fp8_quant",
         (tensor(5, 12, type_=FP8), GATED, SCALE, None), 120, 3 * 60),
    Case("sgl_kernel::sgl_per_token_group_quant_8bit",
         (GATED, tensor(5, 12, type_=FP8), SCALE, "128"), 120, 3 * 60),
]  # fmt: skip


@pytest.mark.parametrize("case", [*PRODUCTS, *NORMS, *POINTWISE], ids=lambda case: case.name)
def test_work_of_an_operator_of_servers(case: Case) -> None:
    check(case)


def test_quantized_products_run_on_matrix_units_and_sizes_must_fit() -> None:
    assert work(PRODUCTS[0].name, *PRODUCTS[0].arguments).matrix
    assert "two numbers" in reject("aiter::gemm_a4w4", tensor(3, 4), B4, SCALE4, SCALE4, None)
    _, arguments, *_ = PRODUCTS[-1]
    wrong = *arguments[:-5], "4", *arguments[-4:]
    assert "sizes" in reject("_C::marlin_gemm", *wrong)


def test_linear_layers_of_servers() -> None:
    x, weight, bias = tensor(3, 6), tensor(5, 6), tensor(5)
    wrapper = work("vllm::rocm_unquantized_gemm", x, weight, bias)
    assert wrapper == work("aten::linear", x, weight, bias)
    assert work("aiter::gemm_a16w16", x, weight, None, "15") == work("aten::linear", x, weight)
    assert work("_rocm_C::wvSplitK", weight, x, bias, "304") == wrapper
    assert find_model("aiter::gemm_a16w16").leaf_only


def test_group_norm_of_aiter() -> None:
    x, c = tensor(1, 512, 4, 4), tensor(512)
    native = work("aten::native_group_norm", x, c, c, "1", "512", "16", "32", "1e-6")
    assert work("aiter::_groupnorm_run", x, "32", c, c, "1e-6") == native


@pytest.mark.parametrize("rotated", [8, 4])
def test_rotation_of_pairs(rotated: int) -> None:
    """3 tokens; 4 heads of queries and 2 of keys with 8 elements, of which some are rotated."""
    name, positions, table = "_C::rotary_embedding", tensor(3, type_=INT64), tensor(100, rotated)
    pair_count = sum(1 for _ in product(range(3), range(4 + 2), range(rotated // 2)))
    for q, k in ((tensor(3, 32), tensor(3, 16)), (tensor(3, 4, 8), tensor(3, 2, 8))):
        estimate = work(name, positions, q, k, "8", table, "True")
        assert estimate.flops == (4 + 2) * pair_count  # x cos - y sin, y cos + x sin
        assert estimate.bytes == 2 * 2 * 2 * pair_count + 3 * 8 + 2 * 3 * rotated
    arguments = positions, tensor(3, 32), None, "8", tensor(2, rotated), "True"
    short = work("sgl_kernel::rotary_embedding", *arguments)
    assert short.bytes == 2 * 2 * 3 * 4 * rotated + 3 * 8 + 2 * 2 * rotated
    assert "heads" in reject(name, positions, tensor(4, 32), None, "8", table, "True")


@pytest.mark.parametrize(("type_", "item_bytes"), [(BF16, 2), (BYTE, 1)])
def test_tokens_enter_the_cache(type_: str, item_bytes: int) -> None:
    """4 slots of 5 rows, of which one is padding; 2 heads of 8 elements, key and value."""
    x, cache, slots = tensor(5, 2, 8), tensor(100, 16, 2, 8, type_=type_), tensor(4, type_=INT64)
    size_bytes = 4 * 2 * 2 * 8 * (2 + item_bytes) + 4 * 8
    check(Case("_C_cache_ops::reshape_and_cache_flash", (x, x, cache, cache, slots), 0, size_bytes))
    flat, store = tensor(5, 16), tensor(100, 16, type_=type_)
    check(Case("sglang::store_cache", (flat, flat, store, store, slots), None, size_bytes))
