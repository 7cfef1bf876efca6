"""Statistics of tensors equal those of NumPy: counts and extremes exactly, others to 1e-6."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.monitor.row_files import SIDE_BINS, bin_edges, narrow
from stepscope.native_library import NativeLibrary
from tests.support.compiler import needs_compiler

pytest.importorskip("torch")

import torch

from stepscope.capture.frameworks.pytorch.tensors import statistics
from stepscope.capture.frameworks.pytorch.tensors.host_reductions import LIBRARY, open_reductions
from stepscope.capture.frameworks.pytorch.tensors.statistics import (
    BLOCK_ELEMENTS,
    COLUMNS,
    MAX_PRODUCT_ELEMENTS,
    HostSummary,
    find_elements,
    histogram,
    summarize_on_device,
)

NAN, INF = math.nan, math.inf
EXACT = ("element_count", "nan_count", "infinite_count", "zero_count", "min", "max")


def draw() -> Iterator[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    yield "weights", normal(64, 48) * 0.02
    yield "several blocks", normal(2 * BLOCK_ELEMENTS + 7) * 3 + 1
    yield "almost constant", 1 + 1e-6 * normal(999)
    yield "far from zero", 1e4 + 1e-3 * normal(BLOCK_ELEMENTS + 500).double()
    yield "zeros", torch.zeros(5, 3)
    yield "one number", torch.tensor(-2.5)
    yield "some zeros", normal(40) * (normal(40) > 0)
    yield "negative", -normal(40).abs() - 1
    yield "with NaN", torch.tensor([1.0, NAN, -3.0, 0.0, NAN])
    yield "with infinities", torch.tensor([INF, 2.0, -INF, INF])
    yield "only NaN", torch.tensor([NAN, NAN])
    yield "not contiguous", normal(6, 8).t()[::2]
    yield "bfloat16", normal(300).bfloat16()
    yield "half", normal(300).half()
    yield "double", normal(300).double() * 1e200
    yield "float8", normal(300).to(torch.float8_e4m3fn)
    yield "integers", torch.arange(-5, 20)
    yield "booleans", torch.tensor([True, False, True])
    yield "complex", torch.complex(normal(30), normal(30))
    yield (
        "sparse",
        torch.sparse_coo_tensor(
            torch.tensor([[0, 2, 2]]), normal(3, 4), (6, 4), check_invariants=True
        ),
    )
    yield "sparse without entries", torch.sparse_coo_tensor(size=(3, 2), check_invariants=True)


DRAWN = dict(draw())


def reference(tensor: torch.Tensor) -> dict[str, float]:
    """The same by NumPy, from the elements as they are in memory."""
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    if dense.is_complex():
        values = np.abs(dense.numpy())
    else:
        values = (dense.double() if dense.is_floating_point() else dense).numpy()
    values = values.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    numbers: dict[str, float] = {
        "element_count": values.size,
        "nan_count": np.isnan(values).sum(),
        "infinite_count": np.isinf(values).sum(),
        "zero_count": (values == 0).sum(),
    }
    if finite.size:
        numbers |= {
            "min": finite.min(),
            "max": finite.max(),
            "sum": math.fsum(finite),
            "deviation_square_sum": math.fsum((finite - finite.mean()) ** 2)
            if np.abs(finite).max() < 1e150
            else INF,
            "abs_sum": math.fsum(np.abs(finite)),
        }
        if values.size <= MAX_PRODUCT_ELEMENTS and not tensor.is_sparse:
            with np.errstate(over="ignore"):
                numbers["product"] = finite.prod()
    return numbers


def by_library(tensor: torch.Tensor) -> list[float]:
    elements = find_elements(tensor)
    assert elements is not None
    return HostSummary().summarize(elements)


def by_torch(tensor: torch.Tensor) -> list[float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "open_reductions", lambda: None)
        return by_library(tensor)


def by_device(tensor: torch.Tensor) -> list[float]:
    elements = find_elements(tensor)
    assert elements is not None
    return summarize_on_device(elements).tolist()


@pytest.mark.seed("DBT-04")
@pytest.mark.parametrize("summarize", [by_library, by_torch, by_device])
@pytest.mark.parametrize("name", list(DRAWN))
def test_statistics_equal_those_of_numpy(
    name: str, summarize: Callable[[torch.Tensor], list[float]]
) -> None:
    tensor = DRAWN[name]
    numbers = dict(zip(COLUMNS, summarize(tensor), strict=True))
    expected = reference(tensor)
    exact = EXACT[:4] if tensor.is_complex() else EXACT  # NumPy rounds absolute values otherwise
    for column in COLUMNS:
        if column not in expected:
            assert math.isnan(numbers[column]), column
        elif column in exact:
            assert numbers[column] == expected[column], column
        else:
            assert numbers[column] == pytest.approx(expected[column], rel=1e-6, abs=1e-12), column


@pytest.mark.parametrize("summarize", ["library", "torch", "device"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_change_of_a_tensor(
    summarize: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(5)
    before = torch.randn(BLOCK_ELEMENTS + 100, generator=generator).to(dtype)
    after = before + (torch.randn(before.shape, generator=generator) * 1e-2).to(dtype)
    change = math.fsum((after.double() - before.double()).numpy() ** 2)
    elements = find_elements(after)
    assert elements is not None
    if summarize == "device":
        numbers = summarize_on_device(elements, before.clone()).tolist()
    else:
        if summarize == "torch":
            monkeypatch.setattr(statistics, "open_reductions", lambda: None)
        numbers = HostSummary().summarize(elements, before.clone())
    assert numbers[COLUMNS.index("update_square_sum")] == pytest.approx(change, rel=1e-6)


@needs_compiler
def test_single_precision_is_read_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other elements than those in memory are left to torch."""
    assert open_reductions() is not None
    monkeypatch.setattr(HostSummary, "_reduce", None)
    assert by_library(torch.tensor([1.0, -2.0]))[COLUMNS.index("sum")] == -1
    conjugate = torch.tensor([1j, 2j]).conj().imag
    assert conjugate.is_neg()
    for tensor in (conjugate, torch._efficientzerotensor(3), torch.ones(2, dtype=torch.float64)):
        with pytest.raises(TypeError, match="NoneType"):
            by_library(tensor)


@needs_compiler
def test_a_library_of_another_source_is_not_used(tmp_path: Path) -> None:
    source = tmp_path / "changed"
    source.mkdir()
    for path in LIBRARY.sources:
        (source / path.name).write_bytes(path.read_bytes() + b"\n")
    changed = NativeLibrary(source)
    assert changed.build() is None
    assert changed.open() is not None
    assert LIBRARY.open(changed.path) is None
    assert LIBRARY.open(tmp_path / "missing.so") is None


@needs_compiler
def test_lanes_blocks_and_rest() -> None:
    """Every length of the last lanes and of the last block, with something odd in one of them."""
    generator = torch.Generator().manual_seed(11)
    for length in (*range(1, 20), 4095, 4096, 4097, 4103, 8192, 9001):
        values = torch.randn(length, generator=generator)
        for odd in (None, NAN, INF, 0.0):
            if odd is not None:
                values[torch.randint(length, (1,), generator=generator)] = odd
            powers = torch.empty(512, dtype=torch.int32)
            elements = find_elements(values)
            assert elements is not None
            before = values * 1.5
            numbers = HostSummary().summarize(elements, before, powers)
            expected = reference(values)
            changes = (values.double() - before.double()).tolist()
            change = math.fsum(number * number for number in changes)
            for column, number in zip(COLUMNS[:-1], numbers, strict=False):
                if column in expected:
                    assert number == pytest.approx(expected[column], rel=1e-6), (length, column)
            assert numbers[-1] == pytest.approx(change, rel=1e-6, nan_ok=True)
            assert torch.equal(powers, histogram(elements))


@pytest.mark.parametrize(
    "tensor",
    [torch.empty(0), torch.empty(3, 0), torch.empty(4, device="meta")],
    ids=["no elements", "a size of zero", "meta"],
)
def test_a_tensor_without_elements_has_no_statistics(tensor: torch.Tensor) -> None:
    assert find_elements(tensor) is None


def test_a_histogram_counts_every_finite_element() -> None:
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(5000, generator=generator) * torch.logspace(-12, 3, 5000)
    values[:4] = torch.tensor([0.0, 1e-42, NAN, -INF])
    powers = count_powers(values)
    exponents, bins = narrow(powers)
    array = values.double().numpy()
    finite = array[np.isfinite(array)]
    assert bins.sum() == finite.size
    offsets = np.arange(-SIDE_BINS, SIDE_BINS + 1)
    low, high = bin_edges(np.repeat(exponents, offsets.size), offsets)
    for k, (a, b) in enumerate(zip(low, high, strict=True)):
        if offsets[k] < 0:
            expected = (-finite >= -b) & (-finite < -a)
        elif offsets[k] > 0:
            expected = (finite >= a) & (finite < b)
        else:
            expected = np.abs(finite) < b
        assert bins[0, k] == expected.sum(), (a, b)
    assert high[-1] > np.abs(finite).max() >= high[-1] / 2


@pytest.mark.parametrize("values", [[0.0, 0.0], [NAN], [2.0**-126], [3e38, -3e38]])
def test_a_histogram_of_extreme_elements(values: list[float]) -> None:
    _, bins = narrow(count_powers(torch.tensor(values)))
    assert bins.sum() == sum(math.isfinite(value) for value in values)


def count_powers(values: torch.Tensor) -> np.ndarray[Any, np.dtype[np.int32]]:
    elements = find_elements(values)
    assert elements is not None
    return histogram(elements).numpy()[None, :]
