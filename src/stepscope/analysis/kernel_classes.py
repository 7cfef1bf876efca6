"""Purpose and precision of kernels, guessed from their names; ranges that mark time.

Profilers do not record whether a kernel communicates, whether it ran on tensor or matrix cores, or
in which precision it computed. Its name usually shows it; all such guesses are here, and every
view that shows one labels it as a heuristic. A name that no pattern knows says nothing: unknown is
not "no".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from stepscope import schema
from stepscope.analysis.arrays.columns import Strings

Precision = Literal[
    "FP64", "TF32", "FP32", "BF16", "FP16", "FP8", "FP4", "MXFP4",
    "INT64", "INT32", "INT16", "INT8", "BOOL",
]  # fmt: skip

CommunicationDefinition = Literal["wide", "narrow"]
"""`narrow` is that of published references: NCCL, RCCL and `cross_device_reduce`. `wide` adds the
kernels of all libraries below, and those that operators of collectives launch."""

_NARROW_COMMUNICATION = re.compile(r"nccl|rccl|cross_device_reduce", re.IGNORECASE)
_LIBRARY_COMMUNICATION = re.compile(
    _NARROW_COMMUNICATION.pattern
    # Symmetric memory and multimem (PyTorch), custom kernels of vLLM, AITER and TensorRT-LLM,
    # Transformer Engine, and operations of XLA, whose names are no identifiers.
    + r"|cross_device_store|multimem|symm(etric)?_mem|lamport|userbuffers"
    r"|(all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast))"
    # NVSHMEM and rocSHMEM, DeepEP, MSCCL and MSCCL++, oneCCL.
    r"|(nv|roc)_?shmem|deep_?ep(::|\d)"
    r"|(inter|intra)node(_ll)?(::|\d+)(\w*)(dispatch|combine|notify|barrier)"
    r"|msccl|oneccl|(?<![a-z])ccl(::|_)|oneapi(::|\d)ccl"
    # HCCL of Ascend NPUs, HCCL of Gaudi.
    r"|(?<![a-z])(hccl|hcom)(?![a-z])",
    re.IGNORECASE,
)
_NOT_IN_A_SCOPE = "".join(
    f"(?<!{scope})(?<!{scope}_)"
    for scope in ("block", "warp", "cg", "cluster", "lane", "segment", "thread", "tile")
)
"""Reductions within a part of a kernel have the names of collectives, too."""
_WORDS_OF_COMMUNICATION = re.compile(
    # Any collective by its name, one- and two-shot kernels (vLLM, TensorRT-LLM, FlashInfer, quick
    # reduce of AMD).
    rf"{_NOT_IN_A_SCOPE}([-_]?all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all)"
    r"|collective[-_](permute|broadcast)|(one|two)_?shot|(put|wait)_signal_kernel|shmem",
    re.IGNORECASE,
)
"""Words that kernels of one process may have in their names as well."""
_COMPILED_FUSION = re.compile(r"triton_(poi|red|per|tem)_", re.IGNORECASE)
"""Kernels of Inductor contain the names of the operators around them, collectives too."""
_COLLECTIVE_OPERATOR = re.compile(
    r"(c10d|symm_mem|_c10d_functional|_?deep_ep|nvshmem|mscclpp|oneccl|_C_custom_ar)::"
    r"|record_param_comms$|(nccl|rccl|xccl|hccl|gloo|mpi|ucc):"
)
_PLAIN_TORCH = re.compile(r"at::native::|at_cuda_detail::|Memcpy|Memset")
"""Kernels that operators of collectives launch to prepare buffers."""
_HOST_COMMUNICATION = re.compile(r"(gloo|mpi|ucc):", re.IGNORECASE)
_TENSOR_CORES = re.compile(
    # Instruction shapes in kernel libraries: Volta 884, Turing 1688, Ampere 16816, FP8, INT8.
    r"[hsdc]884|[hsc]1688|16816|16832|16864|[hidq]mma(?![a-z])|i8816"
    r"|tensor\d+x\d+x\d+|(?<!sub)tensorop(?!with)|wmma"
    # Library kernels that only exist for tensor cores.
    r"|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv1x1|conv2d_c1_k1|direct_group"
    r"|xmma_(implicit|sparse|warp_specialized|gemm|fprop|dgrad|wgrad)"
    # Hopper and Blackwell.
    r"|w?gmma(?![a-z])|utcmma|tcgen05|nvjet|cutlass3x_sm(90|1\d\d)|(?<![a-z])sm(90|1[0-2]\d)_gemm"
    r"|deep_gemm|fp8_gemm|marlin|machete"
    # Attention.
    r"|flash_?(fwd|bwd|attn|attention)|flash::|fmha|fort_native_sdpa"
    # Matrix products and attention that a compiler generated from templates.
    r"|triton_(tem|mm|bmm)|_tem_fused|matmul_kernel"
    # AMD's matrix cores.
    r"|Cijk_\w*_MI\d+x|mfma|xdl|gtcx",
    re.IGNORECASE,
)
_PLAIN_CORES = re.compile(r"ffma|simt", re.IGNORECASE)
"""A name with one of these is not a tensor-core kernel, regardless of other patterns."""
_PLAIN_MATRIX = re.compile(
    # Matrix products and convolutions of libraries, of instructions for vector units.
    r"(?<![a-z])[sdcz]gemm|(maxwell|pascal|volta|turing|ampere)_(fp16_)?[sdcz]?(gemm|cgemm|scudnn)"
    r"|scudnn|gemv|gemmk1|dot_kernel|depthwise|winograd|fft|(?<!x)_gtc_|Cijk_|splitk_?reduce"
    r"|(dgrad|wgrad)\d?d?_(alg\d_)?engine|convolve_(s|common_engine)",
    re.IGNORECASE,
)
_MATRIX_WORK = re.compile(
    r"(?<!fb)gemm|matmul|[bm]mm(?![a-z])|conv(?!ert)|attn|attention|sdpa|fmha|mla|moe|lstm|gru|rnn"
    r"|linear_(?!interp)|einsum|mma|grad_engine",
    re.IGNORECASE,
)
"""Parts of names of kernels that may multiply matrices."""
_VECTOR_WORK = re.compile(
    r"at::native::|triton_(poi|red|per)_|elementwise|vectorized|element_?wise|reduce|reduction"
    r"|softmax|norm|(?<![a-z])bn_|rotary|rope|embedding|gather|scatter|index|copy|memcpy|cat_?array"
    r"|fill|memset|dropout|pool|activation|act_and_mul|relu|gelu|silu|sigmoid|tanh|sort|top_?k|argmax"
    r"|sampl|cumsum|scan|multi_tensor_apply|im2col|col2im|transpose|permute|nchw|nhwc|(?<![a-z])pad_"
    r"|optimizer|adam|sgd|quant|random|distribution|loss|mask|tensorop|op\dd?tensor|add_?tensor"
    r"|scale\w*tensor|compute\w*offsets|criterion|cast|bias|reshape_and_cache|store_kvcache",
    re.IGNORECASE,
)
"""Parts of names of kernels whose work has no matrix products."""

_PRECISIONS: tuple[tuple[Precision, re.Pattern[str]], ...] = (
    ("MXFP4", re.compile(r"mx_?fp4|mx_?(f4)?e2m1|mxf4(?!nvf4)")),
    ("FP4", re.compile(r"e2m1|(?<![a-z])(nv)?fp4|nvf4|(?<=x)fp4|Cijk_\w+?_F4")),
    (
        "FP8",
        re.compile(
            # 0 is the type of a cache that is not in FP8.
            r"e[45]m[23]|fp8(?!kvcachedatatype\)0)|float8|qmma|nvjet_(sm\d+_)?[a-z]*q|Cijk_\w+?_[FB]8"
        ),
    ),
    ("INT8", re.compile(r"imma|i8816|i16832|(?<![a-z0-9])i8(i8|i32|f32)|s8s8|int8|Cijk_\w+?_I8")),
    ("BF16", re.compile(r"bf16|bfloat16|nvjet_(sm\d+_)?[a-z]*t[a-z]*_|Cijk_\w+?_B[BS]S?_")),
    (
        "FP16",
        re.compile(
            r"(?<![a-z])half|fp16|(?<!b)f16|hmma|h884|h1688|h16816|hgemm"
            r"|nvjet_(sm\d+_)?[a-z]*h[a-z]*_|Cijk_\w+?_H[BHS]S?_"
        ),
    ),
    ("TF32", re.compile(r"tf32|tfloat32|xf32|s1688|nvjet_(sm\d+_)?s[a-z]*_")),
    ("FP32", re.compile(r"float|f32|fp32|[sc]gemm|scudnn|ffma|Cijk_\w+?_SB?_")),
    ("FP64", re.compile(r"double|f64|fp64|[dz]gemm|d884|dmma|Cijk_\w+?_DB?_")),
)
"""Patterns by priority, the first match counts: of two types in a name, the lower precision is
that of the inputs."""
_INTEGERS: dict[Precision, str] = {
    "INT64": r"u?int64(?:_t)?|long|[iu]64",
    "INT32": r"u?int(?:32)?(?:_t)?|[iu]32",
    "INT16": r"u?int16(?:_t)?|short|[iu]16",
    "INT8": r"u?int8(?:_t)?|char|[iu]8",
    "BOOL": r"bool",
}
_INTEGER = re.compile(
    rf"(?<![a-z])(?:{'|'.join(f'(?P<{name}>{names})' for name, names in _INTEGERS.items())})"
    r"(?![a-z\d])"
)
"""Integers come after all other types, because they may only be indices. The first one in a name is
that of the elements, as in `ReduceOp<long, …, unsigned int, …>`."""
_CASE_SENSITIVE = "Cijk_"
_CACHE_SIZE = 4096
"""Number of names with cached results: all ranks run the same kernels."""
_OPAQUE = "OpaqueType"
"""Part of the names of kernels that move elements without reading them: any other type in such a
name is that of indices."""


@lru_cache(_CACHE_SIZE)
def is_communication(name: str) -> bool:
    """Return True if a kernel belongs to a collective, by the wide definition.

    >>> is_communication("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    True
    >>> is_communication("void multimem_all_reduce_kernel<c10::BFloat16, 16>")
    True
    >>> is_communication("all-reduce-start.1"), is_communication("collective-permute")  # of XLA
    (True, True)
    """
    return is_library_communication(name) or (
        _WORDS_OF_COMMUNICATION.search(name) is not None and _COMPILED_FUSION.search(name) is None
    )


def is_library_communication(name: str) -> bool:
    """Return True if a kernel is one of a library for communication, in whatever process it runs.

    >>> is_library_communication("nvshmemx_alltoall"), is_library_communication("all_to_all_kernel")
    (True, False)
    """
    return _LIBRARY_COMMUNICATION.search(name) is not None and _COMPILED_FUSION.search(name) is None


def is_narrow_communication(name: str) -> bool:
    """Return True if a kernel belongs to a collective, by the narrow definition.

    >>> is_narrow_communication("void multimem_all_reduce_kernel<c10::BFloat16, 16>")
    False
    """
    return _NARROW_COMMUNICATION.search(name) is not None


@lru_cache(_CACHE_SIZE)
def is_collective_operator(name: str) -> bool:
    """Return True if an operator carries out collectives.

    >>> is_collective_operator("symm_mem::one_shot_all_reduce"), is_collective_operator("aten::mm")
    (True, False)
    """
    return _COLLECTIVE_OPERATOR.match(name) is not None


def requests_communication(name: str) -> bool:
    """Return True if an operator asks another thread of the host to carry out a collective.

    >>> requests_communication("c10d::_allgather_base_"), requests_communication("gloo:all_gather")
    (True, False)
    """
    return is_collective_operator(name) and not is_host_communication(name)


def may_communicate(name: str) -> bool:
    """Return True if a kernel that an operator of collectives launches is one of a collective.

    Copies and matrix products of such operators are not.
    """
    return _PLAIN_TORCH.search(name) is None and uses_tensor_cores(name) is not True


@lru_cache(_CACHE_SIZE)
def is_host_communication(name: str) -> bool:
    """Return True if an annotation is of a collective that the host itself executes.

    An annotation of NCCL only covers enqueuing the kernel.

    >>> is_host_communication("gloo:all_reduce"), is_host_communication("nccl:all_reduce")
    (True, False)
    """
    return _HOST_COMMUNICATION.match(name) is not None


@lru_cache(_CACHE_SIZE)
def uses_tensor_cores(name: str) -> bool | None:
    """Guess from its name if a kernel runs on tensor cores (NVIDIA) or matrix cores (AMD).

    Returns:
        None if the name does not show it: it may multiply matrices, or no pattern knows it.

    >>> uses_tensor_cores("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn")
    True
    >>> uses_tensor_cores("volta_sgemm_128x64_nt")
    False
    >>> uses_tensor_cores("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1")
    """
    if _PLAIN_CORES.search(name):
        return False
    if _TENSOR_CORES.search(name):
        return True
    if _PLAIN_MATRIX.search(name) or is_communication(name):
        return False
    if _MATRIX_WORK.search(name) or not _VECTOR_WORK.search(name):
        return None
    return False


def hides_tensor_cores(name: str) -> bool:
    """Return True if the name of a kernel does not show whether it runs on tensor cores."""
    return uses_tensor_cores(name) is None


@lru_cache(_CACHE_SIZE)
def classify_precision(name: str) -> Precision | None:
    """Classify the precision of a kernel's inputs by its name; None if the name does not show it.

    >>> classify_precision("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64")
    'BF16'
    """
    if _OPAQUE in name:
        return None
    text = name if _CASE_SENSITIVE in name else name.lower()
    for precision, names in _PRECISIONS:
        if names.search(text):
            return precision
    integer = _INTEGER.search(text)
    return cast(Precision, integer.lastgroup) if integer is not None else None


def match_rows(strings: Strings, predicate: Callable[[str], bool | None]) -> NDArray[np.bool_]:
    """Mask the rows whose string satisfies a predicate; null does not, nor does None as result.

    The predicate is called once for each distinct string.
    """
    matches = [value is not None and bool(predicate(value)) for value in strings.values]
    return np.array([*matches, False], dtype=np.bool_)[strings.codes]


_NUMBER = re.compile(r"#\d+$")
_FETCHES = ("enumerate(DataPipe)#", schema.TF_DATA_FETCH, "_DataLoaderIter")
"""Start of the names of fetches, the last one of Paddle."""
PROFILER_MARKS = ("PyTorch Profiler (", "Iteration Start: ", "Record Window End")
"""Beginnings of the range from the start to the end of a recording, and of marks in it."""


@lru_cache(_CACHE_SIZE)
def is_step(name: str) -> bool:
    """Return True if a name is that of a step range.

    >>> is_step("ProfilerStep#12"), is_step("ProfilerStep")
    (True, False)
    """
    prefix = schema.STEP_PREFIX
    return name.startswith(prefix) and name[len(prefix) :].isdigit()


@lru_cache(_CACHE_SIZE)
def is_data_loader(name: str) -> bool:
    """Return True if a name is that of a fetch of a batch.

    >>> is_data_loader("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    True
    """
    return name.startswith(_FETCHES) or (
        name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__")
    )


def is_time_mark(name: str) -> bool:
    """Return True for a range that marks time in which other ranges work.

    >>> is_time_mark("ProfilerStep#7"), is_time_mark("aten::mm")
    (True, False)
    """
    return is_step(name) or is_data_loader(name) or name.startswith(PROFILER_MARKS)


def fold_number(name: str) -> str:
    """Replace the number at the end of a name, as of a counted range, by `*`.

    >>> fold_number("ProfilerStep#7")
    'ProfilerStep#*'
    """
    return _NUMBER.sub("#*", name)
