"""Models of operators, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from stepscope.analysis.roofline import attention, layers, matrix, pointwise
from stepscope.analysis.roofline.calls import Call, Family, NotModelledError, Work
from stepscope.analysis.roofline.pointwise import COMPILED_PREFIXES, compiled
from stepscope.analysis.roofline.serving import SERVER_MODELS, SERVER_WRAPPERS

_IMPOSSIBLE = 1 << 62
"""Limit of operations or bytes of one call: the fastest device would take an hour."""


class OperatorModel(msgspec.Struct, frozen=True):
    """Model of the work of an operator."""

    family: Family
    work: Callable[[Call], Work]
    leaf_only: bool = False
    """True if the model only applies to calls that launch kernels themselves; other calls are
    wrappers around operators with models of their own."""


def find_model(name: str) -> OperatorModel | None:
    """Find the model of an operator, None without one."""
    if name.startswith(COMPILED_PREFIXES):
        return _COMPILED
    return MODELS.get(name)


def estimate_work(call: Call) -> Work | str:
    """Estimate the work of a call; return the reason as text if that is not possible."""
    model = find_model(call.name)
    if model is None:
        return "the operator has no model"
    try:
        work = model.work(call)
    except NotModelledError as error:
        return str(error)
    except (LookupError, ValueError, TypeError, ZeroDivisionError, AttributeError):
        return "the arguments do not match the operator's known signature"
    if not (0 <= work.bytes < _IMPOSSIBLE and 0 <= (work.flops or 0) < _IMPOSSIBLE):
        return "the recorded shapes are impossibly large"
    return work


def _make_models(
    family: Family, models: Mapping[str, Callable[[Call], Work]], *, leaf_only: bool = False
) -> dict[str, OperatorModel]:
    return {
        f"aten::{name}": OperatorModel(family, work, leaf_only) for name, work in models.items()
    }


def _assign(names: str, work: Callable[[Call], Work]) -> dict[str, Callable[[Call], Work]]:
    """Assign one model to several operators."""
    return dict.fromkeys(names.split(), work)


def _add_in_place(names: str) -> str:
    """Add the in-place variants of operators."""
    return " ".join(f"{name} {name}_" for name in names.split())


_Conv = layers.ConvolutionLayout
_CONVOLUTIONS = {
    "convolution": _Conv(
        bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8
    ),
    "_convolution": _Conv(
        bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8
    ),
    "cudnn_convolution": _Conv(padding=2, stride=3, dilation=4),
    "cudnn_convolution_relu": _Conv(bias=2, stride=3, padding=4, dilation=5),
    "cudnn_convolution_add_relu": _Conv(bias=4, stride=5, padding=6, dilation=7),
    "cudnn_convolution_transpose": _Conv(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True
    ),
    "miopen_convolution": _Conv(bias=2, padding=3, stride=4, dilation=5),
    "miopen_depthwise_convolution": _Conv(bias=2, padding=3, stride=4, dilation=5),
    "miopen_convolution_transpose": _Conv(
        bias=2, padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True
    ),
    "mkldnn_convolution": _Conv(bias=2, padding=3, stride=4, dilation=5),
    "_conv_depthwise2d": _Conv(bias=3, stride=4, padding=5, dilation=6),
    "conv_depthwise3d": _Conv(bias=3, stride=4, padding=5, dilation=6),
    "thnn_conv2d": _Conv(bias=3, stride=4, padding=5),
    "_slow_conv2d_forward": _Conv(bias=3, stride=4, padding=5),
    "slow_conv_dilated2d": _Conv(bias=3, stride=4, padding=5, dilation=6),
    "slow_conv3d_forward": _Conv(bias=3, stride=4, padding=5),
}
_Attn = attention.AttentionLayout
_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": _Attn(causal=4),
    "aten::_scaled_dot_product_efficient_attention": _Attn(causal=6, corner="top_left", bias=3),
    "aten::_scaled_dot_product_cudnn_attention": _Attn(causal=6, corner="top_left", bias=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Attn(
        causal=5, corner="top_left", bias=3
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Attn(causal=4, corner="top_left", bias=5),
    "aten::_flash_attention_forward": _Attn(causal=8, order="sequence_first", lengths=3),
    "aten::_efficient_attention_forward": _Attn(
        causal=9, mask_type=True, order="sequence_first", bias=3, lengths=4
    ),
    "flash_attn::_flash_attn_forward": _Attn(causal=5, order="sequence_first"),
    "flash_attn::_flash_attn_varlen_forward": _Attn(causal=9, order="sequence_first", lengths=3),
}
_ATTENTION_BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": _Attn(query=1, causal=11),
    "aten::_scaled_dot_product_efficient_attention_backward": _Attn(
        query=1, causal=11, corner="top_left", bias=4
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attn(
        query=1, causal=14, corner="top_left", bias=8
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _Attn(
        query=1, causal=7, corner="top_left", bias=8
    ),
    "aten::_flash_attention_backward": _Attn(query=1, causal=11, order="sequence_first", lengths=6),
    "aten::_efficient_attention_backward": _Attn(
        query=1, causal=14, mask_type=True, order="sequence_first", bias=4, lengths=6
    ),
    "flash_attn::_flash_attn_backward": _Attn(query=1, causal=11, order="sequence_first"),
    "flash_attn::_flash_attn_varlen_backward": _Attn(
        query=1, causal=15, order="sequence_first", lengths=9
    ),
}
_UNARY = (
    "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan tanh "
    "sigmoid logit erf erfinv erfc ceil floor round trunc frac sign bitwise_not relu relu6 silu "
    "mish elu celu selu leaky_relu hardtanh hardsigmoid hardswish softplus clamp nan_to_num "
    "threshold tril triu gelu log_sigmoid softshrink hardshrink"
)
_BINARY = (
    "add sub rsub mul div pow clamp_min clamp_max remainder fmod atan2 bitwise_and bitwise_or "
    "bitwise_xor masked_fill maximum minimum fmax fmin xlogy hypot sigmoid_backward "
    "tanh_backward threshold_backward gelu_backward silu_backward mish_backward "
    "hardtanh_backward hardswish_backward leaky_relu_backward softplus_backward "
    "native_dropout_backward"
)
_FOREACH_LISTS = {
    1: "neg sqrt rsqrt reciprocal abs exp log sign sigmoid tanh",
    2: "add sub mul div pow maximum minimum clamp_min clamp_max",
    3: "lerp addcmul addcdiv",
}
"""`_foreach` operators by the number of lists they accept; three lists mean three operations."""

_COMPILED = OperatorModel(
    "compiled",
    partial(compiled, arithmetic=frozenset(f"{_UNARY} {_BINARY} where".split()) - {"tril", "triu"}),
)

MODELS: dict[str, OperatorModel] = {
    **_make_models(
        "gemm",
        {
            "mm": matrix.mm,
            "bmm": matrix.bmm,
            "addmm": matrix.addmm,
            "_addmm_activation": matrix.addmm,
            "baddbmm": matrix.baddbmm,
            "addbmm": matrix.addbmm,
            "mv": matrix.mv,
            "addmv": matrix.addmv,
            "addmv_": matrix.addmv,
            "dot": matrix.dot,
            "vdot": matrix.dot,
            **_assign("_scaled_mm _scaled_mm_v2", matrix.scaled_mm),
            "_int_mm": matrix.int_mm,
            "_grouped_mm": matrix.grouped_mm,
            "_scaled_grouped_mm": partial(matrix.grouped_mm, offsets=4),
            "_scaled_grouped_mm_v2": partial(matrix.grouped_mm, offsets=8),
            "mkldnn_linear": matrix.linear,
        },
    ),
    **_make_models("gemm", {"linear": matrix.linear, "matmul": matrix.matmul}, leaf_only=True),
    **_make_models(
        "convolution",
        {name: partial(layers.convolution, at=at) for name, at in _CONVOLUTIONS.items()},
    ),
    **_make_models(
        "convolution",
        {
            "convolution_backward": layers.convolution_backward,
            **_assign(
                "cudnn_convolution_backward miopen_convolution_backward",
                layers.vendor_convolution_backward,
            ),
            **_assign(
                "cudnn_convolution_backward_input miopen_convolution_backward_input",
                layers.vendor_gradient_of_input,
            ),
            **_assign(
                "cudnn_convolution_backward_weight miopen_convolution_backward_weight",
                layers.vendor_gradient_of_weight,
            ),
        },
    ),
    **{
        name: OperatorModel("attention", partial(attention.forward, at=at))
        for name, at in _ATTENTION.items()
    },
    **{
        name: OperatorModel("attention", partial(attention.backward, at=at))
        for name, at in _ATTENTION_BACKWARD.items()
    },
    **_make_models(
        "normalization",
        {
            **_assign("native_batch_norm cudnn_batch_norm miopen_batch_norm", layers.batch_norm),
            **_assign(
                "cudnn_batch_norm_backward miopen_batch_norm_backward",
                layers.vendor_batch_norm_backward,
            ),
            "native_batch_norm_backward": layers.batch_norm_backward,
            "native_layer_norm": layers.layer_norm,
            "native_layer_norm_backward": layers.layer_norm_backward,
            "native_group_norm": layers.group_norm,
            "native_group_norm_backward": layers.group_norm_backward,
            "_fused_rms_norm": layers.rms_norm,
            "_fused_rms_norm_backward": layers.rms_norm_backward,
        },
    ),
    **_make_models(
        "elementwise",
        {
            **_assign(_add_in_place(_UNARY), partial(pointwise.elementwise, inputs=1)),
            **_assign(_add_in_place(_BINARY), partial(pointwise.elementwise, inputs=2)),
            **_assign("eq ne lt le gt ge logical_and logical_or logical_xor", pointwise.comparison),
            **_assign(
                "isnan isinf isneginf isposinf isfinite signbit logical_not",
                partial(pointwise.comparison, inputs=1),
            ),
            **_assign("bernoulli_ normal_ uniform_ random_ exponential_", pointwise.generate),
            **_assign(
                _add_in_place("addcmul addcdiv lerp"),
                partial(pointwise.elementwise, inputs=3, operations=3),
            ),
            "where": partial(pointwise.elementwise, inputs=3),
            "mse_loss_backward": partial(pointwise.elementwise, inputs=3, operations=2),
            "native_dropout": pointwise.dropout,
        },
    ),
    **_make_models(
        "reduction",
        {
            **_assign("sum nansum mean prod amax amin argmax argmin any all", pointwise.reduction),
            **_assign("max min", pointwise.extreme),
            "mse_loss": pointwise.mean_squared_error,
            "max_pool2d_with_indices": pointwise.max_pool,
            "max_pool2d_with_indices_backward": pointwise.max_pool_backward,
            **_assign("norm linalg_vector_norm", partial(pointwise.reduction, operations=2)),
            **_assign("var std var_mean", partial(pointwise.reduction, operations=3)),
            **_assign("cumsum cumprod", pointwise.scan),
        },
    ),
    **_make_models(
        "softmax",
        {
            **_assign("_softmax _log_softmax", pointwise.softmax),
            **_assign(
                "_softmax_backward_data _log_softmax_backward_data", pointwise.softmax_backward
            ),
        },
    ),
    **_make_models(
        "embedding",
        {
            "index_select": pointwise.lookup,
            "embedding_dense_backward": pointwise.embedding_backward,
        },
    ),
    **_make_models("embedding", {"embedding": pointwise.lookup}, leaf_only=True),
    **_make_models(
        "movement",
        {
            "copy_": pointwise.copy,
            **_assign("fill_ zero_", pointwise.fill),
            "cat": pointwise.concatenate,
        },
    ),
    **_make_models(
        "optimizer",
        {
            **{
                f"_foreach_{name}": partial(
                    pointwise.foreach, lists=lists, operations=3 if lists == 3 else 1
                )
                for lists, names in _FOREACH_LISTS.items()
                for name in _add_in_place(names).split()
            },
            "_foreach_norm": partial(pointwise.foreach, lists=1, operations=2),
            **_assign("_fused_adam_ _fused_adamw_", pointwise.adam),
            "_fused_sgd_": pointwise.sgd,
            "_amp_foreach_non_finite_check_and_unscale_": pointwise.unscale,
        },
    ),
    **{
        name: OperatorModel(family, work, leaf_only)
        for leaf_only, families in ((False, SERVER_MODELS), (True, SERVER_WRAPPERS))
        for family, models in families.items()
        for name, work in models.items()
    },
}
"""Models by the name of the operator."""
