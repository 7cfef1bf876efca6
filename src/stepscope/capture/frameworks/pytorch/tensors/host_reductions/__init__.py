"""Reductions of tensors in host memory, in one pass of compiled code where it could be built.

reductions.c    the loops
"""

from __future__ import annotations

import ctypes
import functools
import math
from pathlib import Path
from typing import Any

import torch

from stepscope.native_library import NativeLibrary

LIBRARY = NativeLibrary(Path(__file__).parent)


class Totals(ctypes.Structure):
    """Sums over the finite elements of a tensor, and counts of the others."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("finite_count", "nan_count", "zero_count")),
        *(
            (name, ctypes.c_double)
            for name in (
                "low", "high", "sum", "square_sum", "abs_sum", "product", "change_square_sum",
            )
        ),
    )  # fmt: skip


@functools.cache
def open_reductions() -> Any:
    """Load the library; None where it was not built."""
    library: Any = LIBRARY.open()
    if library is None:
        return None
    address, count = ctypes.c_void_p, ctypes.c_int64
    library.stepscope_add.argtypes = (address, address, count, ctypes.c_int, address, address)
    library.stepscope_add.restype = None
    library.stepscope_sum_square_deviations.argtypes = (address, count, ctypes.c_double)
    library.stepscope_sum_square_deviations.restype = ctypes.c_double
    return library


def is_readable(values: torch.Tensor) -> bool:
    """Return True for elements that the library can read, as they are in memory."""
    return (
        values.dtype is torch.float32
        and values.is_contiguous()
        and not values.is_neg()
        and values.data_ptr() != 0  # as that of a tensor of zeros without memory
    )


def reduce(
    library: Any,
    values: torch.Tensor,
    before: torch.Tensor | None,
    powers: torch.Tensor | None,
    *,
    has_product: bool,
) -> tuple[Totals, float]:
    """Reduce the elements of a tensor.

    Args:
        library: what `open_reductions` has returned.
        values: flat elements that are readable.
        before: as many elements before a change.
        powers: overwritten with the counts of `statistics.histogram`.
        has_product: multiply the elements.

    Returns:
        The totals, and the sum of the squares of the deviations from the mean.
    """
    totals = Totals(low=math.inf, high=-math.inf, product=1.0)
    address, element_count = values.data_ptr(), values.numel()
    library.stepscope_add(
        address,
        None if before is None else before.data_ptr(),
        element_count,
        has_product,
        ctypes.addressof(totals),
        None if powers is None else powers.data_ptr(),
    )
    if not totals.finite_count:
        return totals, 0.0
    deviations = subtract_mean(totals.square_sum, totals.sum, totals.finite_count)
    if deviations is None:
        mean = totals.sum / totals.finite_count
        deviations = library.stepscope_sum_square_deviations(address, element_count, mean)
    return totals, deviations


def subtract_mean(square_sum: float, total: float, count: int) -> float | None:
    """Return the sum of the squares of deviations from the mean.

    It is the difference of the sum of the squares and the square of the sum divided by the count;
    None where that costs more than one bit, so that the deviations have to be squared.
    """
    of_mean = total / count * total
    is_exact = math.isfinite(square_sum) and 2 * of_mean <= square_sum
    return square_sum - of_mean if is_exact else None
