"""Layers of experts and groups of products, against loops over tokens, experts and elements."""

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
    Argument,
    Case,
    check,
    reject,
    tensor,
    work,
)

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
