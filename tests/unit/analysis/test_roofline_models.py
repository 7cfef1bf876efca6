"""Operations and bytes of operators, derived by hand from their shapes."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.analysis.roofline.calls import Call, Work
from stepscope.analysis.roofline.registry import MODELS, estimate_work, find_model
from tests.support.roofline_calls import (
    BF16,
    FP4,
    FP8,
    FP32,
    INT64,
    Argument,
    Case,
    call,
    check,
    reject,
    tensor,
    work,
)

b = tensor


def f(*dims: int) -> Argument:
    return tensor(*dims, type_=FP32)


SCALE, E8M0 = f(), ((512,), "c10::Float8_e8m0fnu")
SCALES_8 = tensor(512, type_=FP8)
A8, B8 = tensor(16, 32, type_=FP8), tensor(32, 64, type_=FP8)
A4, B4 = tensor(16, 32, type_=FP4), tensor(32, 64, type_=FP4)
INTEGERS = ((16, 32), "signed char"), ((32, 64), "signed char")
OFFSETS, TOKENS, STARTS = ((4,), "int"), ((16,), INT64), ((6,), "int")
PRODUCTS = [
    # A product is two operations for each term.
    Case("mm", (b(3, 5), b(5, 7)), 2 * 3 * 5 * 7, 2 * (15 + 35 + 21), "bf16"),
    # A bias is read as stored, and added to every element; not if it is multiplied by 0.
    Case("addmm", (f(7), f(3, 5), f(5, 7), "1", "1"), 210 + 21, 4 * (15 + 35 + 21 + 7)),
    Case("addmm", (f(3, 7), f(3, 5), f(5, 7), "1", "1"), 210 + 21, 4 * (15 + 35 + 21 + 21)),
    Case("addmm", (f(3, 7), f(3, 5), f(5, 7), "0", "1"), 210, 4 * (15 + 35 + 21)),
    Case("bmm", (b(4, 3, 5), b(4, 5, 7)), 4 * 210, 4 * 2 * (15 + 35 + 21)),
    Case("baddbmm", (b(4, 3, 7), b(4, 3, 5), b(4, 5, 7), "1", "1"), 4 * 231, 8 * (71 + 21)),
    Case("matmul", (b(2, 1, 3, 5), b(4, 5, 7)), 8 * 210),
    # A layer takes its weight transposed.
    Case("linear", (b(2, 3, 5), b(7, 5), b(7)), 2 * 6 * 35 + 42, 2 * (6 * 5 + 35 + 42 + 7)),
    Case("mv", (f(3, 5), f(5)), 2 * 3 * 5),
    Case("addmv", (f(3), f(3, 5), f(5)), 2 * 15 + 3),
    Case("dot", (f(5), f(5)), 10),
    # Products of FP8 have wider results; an element of FP4 is two numbers.
    Case("_scaled_mm", (A8, B8, SCALE, SCALE, None, None, "15"),
         2 * 16 * 32 * 64, 16 * 32 + 32 * 64 + 2 * 16 * 64, "fp8"),
    Case("_scaled_mm", (A8, B8, SCALE, SCALE, b(64), None, "6"),
         2 * 16 * 32 * 64 + 16 * 64, 16 * 32 + 32 * 64 + 4 * 16 * 64 + 4 * 64, "fp8"),
    Case("_scaled_mm", (A4, B4, SCALES_8, SCALES_8, None, None, "15"),
         2 * 16 * 64 * 64, 16 * 32 + 32 * 64 + 2 * 16 * 64, "fp4"),
    # Formats of four bits are told by their scales and operands.
    Case("_scaled_mm", (A4, B4, E8M0, E8M0, None, None, "15"), None, None, "mxfp4"),
    Case("_scaled_mm", (tensor(16, 64, type_=FP8), B4, E8M0, E8M0, None, None, "15"),
         2 * 16 * 64 * 64, 16 * 64 + 32 * 64 + 2 * 16 * 64, "fp8"),
    # Operands of two precisions are multiplied in the wider one.
    Case("mm", (A8, b(32, 64)), None, None, "bf16"),
    Case("_int_mm", INTEGERS, 2 * 16 * 32 * 64, 16 * 32 + 32 * 64 + 4 * 16 * 64, "int8"),
    Case("_grouped_mm", (b(100, 8), b(4, 8, 16), OFFSETS), 2 * 100 * 128, 2 * (800 + 512 + 1600)),
    Case("_grouped_mm", (b(8, 100), b(100, 16), OFFSETS), 2 * 100 * 128, 2 * (800 + 1600 + 512)),
]  # fmt: skip


def convolution(*, groups: int = 1, transposed: bool = False, bias: bool = False) -> Any:
    inner, outer = 8 // groups, 12 // groups
    weight = b(8, outer, 3, 3) if transposed else b(12, inner, 3, 3)
    output = "[1, 1]" if transposed else "[0, 0]"
    sizes = "[2, 2]", "[1]", "[1, 1]", str(transposed), output, str(groups)
    return b(2, 8, 10, 10), weight, b(12) if bias else None, *sizes


def gradients(mask: str) -> Any:
    tensors = b(2, 12, 5, 5), b(2, 8, 10, 10), b(12, 8, 3, 3)
    return *tensors, "[12]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask


OUT, SPREAD, IN = 2 * 12 * 5 * 5, 2 * 12 * 20 * 20, 2 * 8 * 100  # 20 = (10 - 1) 2 - 2 + 2 + 1 + 1
CONVOLUTIONS = [
    # A product for each element of the result; transposed, for each element of the input.
    Case("convolution", convolution(bias=True), 2 * OUT * 72 + OUT, 2 * (IN + 864 + OUT + 12)),
    Case("convolution", convolution(groups=4), 2 * OUT * 2 * 9),
    *(
        Case("convolution", convolution(groups=groups, transposed=True),
             2 * IN * (12 // groups) * 9, 2 * (IN + 8 * (12 // groups) * 9 + SPREAD))
        for groups in (1, 4)
    ),
    # Gradients follow the mask.
    Case("convolution_backward", gradients("[False, True, False]"),
         2 * OUT * 72, 2 * (OUT + IN + 864)),
    Case("convolution_backward", gradients("[True, True, True]"),
         2 * (2 * OUT * 72) + OUT, 2 * 2 * (OUT + IN + 864) + 2 * (OUT + 12)),
]  # fmt: skip


def flash(q: tuple[int, ...], kv: tuple[int, ...], causal: bool) -> Any:
    return b(*q), b(*kv), b(*kv), "0.", str(causal), "False", "0.125"


def efficient(q: tuple[int, ...], kv: tuple[int, ...], causal: bool) -> Any:
    return f(*q), f(*kv), f(*kv), None, "True", "0.", str(causal), ""


FLASH, EFFICIENT = (f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient"))
X, SEED = (2, 4, 6, 8), ((), INT64)
SIZE, FULL = 2 * 4 * 6 * 8, 2 * 4 * (2 * 6 * 6 * 8 + 2 * 6 * 6 * 8)
ATTENTION = [
    # Two products; half of them with a causal mask; five in the backward pass.
    Case(FLASH, flash(X, X, False), FULL, 2 * 4 * SIZE),
    Case(FLASH, flash(X, X, True), FULL / 2),
    Case(f"{FLASH}_backward", (*[b(*X)] * 5, f(2, 4, 6), None, None, "6", "6", "0.", "False",
                               SEED, SEED, "0.125"), FULL * 5 // 2, 2 * 8 * SIZE),
    # Grouped queries share keys and values.
    Case(FLASH, flash((2, 8, 6, 16), (2, 2, 6, 16), False),
         2 * 8 * 4 * 6 * 6 * 16, 2 * (2 * (2 * 8 * 6 * 16) + 2 * (2 * 2 * 6 * 16))),
    # A causal mask of unequal lengths is aligned at a corner: half of the square; only the first
    # keys, or all of the first and half of the last; later queries see all, or early ones none.
    *(
        Case(name, arguments((1, 1, queries, 8), (1, 1, keys, 8), True), pairs * 4 * 8)
        for queries, keys, top_left, bottom_right in (
            (4, 4, 8.0, 8.0), (4, 10, 8.0, 4 * 6 + 8.0), (10, 4, 8.0 + 6 * 4, 8.0)
        )
        for name, arguments, pairs in (
            (EFFICIENT, efficient, top_left), (FLASH, flash, bottom_right)
        )
    ),
    # Packed sequences are assumed equally long.
    Case("flash_attn::_flash_attn_varlen_forward",
         (*[b(100, 4, 8)] * 3, STARTS, STARTS, "40", "40", "0.", "0.125", "True"),
         5 * 4 * (20 * 20) * (8 + 8)),
]  # fmt: skip
LAYER, IMAGE, C, ROWS, W = b(1, 141, 512), f(4, 8, 3, 3), f(8), b(10, 16), b(16)
ALL = "[True, True, True]"
NORMS = [
    Case("native_layer_norm", (LAYER, "[512]", b(512), b(512), "1e-12"),
         5 * 141 * 512 + 6 * 512, 2 * (2 * 141 * 512 + 6 * 512)),
    Case("native_layer_norm", (LAYER, "[512]", None, None, "1e-12"),
         None, 2 * (2 * 141 * 512 + 4 * 512)),
    # In training, and with given statistics.
    Case("cudnn_batch_norm", (IMAGE, C, C, C, C, "True", "0.1", "1e-5"),
         5 * 288 + 48, 4 * (576 + 48)),
    Case("cudnn_batch_norm", (IMAGE, C, C, C, C, "False", "0.1", "1e-5"),
         2 * 288 + 48, 4 * (576 + 32)),
    # Gradients follow the mask.
    Case("native_batch_norm_backward", (IMAGE, IMAGE, C, C, C, C, C, "True", "1e-5", ALL),
         9 * 288, 4 * (3 * 288 + 5 * 8)),
    Case("miopen_batch_norm_backward", (IMAGE, IMAGE, C, C, C, C, C, "1e-5"),
         9 * 288, 4 * (3 * 288 + 5 * 8)),
    Case("native_batch_norm_backward",
         (IMAGE, IMAGE, C, C, C, C, C, "True", "1e-5", "[False, True, True]"),
         4 * 288, 4 * (2 * 288 + 5 * 8)),
    Case("native_layer_norm_backward", (ROWS, ROWS, "[16]", f(10, 1), f(10, 1), W, W, ALL),
         9 * 160, 2 * (3 * 160 + 5 * 16)),
    Case("_fused_rms_norm", (ROWS, "[16]", W, "1e-6"),
         10 * (2 * 16 + 2) + 2 * 160, 2 * (2 * 160 + 16)),
    Case("_fused_rms_norm_backward", (ROWS, ROWS, "[16]", f(10, 1), W, "[True, True]"),
         160 * (1 + 1 + 6 + 2), 2 * (3 * 160 + 2 * 16)),
]  # fmt: skip
CUBE, N = f(16, 559, 1024), 16 * 559 * 1024
POOLED, OUT_POOLED = b(10, 64, 112, 112), 10 * 64 * 56 * 56
INDICES = ((10, 64, 56, 56), INT64)
OTHERS = [
    # Operands are broadcast, and the wider type or that of the output wins.
    Case("mul", (CUBE, f(16, 559, 1)), N, 4 * (2 * N + 16 * 559)),
    Case("add", (b(8, 4), f(4), "1"), None, 2 * 32 + 4 * 4 + 4 * 32),
    Case("add", (b(8, 4), ((), "double"), "1"), None, 2 * 32 + 8 + 2 * 32),
    Case("add_", (b(8, 4), f(8, 4), "1"), None, 2 * 32 + 4 * 32 + 2 * 32),
    Case("add", (b(8, 4), b(8, 4), "1", f(8, 4)), None, 2 * 32 + 2 * 32 + 4 * 32),
    Case("eq", (((8, 4), INT64), "1"), None, 8 * 32 + 32),
    Case("addcmul_", (f(9), f(9), f(9), "1"), 27),
    # An expanded tensor is read once; copies do no arithmetic.
    Case("mul", (((1000, 1000), FP32, (1000, 1)), ((1000, 1000), FP32, (0, 0))),
         1_000_000, 4 * (1_000_000 + 1 + 1_000_000)),
    Case("copy_", (b(8, 4), f(8, 4), "False"), 0, 2 * 32 + 4 * 32),
    Case("fill_", (b(8, 4), "0"), None, 64),
    # Reductions read their dimensions.
    Case("mean", (CUBE, "[-1]", "True", None), None, 4 * (N + 16 * 559)),
    Case("sum", (CUBE, None), None, 4 * (N + 1)),
    Case("sum", (CUBE, "[0, 1]", "False", None), None, 4 * (N + 1024)),
    Case("max", (CUBE, "1", "False"), None, 4 * N + 16 * 1024 * (4 + 8)),
    Case("argmax", (CUBE, "1", "False"), None, 4 * N + 16 * 1024 * 8),
    Case("max", (CUBE,), None, 4 * (N + 1)),
    Case("max", (CUBE, CUBE), None, 4 * 3 * N),
    Case("linalg_vector_norm", (CUBE, "2", "[1]", "False", None), 2 * N),
    Case("any", (((16, 559), "bool"), "1", "False"), None, 16 * 559 + 16),
    # Pooling, losses, noise.
    Case("max_pool2d_with_indices", (POOLED, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"),
         9 * OUT_POOLED, 2 * 10 * 64 * 112 * 112 + OUT_POOLED * (2 + 8)),
    Case("max_pool2d_with_indices", (b(1, 1, 7, 7), "[2, 2]", "[]", "[0, 0]", "[1, 1]", "True"),
         4 * 16),  # rounded up: 4 by 4 windows
    Case("max_pool2d_with_indices_backward",
         (b(10, 64, 56, 56), POOLED, "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False", INDICES),
         None, OUT_POOLED * (2 + 8) + 2 * 10 * 64 * 112 * 112),
    Case("mse_loss", (f(5, 128), f(5, 128), "1"), 3 * 640, 4 * (2 * 640 + 1)),
    Case("bernoulli_", (f(5, 128), "0.1", None), "-", 4 * 640),
    Case("isnan", (f(5, 128),), None, 4 * 640 + 640),
    # Softmax and lookups.
    Case("_softmax", (b(8, 100), "-1", "True"), 5 * 800, 2 * 800 + 4 * 800),
    Case("_log_softmax_backward_data", (f(8, 100), f(8, 100), "-1", "6"), 4 * 800, 3 * 4 * 800),
    Case("index_select", (b(50000, 64), "0", TOKENS), None, 8 * 16 + 2 * 2 * 16 * 64),
    Case("embedding_dense_backward", (f(16, 64), TOKENS, "500", "-1", "False"),
         1024, 4 * 1024 + 8 * 16 + 4 * 500 * 64),
]  # fmt: skip
MATRIX = [*PRODUCTS, *CONVOLUTIONS, *ATTENTION]


@pytest.mark.parametrize("case", [*MATRIX, *NORMS, *OTHERS], ids=lambda case: case.name)
def test_work_of_an_operator(case: Case) -> None:
    check(case)


def test_products_run_on_matrix_units_and_assumptions_are_noted() -> None:
    product, norm, packed = (
        work(case.name, *case.arguments) for case in (PRODUCTS[0], NORMS[0], ATTENTION[-1])
    )
    assert (product.matrix, norm.matrix) == (True, False)
    assert packed.note is not None


def test_missing_values_leave_the_stride_unknown() -> None:
    arguments = Call(
        name="aten::cudnn_convolution",
        dims=[[2, 8, 10, 10], [12, 8, 3, 3], [], [], []],
        types=[FP32, FP32, "GenericList", "GenericList", "GenericList"],
    )
    assert estimate_work(arguments) == "the values of scalar arguments were not recorded"


ADAM = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, float>"
CAT = "CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int>"
SIZES: list[Any] = [(4, 3), (4,)]


@pytest.mark.parametrize(
    ("name", "arguments", "kernel", "flops", "size_bytes"),
    [
        ("_fused_adamw_", (*[SIZES] * 4, None, [(), ()]), ADAM, 15 * 16, 7 * 4 * 16),
        ("_foreach_mul_", (SIZES, "2.0"), ADAM, 16, 2 * 4 * 16),
        ("_foreach_add", (SIZES, SIZES, "1"), ADAM, 16, 3 * 4 * 16),
        ("_foreach_norm", (SIZES, "2"), ADAM, 32, 4 * 16),
        ("cat", ([(2, 3), (2, 5)], "1"), CAT, 0, 2 * 2 * 16),
    ],
)
def test_lists_take_their_type_from_the_kernel(
    name: str, arguments: Any, kernel: str, flops: int, size_bytes: int
) -> None:
    estimate = work(name, *arguments, kernel=kernel)
    assert (estimate.flops, estimate.bytes) == (flops, size_bytes)


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
    count = 8 * 4096 * 2048
    estimate = work(name, *[b(8, 4096, 2048)] * 3, *scalars)
    assert estimate.flops == (None if operation_count is None else operation_count * count)
    assert estimate.bytes == 3 * 2 * count
    assert estimate.note is not None
    assert ("unknown" in estimate.note) == (operation_count is None)


LARGE = b(1 << 40, 1 << 40)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nonzero", (f(3),), "the operator has no model"),
        ("mm", (((3, 5), "c10::complex<float>"), f(5, 7)), "complex"),
        ("mm", (f(3), f(5, 7)), "dimensions"),
        ("mul", (f(3), f(4)), "broadcast"),
        ("mm", (None, f(5, 7)), "not a tensor"),
        ("cat", ([(2, 3), (2, 5)], "1"), "element type"),
        ("mm", (LARGE, LARGE), "impossibly large"),
        *(
            (name, (((size, 5), BF16), operand), "not valid for a tensor")
            for size in (10**30, -1, "3", None, True, 2.0)
            for name, operand in (("mm", b(5, 7)), ("add", "1"))
        ),
    ],
)
def test_missing_figures_have_reasons(name: str, arguments: Any, reason: str) -> None:
    assert reason in reject(name, *arguments)


def test_models_accept_any_arguments() -> None:
    for name in MODELS:
        for arguments in ((), (None,), ("x",) * 16, (((), FP32),) * 16, ([],) * 16):
            assert isinstance(estimate_work(call(name, *arguments)), Work | str)


def test_wrappers_count_only_where_they_launch() -> None:
    assert [find_model(f"aten::{name}").leaf_only for name in ("linear", "addmm")] == [True, False]
    assert find_model("aten::layer_norm") is None
