"""Operators of inference servers, against loops over tokens, experts, queries and keys."""

from __future__ import annotations

import random
from itertools import product

import pytest

from stepscope.analysis.roofline.batches import parse_batch
from stepscope.analysis.roofline.calls import BatchLengths, Call, Work
from stepscope.analysis.roofline.registry import estimate_work, find_model
from tests.support.roofline_calls import BF16, FP8, FP32, INT64, Argument, call, reject, work
from tests.support.roofline_columns import Launch, Op, accounted

INT = "int"
FP4 = "c10::Float4_e2m1fn_x2"
BYTE = "unsigned char"
Lengths = list[tuple[int, int]]


def tensor(*dims: int, type_: str = BF16) -> Argument:
    return (dims, type_)


# --- layers of experts ------------------------------------------------------------------------


def route(tokens: int, experts: int, top_k: int, seed: int) -> list[list[int]]:
    generator = random.Random(seed)
    return [generator.sample(range(experts), top_k) for _ in range(tokens)]


def count_expert_operations(routing: list[list[int]], k: int, rows: int, n: int) -> int:
    """Count the multiplications and additions of both products, one by one."""
    operations = 0
    for chosen in routing:
        for _ in chosen:
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
        tensor(tokens, top_k, type_=INT),
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
    most = max(
        len({expert for chosen in route(tokens, 8, top_k, seed) for expert in chosen})
        for seed in range(2000)
    )
    assert estimate.bytes == activations + weight_bytes * most
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


def test_precision_of_experts_is_that_of_fp8_weights() -> None:
    name, arguments = experts_call("vllm::outplace_fused_experts", type_=FP8)
    assert work(name, *arguments).precision == "fp8"


def test_experts_without_weights_or_of_other_devices_are_unknown() -> None:
    name, arguments = experts_call("vllm::outplace_fused_experts")
    mapped = [*arguments, tensor(64, type_=INT)]
    assert "experts of this device" in reject(name, *mapped)
    other_layout = [arguments[0], tensor(8, 3, 12), *arguments[2:]]
    assert "layout" in reject(name, *other_layout)
    by_name = reject("vllm::moe_forward", tensor(888, 3072), tensor(888, 128), None)
    assert by_name == "the weights of the experts are not among the arguments"
    model = find_model("vllm::moe_forward")
    assert model is not None
    assert model.family == "moe"


def test_products_of_experts_add_up_to_the_layer() -> None:
    """T 5, E 8, k 2, K 6, N 3: the same products as above in two operators."""
    ids = tensor(64, type_=INT)
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


def test_whole_layer_with_its_result_first() -> None:
    estimate = work(
        "aiter::fmoe_fp8_blockscale_g1u1",
        tensor(5, 6), tensor(5, 6, type_=FP8), tensor(8, 6, 6, type_=FP8),
        tensor(8, 6, 3, type_=FP8), *[tensor(64, type_=INT)] * 4, "2",
    )  # fmt: skip
    assert estimate.flops == count_expert_operations(route(5, 8, 2, 0), k=6, rows=6, n=3)
    assert estimate.bytes == 5 * 6 * (2 + 1) + 8 * (6 * 6 + 6 * 3)
    assert estimate.precision == "fp8"


def test_rows_sorted_by_expert() -> None:
    scales = tensor(1, type_=FP32)
    eight_bits = work("_C::cutlass_moe_mm", tensor(10, 7), tensor(10, 6, type_=FP8),
                      tensor(4, 6, 7, type_=FP8), scales, scales)  # fmt: skip
    four_bits = work("_C::cutlass_fp4_group_mm", tensor(10, 7), tensor(10, 3, type_=BYTE),
                     tensor(4, 7, 3, type_=BYTE), scales, scales)  # fmt: skip
    operations = sum(2 for _ in product(range(10), range(7), range(6)))
    assert eight_bits.flops == four_bits.flops == operations
    assert eight_bits.bytes == 10 * 6 + 4 * 6 * 7 + 2 * 10 * 7
    assert four_bits.bytes == 10 * 3 + 4 * 7 * 3 + 2 * 10 * 7
    assert (eight_bits.precision, four_bits.precision) == ("fp8", "fp4")


def test_choice_and_sum_of_experts() -> None:
    chosen = tensor(5, 2, type_=FP32), tensor(5, 2, type_=INT), tensor(5, 2, type_=INT)
    router = work("_moe_C::topk_softmax", *chosen, tensor(5, 8, type_=FP32), "True")
    total = work("_moe_C::moe_sum", tensor(5, 2, 6), tensor(5, 6))
    assert (router.flops, router.bytes) == (5 * 5 * 8, 4 * (5 * 8 + 3 * 5 * 2))
    assert (total.flops, total.bytes) == (5 * 2 * 6, 2 * (5 * 2 * 6 + 5 * 6))


# --- groups of products -------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 3, 5), (10, 0, 0), (0, 4, 6)])
def test_grouped_products_for_any_split(sizes: tuple[int, ...]) -> None:
    """The offsets split rows, columns or the inner dimension, whose sizes add up to 10."""
    offsets = tensor(3, type_=INT)
    rows = work("aten::_grouped_mm", tensor(10, 4), tensor(3, 4, 7), offsets)
    columns = work("aten::_grouped_mm", tensor(3, 7, 4), tensor(4, 10), offsets)
    inner = work("aten::_grouped_mm", tensor(7, 10), tensor(10, 4), offsets)
    expected = sum(2 for size in sizes for _ in product(range(size), range(4), range(7)))
    assert rows.flops == columns.flops == inner.flops == expected
    assert rows.bytes == columns.bytes == 2 * (10 * 4 + 3 * 4 * 7 + 10 * 7)
    assert inner.bytes == 2 * (7 * 10 + 10 * 4 + 3 * 7 * 4)


def test_type_of_the_result_of_grouped_products() -> None:
    arguments = tensor(10, 4, type_=FP32), tensor(3, 4, 7, type_=FP32), tensor(3, type_=INT)
    assert work("aten::_grouped_mm", *arguments).bytes == 4 * (10 * 4 + 3 * 4 * 7 + 10 * 7)
    eight_bits = tensor(10, 4, type_=FP8), tensor(3, 4, 7, type_=FP8)
    scales = tensor(10, type_=FP32), tensor(3, 7, type_=FP32)
    offsets = tensor(3, type_=INT)
    first = work("aten::_scaled_grouped_mm", *eight_bits, *scales, offsets, None, None, "6")
    second = work(
        "aten::_scaled_grouped_mm_v2", *eight_bits,
        [[10]], "[1]", "[]", [[3, 7]], "[1]", "[]", offsets, None, "6", "[]", "False",
    )  # fmt: skip
    assert first == second
    assert first.bytes == 10 * 4 + 3 * 4 * 7 + 4 * 10 * 7
    assert first.precision == "fp8"


@pytest.mark.parametrize(("recipe", "precision"), [("[3]", "mxfp4"), ("[2]", "fp4")])
def test_recipes_tell_formats_of_four_bits(recipe: str, precision: str) -> None:
    scales = [[3, 1]]
    estimate = work(
        "aten::_scaled_mm_v2", tensor(3, 8, type_=FP4), tensor(8, 5, type_=FP4),
        scales, recipe, "[1]", scales, recipe, "[1]", None, "15", "[]", "False",
    )  # fmt: skip
    assert estimate.flops == sum(2 for _ in product(range(3), range(16), range(5)))
    assert (estimate.bytes, estimate.precision) == (3 * 8 + 8 * 5 + 2 * 3 * 5, precision)


# --- products of quantized matrices -------------------------------------------------------------


def test_quantized_products() -> None:
    a, weight = tensor(3, 6, type_=FP8), tensor(5, 6, type_=FP8)
    scale, out = tensor(1, type_=FP32), tensor(3, 5)
    estimates = [
        work("_C::cutlass_scaled_mm", out, a, tensor(6, 5, type_=FP8), scale, scale, None),
        work("sgl_kernel::fp8_scaled_mm", a, tensor(6, 5, type_=FP8), scale, scale, "15", None),
        work("aiter::gemm_a8w8_blockscale_ck", a, weight, scale, scale, out),
        work("vllm::rocm_aiter_triton_gemm_a8w8_blockscale", a, weight, scale, scale, None, None),
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


def test_linear_layers_of_servers() -> None:
    x, weight, bias = tensor(3, 6), tensor(5, 6), tensor(5)
    wrapper = work("vllm::rocm_unquantized_gemm", x, weight, bias)
    assert wrapper == work("aten::linear", x, weight, bias)
    assert work("aiter::gemm_a16w16", x, weight, None, "15") == work("aten::linear", x, weight)
    assert work("_rocm_C::wvSplitK", weight, x, bias, "304") == wrapper
    model = find_model("aiter::gemm_a16w16")
    assert model is not None
    assert model.leaf_only


# --- attention over sequences of different lengths ----------------------------------------------


def count_twice_pairs(lengths: Lengths) -> int:
    """Count pairs of query and key twice, the diagonal of the new tokens once: half of it."""
    total = 0
    for new, keys in lengths:
        for query, key in product(range(new), range(keys)):
            position = keys - new + query
            total += 2 if key < position else 1 if key == position else 0
    return total


def sum_lengths(lengths: Lengths) -> BatchLengths:
    return BatchLengths(
        queries=sum(q for q, _ in lengths),
        keys=sum(k for _, k in lengths),
        squares=sum(q * q for q, _ in lengths),
        products=sum(q * k for q, k in lengths),
    )


def name_sums(lengths: Lengths) -> str:
    sums = sum_lengths(lengths)
    return f"(sq{sums.queries}sk{sums.keys}sqsq{sums.squares}sqsk{sums.products})"


def name_step(context: Lengths, generation: Lengths) -> str:
    tokens = sum(q for q, _ in context + generation)
    return (
        f"execute_{tokens}_context_{len(context)}{name_sums(context)}"
        f"_generation_{len(generation)}{name_sums(generation)}"
    )


CONTEXT: Lengths = [(5, 5), (3, 9)]
GENERATION: Lengths = [(1, 12), (1, 7), (2, 4)]


def test_annotations_name_the_lengths() -> None:
    both = sum_lengths(CONTEXT + GENERATION)
    assert parse_batch(name_step(CONTEXT, GENERATION)) == both
    c, g = sum_lengths(CONTEXT), sum_lengths(GENERATION)
    mixed = (
        f"step[MIXED bs=5 c=2 g=3 c_sq={c.queries} c_sk={c.keys} c_sqsq={c.squares} "
        f"c_sqsk={c.products} g_sq={g.queries} g_sk={g.keys} g_sqsq={g.squares} "
        f"g_sqsk={g.products}]"
    )
    extend = f"step[EXTEND bs=2 toks=8 c_sq=8 c_sqsq={c.squares} c_sqsk={c.products} c_sk={c.keys}]"
    assert parse_batch(mixed) == both
    assert parse_batch(extend) == c


@pytest.mark.parametrize(
    "name",
    [
        "execute_context_1(888)_generation_0(0)",
        "execute_context_1(888_788544)_generation_0(0)",
        "step[DECODE bs=32]",
        "step[EXTEND bs=15 toks=15360]",
        "my_sq1sk1sqsq1sqsk1",
        "",
    ],
)
def test_annotations_without_lengths(name: str) -> None:
    assert parse_batch(name) is None


def unified(tokens: int, batch: BatchLengths | None) -> Work | str:
    """Attention of vLLM: 4 heads of queries, 2 of keys and values, 8 numbers each."""
    q, k = tensor(tokens, 4, 8), tensor(tokens, 2, 8)
    arguments = call("vllm::unified_attention_with_output", q, k, k, q, None, None, None)
    return estimate_work(
        Call(
            name=arguments.name,
            dims=arguments.dims,
            types=arguments.types,
            values=arguments.values,
            batch=batch,
        )
    )


@pytest.mark.parametrize("padding", [0, 4])
def test_attention_of_annotated_lengths(padding: int) -> None:
    lengths = CONTEXT + GENERATION
    tokens = sum(q for q, _ in lengths)
    estimate = unified(tokens + padding, sum_lengths(lengths))
    assert isinstance(estimate, Work)
    # Two products of 8 numbers each, and 4 heads.
    assert estimate.flops == 4 * count_twice_pairs(lengths) * (8 + 8)
    keys = sum(k for _, k in lengths)
    assert estimate.bytes == 2 * (tokens * 4 * (8 + 8) + keys * 2 * (8 + 8))
    assert estimate.note is not None
    assert "sliding window" in estimate.note


def test_attention_of_unknown_lengths_is_unknown() -> None:
    assert "not in the trace" in str(unified(12, None))
    assert "not those of this call" in str(unified(3, sum_lengths(CONTEXT)))


def prefill(tokens: int, sequences: int, *scalars: str) -> list[Argument]:
    """Arguments of AITER's prefill from pages: a cache of 100 tokens."""
    cache, starts = tensor(100, 2, 8), tensor(sequences + 1, type_=INT)
    return [tensor(tokens, 4, 8), cache, cache, starts, starts, tensor(64, type_=INT), *scalars]


def test_maxima_that_leave_one_possibility_are_the_lengths() -> None:
    scalars = "0.", "0.125", "0.", "False", "True", "-1", "-1"
    estimate = work("aiter::mha_batch_prefill", *prefill(12, 3, "4", "4", *scalars))
    assert estimate.flops == 4 * count_twice_pairs([(4, 4)] * 3) * (8 + 8)
    assert estimate.bytes == 2 * (12 * 4 * 16 + 12 * 2 * 16)
    assert estimate.note is None
    whole = work("aiter::mha_batch_prefill", *prefill(12, 3, "4", "4", *scalars[:4], "False"))
    assert whole.flops == 4 * sum(2 for _ in product(range(3), range(4), range(4))) * (8 + 8)


@pytest.mark.parametrize(
    ("sequences", "maxima", "window"),
    [(3, ("4", "9"), "-1"), (4, ("4", "4"), "-1"), (3, ("4", "4"), "127")],
)
def test_maxima_that_leave_several_possibilities(
    sequences: int, maxima: tuple[str, str], window: str
) -> None:
    arguments = prefill(12, sequences, *maxima, "0.", "0.125", "0.", "False", "True", window, "0")
    assert "windo" in reject("aiter::mha_batch_prefill", *arguments)


def flash_3(q: Argument, k: Argument, starts: Argument, table: Argument) -> list[Argument]:
    positions: list[Argument] = [None] * 27
    positions[:3] = q, k, k
    positions[7] = starts
    positions[12:15] = ("4", "4", table) if starts else (None, None, table)
    positions[23:27] = "0.125", "True", "-1", "-1"
    return positions


@pytest.mark.parametrize("name", ["_vllm_fa3_C::fwd", "flash_attn_3::fwd"])
def test_flash_attention_3_with_and_without_a_cache(name: str) -> None:
    q, k, starts = tensor(3, 4, 4, 8), tensor(3, 4, 2, 8), tensor(4, type_=INT)
    dense = work(name, *flash_3(q, k, None, None))
    assert dense.flops == 4 * count_twice_pairs([(4, 4)] * 3) * (8 + 8)
    packed = work(name, *flash_3(tensor(12, 4, 8), tensor(12, 2, 8), starts, None))
    assert (packed.flops, packed.bytes) == (dense.flops, dense.bytes)
    pages, table = tensor(20, 16, 2, 8), tensor(3, 10, type_=INT)
    assert work(name, *flash_3(tensor(12, 4, 8), pages, starts, table)).flops == dense.flops
    assert "not in the trace" in reject(name, *flash_3(q, pages, None, table))


def test_annotated_steps_of_a_trace_have_works_of_their_own() -> None:
    """Two steps with the same shapes; the second calls a kernel with a sliding window, too."""

    def attend(start: int, kernel: str) -> Op:
        q, k = [12, 4, 8], [12, 2, 8]
        return Op(
            "vllm::unified_attention_with_output",
            start,
            dims=[q, k, k, q, []],
            types=[BF16, BF16, BF16, BF16, ""],
            values=["", "", "", "", ""],
            launches=[Launch(kernel, start + 5, 10)],
        )

    account = accounted(
        attend(100, "fmha"), attend(200, "fmha"), attend(210, "fmhaSlidingCausal"),
        attend(300, "fmha"),
        annotations=[
            (name_step(CONTEXT, []), 90, 50),
            (name_step([], [(1, 20)] * 12), 190, 50),
            ("execute_context_1(8)_generation_0(0)", 290, 50),
        ],
    )  # fmt: skip
    works = [account.signatures[int(signature)].work for signature in account.signature]
    flops = [estimate.flops if estimate is not None else None for estimate in works]
    assert flops == [
        4 * count_twice_pairs(CONTEXT) * 16,
        4 * count_twice_pairs([(1, 20)] * 12) * 16,
        None,
        None,
    ]


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
