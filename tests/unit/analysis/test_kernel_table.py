"""Kernels by name, by properties and by classes of duration."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import SHORT_NS, count_kernels_by_duration
from stepscope.analysis.devices.kernels import (
    KernelGroup,
    KernelLaunches,
    build_kernel_table,
    build_kernel_table_by_properties,
)
from tests.support.drawn_operators import kernel_columns, op, operator_columns

GEMM, COPY, REDUCE = (
    "volta_fp16_s884gemm_fp16",
    "elementwise_kernel<float>",
    "ncclDevKernel_AllReduce",
)


def recording() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two products and a reduction by one operator, copies by another and by none."""
    calls = (
        op("mm", 1, kernels=[(GEMM, 10), (GEMM, 30), (COPY, 5)]),
        op("copy_", 1, kernels=[(COPY, 5), (COPY, 0), (REDUCE, 50)]),
    )
    operators = operator_columns(*calls)
    return kernel_columns(*calls), operators


def test_by_name() -> None:
    kernels, _ = recording()
    kernels["blocks_per_multiprocessor"] = np.array([2.0, 0.4, np.nan, 1, 100, np.nan])
    table = build_kernel_table(kernels)
    assert [row.name for row in table.rows] == [REDUCE, GEMM, COPY]
    reduce, gemm, copy = table.rows
    assert (gemm.calls, gemm.total_ns, gemm.mean_ns, gemm.min_ns, gemm.max_ns) == (
        2,
        40,
        20,
        10,
        30,
    )
    assert (gemm.share_ratio, table.total_ns) == (0.4, 100)
    assert gemm.mean_blocks_per_multiprocessor == pytest.approx((2 * 10 + 0.4 * 30) / 40)
    assert (copy.calls, copy.mean_blocks_per_multiprocessor) == (3, 1)
    assert reduce.mean_blocks_per_multiprocessor is reduce.mean_occupancy_percent is None
    assert (gemm.tensor_cores, gemm.precision, gemm.communication) == (True, "FP16", False)
    assert (reduce.tensor_cores, reduce.communication) == (False, True)
    assert (copy.tensor_cores, copy.precision) == (False, "FP32")
    assert (table.tensor_core_ns, table.communication_ns) == (40, 50)


def test_unknown_tensor_cores_and_occupancy_are_told_apart_from_none() -> None:
    calls = (op("mm", 1, kernels=[("_matmul_ogs_NNT", 60), (COPY, 30), (COPY, 10)]),)
    operator_columns(*calls)
    kernels = kernel_columns(*calls)
    kernels["occupancy_percent"] = np.array([0.0, 0.0, 40.0])
    kernels["warps_per_multiprocessor"] = np.array([16.0, 16.0, 30.0])
    product, copy = build_kernel_table(kernels).rows
    assert (product.tensor_cores, copy.tensor_cores) == (None, False)
    assert (product.mean_occupancy_percent, copy.mean_occupancy_percent) == (None, 40)
    assert build_kernel_table(kernels).unknown_tensor_core_ns == 60


def test_by_properties() -> None:
    kernels, operators = recording()
    kernels["operator"][5] = -1
    for axis in "xyz":
        kernels[f"grid_{axis}"][:2] = [64, 65] if axis == "x" else 1
    kernels["shared_memory_bytes"][:2] = 0
    table = build_kernel_table_by_properties(kernels, operators)
    assert table.group_count == 5
    assert [(row.name, row.total_ns, properties_of(row)) for row in table.rows[:3]] == [
        (REDUCE, 50, properties(None)),
        (GEMM, 30, properties("mm", grid=(65, 1, 1), shared_memory_bytes=0)),
        (GEMM, 10, properties("mm", grid=(64, 1, 1), shared_memory_bytes=0)),
    ]
    copies = {properties_of(row): row.calls for row in table.rows[3:]}
    assert copies == {properties("mm"): 1, properties("copy_"): 2}


PROPERTIES = ("operator", "grid", "block", "registers_per_thread", "shared_memory_bytes")


def properties(operator: str | None, **recorded: Any) -> tuple[Any, ...]:
    return tuple((recorded | {"operator": operator}).get(name) for name in PROPERTIES)


def properties_of(row: KernelGroup) -> tuple[Any, ...]:
    assert isinstance(row, KernelLaunches)
    return tuple(getattr(row, name) for name in PROPERTIES)


def test_no_kernels() -> None:
    kernels, operators = kernel_columns(), operator_columns()
    assert build_kernel_table(kernels).rows == []
    assert build_kernel_table_by_properties(kernels, operators).rows == []


DURATIONS = st.lists(st.integers(0, 30_000_000) | st.sampled_from([1_999, 2_000, 9_999, SHORT_NS]))


@given(durations=DURATIONS)
def test_every_kernel_is_in_one_class(durations: list[int]) -> None:
    classes = count_kernels_by_duration(np.array(durations, dtype=np.int64))
    assert (classes == []) == (not durations)
    for row in classes:
        inside = [ns for ns in durations if row.from_ns <= ns < (row.to_ns or np.inf)]
        assert (row.calls, row.total_ns) == (len(inside), sum(inside))
        assert row.calls_ratio == pytest.approx(len(inside) / len(durations))
        assert row.share_ratio == pytest.approx(sum(inside) / (sum(durations) or 1))
    assert sum(row.calls for row in classes) == len(durations)
    edges = [(row.from_ns, row.to_ns) for row in classes]
    assert all(to == following for (_, to), (following, _) in pairwise(edges))


def test_the_limit_of_short_kernels_is_an_edge() -> None:
    classes = count_kernels_by_duration(np.array([1], dtype=np.int64))
    assert classes[0].from_ns == 0
    assert classes[-1].to_ns is None
    assert SHORT_NS in {row.to_ns for row in classes}
