"""Operations and bytes of operators, derived by hand from their shapes."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.analysis.roofline.calls import Call, Work
from stepscope.analysis.roofline.registry import MODELS, estimate_work, find_model
from tests.support.roofline_calls import BF16, FP8, FP32, call, reject, work

# --- matrix products --------------------------------------------------------------------------


def test_a_product_is_two_operations_for_each_term() -> None:
    estimate = work("mm", ((3, 5), BF16), ((5, 7), BF16))
    assert estimate.flops == 2 * 3 * 5 * 7
    assert estimate.bytes == 2 * (3 * 5 + 5 * 7 + 3 * 7)
    assert (estimate.precision, estimate.matrix) == ("bf16", True)


def test_a_bias_is_read_as_stored_and_added_to_every_element() -> None:
    row = work("addmm", ((7,), FP32), ((3, 5), FP32), ((5, 7), FP32), "1", "1")
    matrix = work("addmm", ((3, 7), FP32), ((3, 5), FP32), ((5, 7), FP32), "1", "1")
    none = work("addmm", ((3, 7), FP32), ((3, 5), FP32), ((5, 7), FP32), "0", "1")
    product = work("mm", ((3, 5), FP32), ((5, 7), FP32))
    assert row.flops == matrix.flops == 2 * 3 * 5 * 7 + 3 * 7
    assert row.bytes == product.bytes + 4 * 7
    assert matrix.bytes == product.bytes + 4 * 21
    assert none == product


def test_batches() -> None:
    estimate = work("bmm", ((4, 3, 5), BF16), ((4, 5, 7), BF16))
    added = work("baddbmm", ((4, 3, 7), BF16), ((4, 3, 5), BF16), ((4, 5, 7), BF16), "1", "1")
    assert estimate.flops == 4 * 2 * 3 * 5 * 7
    assert estimate.bytes == 4 * 2 * (15 + 35 + 21)
    assert added.flops == estimate.flops + 4 * 21
    assert added.bytes == estimate.bytes + 2 * 4 * 21
    many = work("matmul", ((2, 1, 3, 5), BF16), ((4, 5, 7), BF16))
    assert many.flops == 8 * 2 * 3 * 5 * 7


def test_linear_takes_its_weight_transposed() -> None:
    estimate = work("linear", ((2, 3, 5), BF16), ((7, 5), BF16), ((7,), BF16))
    assert estimate.flops == 2 * 6 * 5 * 7 + 6 * 7
    assert estimate.bytes == 2 * (6 * 5 + 35 + 6 * 7 + 7)


def test_vectors() -> None:
    assert work("mv", ((3, 5), FP32), ((5,), FP32)).flops == 2 * 3 * 5
    assert work("addmv", ((3,), FP32), ((3, 5), FP32), ((5,), FP32)).flops == 2 * 15 + 3
    assert work("dot", ((5,), FP32), ((5,), FP32)).flops == 10


def test_fp8_products_have_wider_results() -> None:
    scale = ((), FP32)
    plain = work("_scaled_mm", ((16, 32), FP8), ((32, 64), FP8), scale, scale, None, None, "15")
    assert plain.flops == 2 * 16 * 32 * 64
    assert plain.bytes == 16 * 32 + 32 * 64 + 2 * 16 * 64
    assert plain.precision == "fp8"
    bias = ((64,), BF16)
    wide = work("_scaled_mm", ((16, 32), FP8), ((32, 64), FP8), scale, scale, bias, None, "6")
    assert wide.flops == plain.flops + 16 * 64
    assert wide.bytes == 16 * 32 + 32 * 64 + 4 * 16 * 64 + 4 * 64


def test_fp4_element_is_two_numbers() -> None:
    fp4, scale = "c10::Float4_e2m1fn_x2", ((512,), FP8)
    estimate = work("_scaled_mm", ((16, 32), fp4), ((32, 64), fp4), scale, scale, None, None, "15")
    assert estimate.flops == 2 * 16 * 64 * 64
    assert estimate.bytes == 16 * 32 + 32 * 64 + 2 * 16 * 64


def test_formats_of_four_bits_are_told_by_their_scales_and_operands() -> None:
    fp4, blocks = "c10::Float4_e2m1fn_x2", (512,)
    operands = ((16, 32), fp4), ((32, 64), fp4)

    def precision_of(*arguments: Any) -> str:
        return work("_scaled_mm", *arguments, None, None, "15").precision

    power_of_two = (blocks, "c10::Float8_e8m0fnu")
    assert precision_of(*operands, (blocks, FP8), (blocks, FP8)) == "fp4"
    assert precision_of(*operands, power_of_two, power_of_two) == "mxfp4"
    mixed = ((16, 64), FP8), ((32, 64), fp4), power_of_two, power_of_two
    assert precision_of(*mixed) == "fp8"
    estimate = work("_scaled_mm", *mixed, None, None, "15")
    assert estimate.flops == 2 * 16 * 64 * 64
    assert estimate.bytes == 16 * 64 + 32 * 64 + 2 * 16 * 64


def test_operands_of_two_precisions_are_multiplied_in_the_wider_one() -> None:
    assert work("mm", ((16, 32), FP8), ((32, 64), BF16)).precision == "bf16"


def test_integers_and_groups() -> None:
    estimate = work("_int_mm", ((16, 32), "signed char"), ((32, 64), "signed char"))
    assert (estimate.bytes, estimate.precision) == (16 * 32 + 32 * 64 + 4 * 16 * 64, "int8")
    offsets = ((4,), "int")
    rows = work("_grouped_mm", ((100, 8), BF16), ((4, 8, 16), BF16), offsets)
    assert rows.flops == 2 * 100 * 8 * 16
    assert rows.bytes == 2 * (800 + 512 + 1600)
    terms = work("_grouped_mm", ((8, 100), BF16), ((100, 16), BF16), offsets)
    assert terms.flops == 2 * 100 * 8 * 16
    assert terms.bytes == 2 * (800 + 1600 + 4 * 8 * 16)


# --- convolutions -----------------------------------------------------------------------------


def convolution(groups: int = 1, transposed: bool = False, bias: bool = False) -> Work:
    inner, outer = 8 // groups, 12 // groups
    weight = (8, outer, 3, 3) if transposed else (12, inner, 3, 3)
    return work(
        "convolution",
        ((2, 8, 10, 10), BF16),
        (weight, BF16),
        ((12,), BF16) if bias else None,
        "[2, 2]",
        "[1]",
        "[1, 1]",
        str(transposed),
        "[1, 1]" if transposed else "[0, 0]",
        str(groups),
    )


def test_a_convolution_does_a_product_for_each_element_of_its_result() -> None:
    out = 2 * 12 * 5 * 5
    estimate = convolution(bias=True)
    assert estimate.flops == 2 * out * 8 * 9 + out
    assert estimate.bytes == 2 * (2 * 8 * 100 + 12 * 8 * 9 + out + 12)
    assert convolution(groups=4).flops == 2 * out * 2 * 9


@pytest.mark.parametrize("groups", [1, 4])
def test_a_transposed_convolution_spreads_each_element_of_its_input(groups: int) -> None:
    out = 2 * 12 * 20 * 20  # (10 - 1) 2 - 2 + 2 + 1 + 1
    estimate = convolution(groups=groups, transposed=True)
    assert estimate.flops == 2 * (2 * 8 * 100) * (12 // groups) * 9
    assert estimate.bytes == 2 * (2 * 8 * 100 + 8 * (12 // groups) * 9 + out)


def test_gradients_of_a_convolution_follow_the_mask() -> None:
    x, w, dy = ((2, 8, 10, 10), BF16), ((12, 8, 3, 3), BF16), ((2, 12, 5, 5), BF16)
    product = 2 * 600 * 72

    def gradients(mask: str) -> Work:
        return work(
            "convolution_backward", dy, x, w, "[12]", "[2, 2]", "[1, 1]", "[1, 1]", "False",
            "[0, 0]", "1", mask,
        )  # fmt: skip

    all_gradients, weight_only = gradients("[True, True, True]"), gradients("[False, True, False]")
    assert all_gradients.flops == 2 * product + 600
    assert weight_only.flops == product
    assert weight_only.bytes == 2 * (600 + 1600 + 864)
    assert all_gradients.bytes == 2 * weight_only.bytes + 2 * (600 + 12)


def test_missing_values_leave_the_stride_unknown() -> None:
    arguments = Call(
        name="aten::cudnn_convolution",
        dims=[[2, 8, 10, 10], [12, 8, 3, 3], [], [], []],
        types=[FP32, FP32, "GenericList", "GenericList", "GenericList"],
    )
    assert estimate_work(arguments) == "the values of scalar arguments were not recorded"


# --- attention --------------------------------------------------------------------------------


def flash(q: tuple[int, ...], kv: tuple[int, ...], causal: bool) -> Work:
    return work(
        "_scaled_dot_product_flash_attention",
        (q, BF16), (kv, BF16), (kv, BF16), "0.", str(causal), "False", "0.125",
    )  # fmt: skip


def efficient(q: tuple[int, ...], kv: tuple[int, ...], causal: bool) -> Work:
    return work(
        "_scaled_dot_product_efficient_attention",
        (q, FP32), (kv, FP32), (kv, FP32), None, "True", "0.", str(causal), "",
    )  # fmt: skip


def test_attention_is_two_products() -> None:
    full, causal = flash((2, 4, 6, 8), (2, 4, 6, 8), False), flash((2, 4, 6, 8), (2, 4, 6, 8), True)
    assert full.flops == 2 * 4 * (2 * 6 * 6 * 8 + 2 * 6 * 6 * 8)
    assert causal.flops is not None
    assert 2 * causal.flops == full.flops
    assert full.bytes == 2 * 4 * (2 * 4 * 6 * 8)


def test_grouped_queries_share_keys_and_values() -> None:
    estimate = flash((2, 8, 6, 16), (2, 2, 6, 16), False)
    assert estimate.flops == 2 * 8 * 4 * 6 * 6 * 16
    assert estimate.bytes == 2 * (2 * (2 * 8 * 6 * 16) + 2 * (2 * 2 * 6 * 16))


@pytest.mark.parametrize(
    ("queries", "keys", "top_left", "bottom_right"),
    [
        (4, 4, 8.0, 8.0),  # half of the square
        (4, 10, 8.0, 4 * 6 + 8.0),  # only the first keys; all of the first, half of the last
        (10, 4, 8.0 + 6 * 4, 8.0),  # later queries see all; early queries see none
    ],
)
def test_a_causal_mask_of_unequal_lengths_is_aligned_at_a_corner(
    queries: int, keys: int, top_left: float, bottom_right: float
) -> None:
    q, kv = (1, 1, queries, 8), (1, 1, keys, 8)
    assert efficient(q, kv, True).flops == top_left * 4 * 8
    assert flash(q, kv, True).flops == bottom_right * 4 * 8


def test_flash_backward_is_five_products() -> None:
    x = ((2, 4, 6, 8), BF16)
    estimate = work(
        "_scaled_dot_product_flash_attention_backward",
        x, x, x, x, x, ((2, 4, 6), FP32), None, None, "6", "6", "0.", "False",
        ((), "long int"), ((), "long int"), "0.125",
    )  # fmt: skip
    forward = flash((2, 4, 6, 8), (2, 4, 6, 8), False)
    assert forward.flops is not None
    assert estimate.flops == forward.flops * 5 // 2
    assert estimate.bytes == 2 * 8 * (2 * 4 * 6 * 8)


def test_packed_sequences_are_assumed_equally_long() -> None:
    q, starts = ((100, 4, 8), BF16), ((6,), "int")
    estimate = work(
        "flash_attn::_flash_attn_varlen_forward",
        q, q, q, starts, starts, "40", "40", "0.", "0.125", "True",
    )  # fmt: skip
    assert estimate.flops == 5 * 4 * (20 * 20) * (8 + 8)
    assert estimate.note is not None


# --- normalization ----------------------------------------------------------------------------


def test_layer_norm() -> None:
    weight = ((512,), BF16)
    estimate = work("native_layer_norm", ((1, 141, 512), BF16), "[512]", weight, weight, "1e-12")
    assert estimate.flops == 5 * 141 * 512 + 6 * 512
    assert estimate.bytes == 2 * (2 * 141 * 512 + 6 * 512)
    bare = work("native_layer_norm", ((1, 141, 512), BF16), "[512]", None, None, "1e-12")
    assert bare.bytes == estimate.bytes - 2 * 2 * 512
    assert not bare.matrix


def test_batch_norm_in_training_and_with_given_statistics() -> None:
    x, c = ((4, 8, 3, 3), FP32), ((8,), FP32)
    training = work("cudnn_batch_norm", x, c, c, c, c, "True", "0.1", "1e-5")
    evaluation = work("cudnn_batch_norm", x, c, c, c, c, "False", "0.1", "1e-5")
    assert (training.flops, evaluation.flops) == (5 * 288 + 48, 2 * 288 + 48)
    assert (training.bytes, evaluation.bytes) == (4 * (576 + 48), 4 * (576 + 32))


def test_gradients_of_norms_follow_the_mask() -> None:
    x, c = ((4, 8, 3, 3), FP32), ((8,), FP32)
    all_gradients = work("native_batch_norm_backward", x, x, c, c, c, c, c, "True", "1e-5",
                 "[True, True, True]")  # fmt: skip
    assert all_gradients.flops == 9 * 288
    assert all_gradients.bytes == 4 * (3 * 288 + 5 * 8)
    vendor = work("miopen_batch_norm_backward", x, x, c, c, c, c, c, "1e-5")
    assert vendor == all_gradients
    weights = work("native_batch_norm_backward", x, x, c, c, c, c, c, "True", "1e-5",
                   "[False, True, True]")  # fmt: skip
    assert weights.flops == 4 * 288
    assert weights.bytes == 4 * (2 * 288 + 5 * 8)
    rows = ((10, 16), BF16)
    layer = work("native_layer_norm_backward", rows, rows, "[16]", ((10, 1), FP32),
                 ((10, 1), FP32), ((16,), BF16), ((16,), BF16), "[True, True, True]")  # fmt: skip
    assert (layer.flops, layer.bytes) == (9 * 160, 2 * (3 * 160 + 5 * 16))


def test_rms_norm() -> None:
    x, w = ((10, 16), BF16), ((16,), BF16)
    estimate = work("_fused_rms_norm", x, "[16]", w, "1e-6")
    assert estimate.flops == 10 * (2 * 16 + 2) + 2 * 160
    assert estimate.bytes == 2 * (2 * 160 + 16)
    back = work("_fused_rms_norm_backward", x, x, "[16]", ((10, 1), FP32), w, "[True, True]")
    assert back.flops == 160 * (1 + 1 + 6 + 2)
    assert back.bytes == 2 * (3 * 160 + 2 * 16)


# --- elementwise, reductions, others ------------------------------------------------------------


def test_operands_are_broadcast_and_the_wider_type_wins() -> None:
    estimate = work("mul", ((16, 559, 1024), FP32), ((16, 559, 1), FP32))
    assert estimate.flops == 16 * 559 * 1024
    assert estimate.bytes == 4 * (2 * 16 * 559 * 1024 + 16 * 559)
    mixed = work("add", ((8, 4), BF16), ((4,), FP32), "1")
    assert mixed.bytes == 2 * 32 + 4 * 4 + 4 * 32
    number = work("add", ((8, 4), BF16), ((), "double"), "1")
    assert number.bytes == 2 * 32 + 8 + 2 * 32
    in_place = work("add_", ((8, 4), BF16), ((8, 4), FP32), "1")
    assert in_place.bytes == 2 * 32 + 4 * 32 + 2 * 32
    assert work("eq", ((8, 4), "long int"), "1").bytes == 8 * 32 + 32
    assert work("addcmul_", ((9,), FP32), ((9,), FP32), ((9,), FP32), "1").flops == 27


def test_out_tensor_decides_the_type() -> None:
    estimate = work("add", ((8, 4), BF16), ((8, 4), BF16), "1", ((8, 4), FP32))
    assert estimate.bytes == 2 * 32 + 2 * 32 + 4 * 32


def test_expanded_tensor_is_read_once() -> None:
    spread = ((1000, 1000), FP32, (0, 0))
    estimate = work("mul", ((1000, 1000), FP32, (1000, 1)), spread)
    assert estimate.flops == 1_000_000
    assert estimate.bytes == 4 * (1_000_000 + 1 + 1_000_000)


def test_copies_do_no_arithmetic() -> None:
    estimate = work("copy_", ((8, 4), BF16), ((8, 4), FP32), "False")
    assert (estimate.flops, estimate.bytes) == (0, 2 * 32 + 4 * 32)
    assert work("fill_", ((8, 4), BF16), "0").bytes == 64


def test_reductions_read_their_dimensions() -> None:
    x = ((16, 559, 1024), FP32)
    n = 16 * 559 * 1024
    assert work("mean", x, "[-1]", "True", None).bytes == 4 * (n + 16 * 559)
    assert work("sum", x, None).bytes == 4 * (n + 1)
    assert work("sum", x, "[0, 1]", "False", None).bytes == 4 * (n + 1024)
    assert work("max", x, "1", "False").bytes == 4 * n + 16 * 1024 * (4 + 8)
    assert work("argmax", x, "1", "False").bytes == 4 * n + 16 * 1024 * 8
    assert work("max", x).bytes == 4 * (n + 1)
    assert work("max", x, x).bytes == 4 * 3 * n
    assert work("linalg_vector_norm", x, "2", "[1]", "False", None).flops == 2 * n
    assert work("any", ((16, 559), "bool"), "1", "False").bytes == 16 * 559 + 16


def test_pooling_and_losses() -> None:
    x = ((10, 64, 112, 112), BF16)
    out = 10 * 64 * 56 * 56
    estimate = work("max_pool2d_with_indices", x, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False")
    assert estimate.flops == 9 * out
    assert estimate.bytes == 2 * 10 * 64 * 112 * 112 + out * (2 + 8)
    default = work("max_pool2d_with_indices", ((1, 1, 7, 7), BF16), "[2, 2]", "[]", "[0, 0]",
                   "[1, 1]", "True")  # fmt: skip
    assert default.flops == 4 * 16  # rounded up: 4 by 4 windows
    grad = ((10, 64, 56, 56), BF16)
    back = work("max_pool2d_with_indices_backward", grad, x, "[3, 3]", "[2, 2]", "[1, 1]",
                "[1, 1]", "False", ((10, 64, 56, 56), "long int"))  # fmt: skip
    assert back.bytes == out * (2 + 8) + 2 * 10 * 64 * 112 * 112
    loss = work("mse_loss", ((5, 128), FP32), ((5, 128), FP32), "1")
    assert (loss.flops, loss.bytes) == (3 * 640, 4 * (2 * 640 + 1))
    noise = work("bernoulli_", ((5, 128), FP32), "0.1", None)
    assert (noise.flops, noise.bytes) == (None, 4 * 640)
    assert work("isnan", ((5, 128), FP32)).bytes == 4 * 640 + 640


def test_softmax_and_lookups() -> None:
    logits = ((8, 100), BF16)
    estimate = work("_softmax", logits, "-1", "True")
    assert (estimate.flops, estimate.bytes) == (5 * 800, 2 * 800 + 4 * 800)
    back = work("_log_softmax_backward_data", ((8, 100), FP32), ((8, 100), FP32), "-1", "6")
    assert (back.flops, back.bytes) == (4 * 800, 3 * 4 * 800)
    table, tokens = ((50000, 64), BF16), ((16,), "long int")
    assert work("index_select", table, "0", tokens).bytes == 8 * 16 + 2 * 2 * 16 * 64
    grads = work("embedding_dense_backward", ((16, 64), FP32), tokens, "500", "-1", "False")
    assert (grads.flops, grads.bytes) == (1024, 4 * 1024 + 8 * 16 + 4 * 500 * 64)


ADAM = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, float>"


def test_lists_take_their_type_from_the_kernel() -> None:
    sizes = [(4, 3), (4,)]
    estimate = work("_fused_adamw_", sizes, sizes, sizes, sizes, None, [(), ()], kernel=ADAM)
    assert (estimate.flops, estimate.bytes) == (15 * 16, 7 * 4 * 16)
    scaled = work("_foreach_mul_", sizes, "2.0", kernel=ADAM)
    assert (scaled.flops, scaled.bytes) == (16, 2 * 4 * 16)
    added = work("_foreach_add", sizes, sizes, "1", kernel=ADAM)
    assert added.bytes == 3 * 4 * 16
    norm = work("_foreach_norm", sizes, "2", kernel=ADAM)
    assert (norm.flops, norm.bytes) == (32, 4 * 16)
    cat = "CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int>"
    assert work("cat", [(2, 3), (2, 5)], "1", kernel=cat).bytes == 2 * 2 * 16
    assert "element type" in reject("cat", [(2, 3), (2, 5)], "1")


@pytest.mark.parametrize(
    ("name", "scalars", "operation_count"),
    [
        ("triton_poi_fused_add_3", ("67108864",), 1),
        ("triton_poi_fused__unsafe_view_mul_silu_2", ("67108864",), 2),
        ("triton_poi_fused_clamp_min_gelu_backward_view_0", ("67108864",), 2),
        ("triton_poi_fused_clone_transpose_1", ("32768", "2048"), 0),
        ("triton_poi_fused_add_3", ("5", "67108864"), 1),  # a size of a dynamic shape
        ("triton_poi_fused_add_3", ("5",), None),
        ("triton_poi_fused_add_something_3", ("67108864",), None),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", ("32768", "2048"), None),
    ],
)
def test_compiled_kernels_run_the_operators_of_their_names(
    name: str, scalars: tuple[str, ...], operation_count: int | None
) -> None:
    x = ((8, 4096, 2048), BF16)
    count = 8 * 4096 * 2048
    estimate = work(name, x, x, x, *scalars)
    assert estimate.flops == (None if operation_count is None else operation_count * count)
    assert estimate.bytes == 3 * 2 * count
    assert estimate.note is not None
    assert ("unknown" in estimate.note) == (operation_count is None)


# --- missing figures --------------------------------------------------------------------------


def test_missing_figures_have_reasons() -> None:
    assert reject("nonzero", ((3,), FP32)) == "the operator has no model"
    assert "complex" in reject("mm", ((3, 5), "c10::complex<float>"), ((5, 7), FP32))
    assert "dimensions" in reject("mm", ((3,), FP32), ((5, 7), FP32))
    assert "broadcast" in reject("mul", ((3,), FP32), ((4,), FP32))
    assert "not a tensor" in reject("mm", None, ((5, 7), FP32))


def test_models_accept_any_arguments() -> None:
    for name in MODELS:
        for arguments in ((), (None,), ("x",) * 16, (((), FP32),) * 16, ([],) * 16):
            assert isinstance(estimate_work(call(name, *arguments)), Work | str)


def test_wrappers_count_only_where_they_launch() -> None:
    linear, product = find_model("aten::linear"), find_model("aten::addmm")
    assert linear is not None
    assert linear.leaf_only
    assert product is not None
    assert not product.leaf_only
    assert find_model("aten::layer_norm") is None


# --- invalid files -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10**30, -1, "3", None, True, 2.0])
def test_invalid_sizes_are_rejected(size: Any) -> None:
    assert "not valid for a tensor" in reject("mm", ((size, 5), BF16), ((5, 7), BF16))
    assert "not valid for a tensor" in reject("add", ((size, 5), FP32), "1")


def test_impossibly_large_work_is_rejected() -> None:
    large = (1 << 40, 1 << 40)
    assert "impossibly large" in reject("mm", (large, BF16), (large, BF16))
