"""Purpose and precision of kernels, guessed from their names.

Profilers do not record whether a kernel communicates, whether it ran on tensor or matrix cores, or
in which precision it computed. Its name usually shows it; all such guesses are here, and every
view that shows one labels it as a heuristic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Strings

Precision = Literal["FP64", "TF32", "FP32", "BF16", "FP16", "FP8", "INT"]

_COMMUNICATION = re.compile(r"nccl|rccl|cross_device_reduce", re.IGNORECASE)
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

_PRECISIONS: tuple[tuple[Precision, re.Pattern[str]], ...] = (
    ("FP8", re.compile(r"e[45]m[23]|fp8|float8|qmma|nvjet_(sm\d+_)?[a-z]*q|Cijk_\w+?_[FB]8")),
    ("INT", re.compile(r"imma|i8816|i16832|(?<![a-z0-9])i8(i8|i32|f32)|s8s8|int8|Cijk_\w+?_I8")),
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
    ("INT", re.compile(r"(?<![a-z])(u?int\d*(_t)?|long|short|char|bool|[iu](8|32|64))(?![a-z])")),
)
"""Patterns by priority, the first match counts: of two types in a name, the lower precision is
that of the inputs; integers that are only indices come last."""
_CASE_SENSITIVE = "Cijk_"
_CACHE_SIZE = 4096
"""Number of names with cached results: all ranks run the same kernels."""
_OPAQUE = "OpaqueType"
"""Part of the names of kernels that move elements without reading them: any other type in such a
name is that of indices."""


@lru_cache(_CACHE_SIZE)
def is_communication(name: str) -> bool:
    """Return True if a kernel belongs to a collective: NCCL, RCCL, or a single-node all-reduce.

    >>> is_communication("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    True
    """
    return _COMMUNICATION.search(name) is not None


def is_host_communication(name: str) -> bool:
    """Return True if an annotation is of a collective that the host itself executes.

    An annotation of NCCL only covers enqueuing the kernel.

    >>> is_host_communication("gloo:all_reduce"), is_host_communication("nccl:all_reduce")
    (True, False)
    """
    return _HOST_COMMUNICATION.match(name) is not None


@lru_cache(_CACHE_SIZE)
def uses_tensor_cores(name: str) -> bool:
    """Guess from its name if a kernel runs on tensor cores (NVIDIA) or matrix cores (AMD).

    >>> uses_tensor_cores("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn")
    True
    >>> uses_tensor_cores("volta_sgemm_128x64_nt")
    False
    """
    return _TENSOR_CORES.search(name) is not None and _PLAIN_CORES.search(name) is None


@lru_cache(_CACHE_SIZE)
def classify_precision(name: str) -> Precision | None:
    """Classify the precision of a kernel's inputs by its name; None if the name does not show it.

    >>> classify_precision("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64")
    'BF16'
    """
    if _OPAQUE in name:
        return None
    text = name if _CASE_SENSITIVE in name else name.lower()
    return next((precision for precision, names in _PRECISIONS if names.search(text)), None)


def match_rows(strings: Strings, predicate: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Mask the rows whose string satisfies a predicate; null does not.

    The predicate is called once for each distinct string.
    """
    matches = [value is not None and predicate(value) for value in strings.values]
    return np.array([*matches, False], dtype=np.bool_)[strings.codes]
