"""Operators of inference servers, against counts of their elements."""

from __future__ import annotations

import random
from itertools import product

import pytest

from stepscope.analysis.roofline.registry import find_model
from tests.support.roofline_calls import (
    BF16,
    BYTE,
    FP4,
    FP8,
    FP32,
    INT32,
    INT64,
    Argument,
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


# --- layers of experts ------------------------------------------------------------------------


def route(tokens: int, experts: int, top_k: int, seed: int) -> list[list[int]]:
    generator = random.Random(seed)
    return [generator.sample(range(experts), top_k) for _ in range(tokens)]


def count_expert_operations(routing: list[list[int]], k: int, rows: int, n: int) -> int:
    """Count the multiplications and additions of both products, one by one."""
    operations = 0
    for choice in routing:
        for _ in choice:
            for _ in product(range(rows), range(k)):  # rows of w1
                operations += 2
            for _ in product(range(k), range(n)):  # rows of w2
                operations += 2
    return operations


def experts_call(
    name: str, tokens: int = 5, experts: int = 8, top_k: int = 2, type_: str = BF16
) -> tuple[str, list[Argument]]:
    k, n = 6, 3
    return name, [
        tensor(tokens, k),
        tensor(experts, 2 * n, k, type_=type_),
        tensor(experts, k, n, type_=type_),
        tensor(tokens, top_k, type_=FP32),
        tensor(tokens, top_k, type_=INT32),
        None,
        "False",
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["vllm::outplace_fused_experts", "sglang::inplace_fused_experts", "aiter::fused_moe_"]
)
def test_operations_of_experts_do_not_depend_on_the_routing(name: str, seed: int) -> None:
    routing = route(5, 8, 2, seed)
    name, arguments = experts_call(name)
    estimate = work(name, *arguments)
    assert estimate.flops == count_expert_operations(routing, k=6, rows=6, n=3)
    assert (estimate.precision, estimate.matrix) == ("bf16", True)


@pytest.mark.parametrize(("tokens", "top_k"), [(1, 2), (3, 2), (4, 2), (50, 2), (2, 8)])
def test_weights_of_experts_are_bounded_by_the_choices(tokens: int, top_k: int) -> None:
    name, arguments = experts_call("vllm::inplace_fused_experts", tokens, top_k=top_k)
    estimate = work(name, *arguments)
    activations = 2 * tokens * 6 * 2 + tokens * top_k * (4 + 4)
    weight_bytes = 2 * (6 * 6 + 6 * 3)
    visited = max(
        len({expert for choice in route(tokens, 8, top_k, seed) for expert in choice})
        for seed in range(2000)
    )
    assert estimate.bytes == activations + weight_bytes * visited
    always_as_many = tokens == 1 or top_k == 8
    assert (estimate.note is None) == always_as_many


def test_packed_weights_hold_several_numbers_per_element() -> None:
    plain_name, plain = experts_call("vllm::outplace_fused_experts")
    hidden, weights = plain[0], plain[3:]
    packed = work(plain_name, hidden, ((8, 6, 3), BYTE), ((8, 6, 2), BYTE), *weights)
    unpacked = work(plain_name, hidden, ((8, 6, 6), BF16), ((8, 6, 4), BF16), *weights)
    assert packed.flops == unpacked.flops
    assert unpacked.bytes - packed.bytes == 8 * (6 * 6 + 6 * 4) * 2 - 8 * (6 * 3 + 6 * 2)
    assert packed.precision is None  # 4-bit integers are multiplied as 16-bit numbers, or FP4 is


SCALES, SORTED, OFFSETS = tensor(1, type_=FP32), tensor(64, type_=INT32), tensor(3, type_=INT32)
EIGHT = tensor(10, 4, type_=FP8), tensor(3, 4, 7, type_=FP8)
LAYER = 2 * 5 * 2 * (6 * 6 + 6 * 3)
"""Products of 5 tokens with 2 experts each, of 6 by 6 and 6 by 3 numbers."""
PAIRS = [tensor(5, 2, type_=FP32), *[tensor(5, 2, type_=INT32)] * 2]
CASES = [
    # The whole layer, its result first.
    Case("aiter::fmoe_fp8_blockscale_g1u1",
         (tensor(5, 6), tensor(5, 6, type_=FP8), tensor(8, 6, 6, type_=FP8),
          tensor(8, 6, 3, type_=FP8), *[SORTED] * 4, "2"),
         LAYER, 5 * 6 * (2 + 1) + 8 * (6 * 6 + 6 * 3), "fp8"),
    # Rows sorted by expert, with eight and four bits.
    Case("_C::cutlass_moe_mm",
         (tensor(10, 7), tensor(10, 6, type_=FP8), tensor(4, 6, 7, type_=FP8), SCALES, SCALES),
         2 * 10 * 7 * 6, 10 * 6 + 4 * 6 * 7 + 2 * 10 * 7, "fp8"),
    Case("_C::cutlass_fp4_group_mm",
         (tensor(10, 7), tensor(10, 3, type_=BYTE), tensor(4, 7, 3, type_=BYTE), SCALES, SCALES),
         2 * 10 * 7 * 6, 10 * 3 + 4 * 7 * 3 + 2 * 10 * 7, "fp4"),
    # Choice and sum of experts.
    Case("_moe_C::topk_softmax", (*PAIRS, tensor(5, 8, type_=FP32), "True"),
         5 * 5 * 8, 4 * (5 * 8 + 3 * 5 * 2)),
    Case("_moe_C::moe_sum", (tensor(5, 2, 6), tensor(5, 6)),
         5 * 2 * 6, 2 * (5 * 2 * 6 + 5 * 6)),
    # Types of the results of grouped products.
    Case("aten::_grouped_mm", (tensor(10, 4, type_=FP32), tensor(3, 4, 7, type_=FP32), OFFSETS),
         None, 4 * (10 * 4 + 3 * 4 * 7 + 10 * 7)),
    Case("aten::_scaled_grouped_mm",
         (*EIGHT, tensor(10, type_=FP32), tensor(3, 7, type_=FP32), OFFSETS, None, None, "6"),
         2 * 10 * 4 * 7, 10 * 4 + 3 * 4 * 7 + 4 * 10 * 7, "fp8"),
    Case("aten::_scaled_grouped_mm_v2",
         (*EIGHT, [[10]], "[1]", "[]", [[3, 7]], "[1]", "[]", OFFSETS, None, "6", "[]", "False"),
         2 * 10 * 4 * 7, 10 * 4 + 3 * 4 * 7 + 4 * 10 * 7, "fp8"),
    # Recipes tell formats of four bits.
    *(
        Case("aten::_scaled_mm_v2",
             (tensor(3, 8, type_=FP4), tensor(8, 5, type_=FP4), [[3, 1]], recipe, "[1]",
              [[3, 1]], recipe, "[1]", None, "15", "[]", "False"),
             2 * 3 * 16 * 5, 3 * 8 + 8 * 5 + 2 * 3 * 5, precision)
        for recipe, precision in (("[3]", "mxfp4"), ("[2]", "fp4"))
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_work_of_experts_and_groups(case: Case) -> None:
    check(case)


def test_precision_of_experts_is_that_of_fp8_weights() -> None:
    name, arguments = experts_call("vllm::outplace_fused_experts", type_=FP8)
    assert work(name, *arguments).precision == "fp8"


def test_experts_without_weights_or_of_other_devices_are_unknown() -> None:
    name, arguments = experts_call("vllm::outplace_fused_experts")
    mapped = [*arguments, tensor(64, type_=INT32)]
    assert "experts of this device" in reject(name, *mapped)
    other_layout = [arguments[0], tensor(8, 3, 12), *arguments[2:]]
    assert "layout" in reject(name, *other_layout)
    by_name = reject("vllm::moe_forward", tensor(888, 3072), tensor(888, 128), None)
    assert by_name == "the weights of the experts are not among the arguments"
    model = find_model("vllm::moe_forward")
    assert model.family == "moe"


def test_products_of_experts_add_up_to_the_layer() -> None:
    """T 5, E 8, k 2, K 6, N 3: the same products as above in two operators."""
    ids = tensor(64, type_=INT32)
    up = work("aiter::moe_cktile2stages_gemm1_ck", tensor(5, 6), tensor(8, 6, 6),
              tensor(5, 2, 3), ids, ids, ids, "2")  # fmt: skip
    down = work("aiter::moe_cktile2stages_gemm2_ck", tensor(5, 2, 3), tensor(8, 6, 3),
                tensor(5, 6), ids, ids, ids, "2")  # fmt: skip
    w1, w2 = tensor(8, 6, 6), tensor(8, 6, 3)
    first = work("aiter::ck_moe_stage1", tensor(5, 6), w1, w2, ids, ids, ids, tensor(5, 2, 3), "2")
    second = work("aiter::ck_moe_stage2", tensor(5, 2, 3), w1, w2, ids, ids, ids, tensor(5, 6), "2")
    assert up.flops is not None
    assert down.flops is not None
    assert up.flops + down.flops == count_expert_operations(route(5, 8, 2, 0), k=6, rows=6, n=3)
    assert (first, second) == (up, down)
    assert up.bytes == 2 * (5 * 6 + 8 * 6 * 6 + 5 * 2 * 3)
    assert down.bytes == 2 * (5 * 2 * 3 + 8 * 6 * 3 + 5 * 6)


@pytest.mark.parametrize(("rows", "top_k"), [(5, 2), (10, 1)])
def test_rows_with_packed_weights(rows: int, top_k: int) -> None:
    """Both products of a layer of 8 experts: 16 numbers by 16, packed as 1 by 32 integers."""

    def arguments(is_ep: str) -> list[Argument]:
        weight = tensor(8, 1, 32, type_=INT32)
        numbers = ["16", str(top_k), "True", is_ep, "1", str(rows), "16", "16", "True"]
        return [tensor(rows, 16), None, weight, *[None] * 12, *numbers]

    estimate = work("_moe_C::moe_wna16_marlin_gemm", *arguments("False"))
    visits = sum(map(len, route(rows, 8, top_k, 0)))
    assert estimate.flops == sum(2 for _ in product(range(visits), range(16), range(16)))
    assert estimate.bytes == 2 * rows * 16 + 8 * 16 * 16 // 2 + 2 * visits * 16
    assert "of this device" in reject("_moe_C::moe_wna16_marlin_gemm", *arguments("True"))


# --- groups of products -------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 3, 5), (10, 0, 0), (0, 4, 6)])
def test_grouped_products_for_any_split(sizes: tuple[int, ...]) -> None:
    """The offsets split rows, columns or the inner dimension, whose sizes add up to 10."""
    offsets = tensor(3, type_=INT32)
    rows = work("aten::_grouped_mm", tensor(10, 4), tensor(3, 4, 7), offsets)
    columns = work("aten::_grouped_mm", tensor(3, 7, 4), tensor(4, 10), offsets)
    inner = work("aten::_grouped_mm", tensor(7, 10), tensor(10, 4), offsets)
    expected = sum(2 for size in sizes for _ in product(range(size), range(4), range(7)))
    assert rows.flops == columns.flops == inner.flops == expected
    assert rows.bytes == columns.bytes == 2 * (10 * 4 + 3 * 4 * 7 + 10 * 7)
    assert inner.bytes == 2 * (7 * 10 + 10 * 4 + 3 * 7 * 4)
