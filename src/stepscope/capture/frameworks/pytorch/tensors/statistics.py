"""Statistics of tensors, computed where the tensors are and without synchronizing the host.

Sums are accumulated in double precision: `vector_norm` of 10 million single-precision elements is
wrong by 3e-4 (torch 2.13 on a CPU). They describe the finite elements; NaN and infinite ones are
counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from stepscope.capture.frameworks.pytorch.tensors.host_reductions import (
    Totals,
    is_readable,
    open_reductions,
    reduce,
    subtract_mean,
)
from stepscope.spool import POWER_BINS

COLUMNS = (
    "element_count", "nan_count", "infinite_count", "zero_count",
    "min", "max", "sum", "deviation_square_sum", "abs_sum", "product",
    "update_square_sum",
)  # fmt: skip
"""Statistics of a tensor. Squares are those of deviations from the mean, because a variance that is
small beside the mean would be lost in their difference; the last ones are those of the change by
the optimizer."""
BLOCK_ELEMENTS = 1 << 16
"""Elements of a host tensor that are converted at once: 512 KiB, so that a second-level cache holds
them with the original ones."""
MAX_PRODUCT_ELEMENTS = 4096
"""The product of more elements is nearly always zero or infinite."""
_NATIVE_MIN_MAX = {torch.float32, torch.float64, torch.bfloat16, torch.float16}
_NAN = math.nan


class Elements(NamedTuple):
    """The elements of a tensor that are stored, and the number of zeros that are not."""

    values: torch.Tensor
    """Flat."""
    implied_zeros: int


def find_elements(tensor: torch.Tensor) -> Elements | None:
    """Return the elements of a tensor; None if it has none that can be read.

    Of a complex tensor they are the absolute values, of a distributed one those of this rank.
    """
    to_local = getattr(tensor, "to_local", None)  # a DTensor
    values = to_local() if to_local is not None else tensor
    if values.is_meta or values.is_quantized or values.is_nested:
        return None
    implied_zeros = 0
    if values.layout is torch.sparse_coo:
        element_count = values.numel()
        values = values.coalesce().values()
        implied_zeros = element_count - values.numel()
    elif values.layout is not torch.strided:
        return None
    if values.is_complex():
        values = values.abs()
    if implied_zeros and not values.numel():
        values, implied_zeros = values.new_zeros(1), implied_zeros - 1
    return Elements(values.reshape(-1), implied_zeros) if values.numel() else None


def _split(values: torch.Tensor) -> Sequence[torch.Tensor]:
    """Split a flat tensor into blocks of similar size; `split` would run Python code."""
    count = -(-values.numel() // BLOCK_ELEMENTS)
    return (values,) if count == 1 else values.tensor_split(count)


class HostSummary:
    """Statistics of tensors in host memory: by compiled loops where there are, else by torch."""

    def __init__(self) -> None:
        self._library = open_reductions()
        self._block = torch.empty(BLOCK_ELEMENTS, dtype=torch.float64, device="cpu")

    def summarize(
        self,
        elements: Elements,
        before: torch.Tensor | None = None,
        powers: torch.Tensor | None = None,
    ) -> list[float]:
        """Return the values of `COLUMNS`; NaN where one is not known.

        Args:
            elements: the elements.
            before: the flat elements before the optimizer step, which are overwritten.
            powers: 512 integers of 32 bits, overwritten with the counts of `histogram`.
        """
        values, implied_zeros = elements
        has_product = values.numel() <= MAX_PRODUCT_ELEMENTS and not implied_zeros
        if self._library is not None and is_readable(values) and _is_comparable(before):
            totals, deviations = reduce(
                self._library, values, before, powers, has_product=has_product
            )
            if powers is not None and implied_zeros:
                powers[0] += implied_zeros
        else:
            totals, deviations = self._reduce(values, before, has_product=has_product)
            if powers is not None:
                powers.copy_(histogram(elements))
        count, low, high = totals.finite_count, totals.low, totals.high
        if implied_zeros:
            low, high = min(low, 0.0), max(high, 0.0)
            deviations += _between(count, totals.sum, implied_zeros, 0.0)
        of_finite = low, high, totals.sum, deviations, totals.abs_sum
        return [
            values.numel() + implied_zeros,
            totals.nan_count,
            values.numel() - count - totals.nan_count,
            totals.zero_count + implied_zeros,
            *(of_finite if count or implied_zeros else (_NAN,) * len(of_finite)),
            totals.product if has_product and count else _NAN,
            _NAN if before is None else totals.change_square_sum,
        ]

    def _reduce(
        self, values: torch.Tensor, before: torch.Tensor | None, *, has_product: bool
    ) -> tuple[Totals, float]:
        """Reduce elements by torch, as `host_reductions.reduce` does."""
        totals = Totals(low=math.inf, high=-math.inf, product=1.0)
        deviations = 0.0
        for part in _split(values):
            block = self._block[: part.numel()].copy_(part)
            extremes_of = part if part.dtype in _NATIVE_MIN_MAX else block
            part_sum = block.sum().item()
            if not math.isfinite(part_sum):
                totals.nan_count += int(block.isnan().sum().item())
                extremes_of = block = block[block.isfinite()]
                part_sum = block.sum().item()
            part_count = block.numel()
            if not part_count:
                continue
            low, high = (extreme.item() for extreme in torch.aminmax(extremes_of))
            totals.low, totals.high = min(totals.low, low), max(totals.high, high)
            if has_product:
                totals.product *= block.prod().item()
            deviations += _sum_deviations(block, part_sum)
            deviations += _between(totals.finite_count, totals.sum, part_count, part_sum)
            totals.abs_sum += block.abs_().sum().item() if low < 0 else part_sum
            # In most tensors nothing is left to count.
            if low <= 0 <= high and block.amin().item() == 0:
                totals.zero_count += part_count - int(torch.count_nonzero(block).item())
            totals.finite_count += part_count
            totals.sum += part_sum
        if before is not None:
            totals.change_square_sum = self._change(values, before)
        return totals, deviations

    def _change(self, values: torch.Tensor, before: torch.Tensor) -> float:
        if values.dtype not in {torch.float32, torch.float64}:
            values, before = values.float(), before.float()
        square_sum = 0.0
        for part, part_before in zip(_split(values), _split(before)):
            block = self._block[: part.numel()].copy_(part_before.sub_(part))
            square_sum += torch.dot(block, block).item()
        return square_sum


def _is_comparable(before: torch.Tensor | None) -> bool:
    return before is None or is_readable(before)


def _sum_deviations(block: torch.Tensor, total: float) -> float:
    """Return the sum of the squares of deviations from the mean."""
    deviations = subtract_mean(torch.dot(block, block).item(), total, block.numel())
    if deviations is None:
        deviation = block - total / block.numel()
        deviations = torch.dot(deviation, deviation).item()
    return deviations


def _between(count: int, total: float, more_count: int, more_total: float) -> float:
    """Return what the squares of deviations gain when two sets of numbers are joined: Chan, Golub
    and LeVeque, https://doi.org/10.1080/00031305.1983.10483115."""
    if not count or not more_count:
        return 0.0
    distance = more_total / more_count - total / count
    return distance * distance * count * more_count / (count + more_count)


def summarize_on_device(elements: Elements, before: torch.Tensor | None = None) -> torch.Tensor:
    """Compute the values of `COLUMNS` on the device of a tensor; NaN where one is not known.

    Args:
        before: the flat elements before the optimizer step.

    Returns:
        A tensor of doubles on the device.
    """
    values, implied_zeros = elements
    wide = values.double()
    is_finite = wide.isfinite()
    finite = torch.where(is_finite, wide, 0.0)
    finite_count = is_finite.sum()
    nan_count = wide.isnan().sum()
    low = torch.where(is_finite, wide, math.inf).amin()
    high = torch.where(is_finite, wide, -math.inf).amax()
    if implied_zeros:
        low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    total = finite.sum()
    mean = total / finite_count
    deviation = torch.where(is_finite, wide - mean, 0.0)
    deviations = torch.dot(deviation, deviation)
    if implied_zeros:
        deviations += mean**2 * finite_count * implied_zeros / (finite_count + implied_zeros)
    unknown = torch.full((), _NAN, dtype=torch.float64, device=values.device)
    has_product = values.numel() <= MAX_PRODUCT_ELEMENTS and not implied_zeros
    numbers = [
        torch.full_like(unknown, values.numel() + implied_zeros),
        nan_count, values.numel() - finite_count - nan_count,
        finite_count - torch.count_nonzero(finite) + implied_zeros,
        low, high, total, deviations, finite.abs().sum(),
        torch.where(is_finite, wide, 1.0).prod() if has_product else unknown,
        unknown if before is None else _change_on_device(values, before),
    ]  # fmt: skip
    row = torch.stack([number.double() for number in numbers])
    is_empty = finite_count + implied_zeros == 0
    row[4:10] = torch.where(is_empty, unknown, row[4:10])
    return row


def _change_on_device(values: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    change = values.double().sub_(before)
    return torch.dot(change, change)


def histogram(elements: Elements) -> torch.Tensor:
    """Count the elements by sign and power of two, where the tensor is.

    Returns:
        512 integers of 32 bits on the device of the tensor: element `256 s + e` counts those of
        sign `s` (1 if negative) whose single-precision exponent field is `e`. Field 0 are zeros and
        subnormal numbers, field 255 infinite ones and NaN.
    """
    values, implied_zeros = elements
    if values.device.type == "cpu":
        counts = torch.bincount(_powers(values), minlength=POWER_BINS)
    else:  # `bincount` waits for the device
        counts = torch.histc(_powers(values).float(), POWER_BINS, 0, POWER_BINS)
    counts = counts.int()
    if implied_zeros:
        counts[0] += implied_zeros
    return counts


def _powers(values: torch.Tensor) -> torch.Tensor:
    return (values.float().view(torch.int32) >> 23).bitwise_and_(POWER_BINS - 1)


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """Describe a tensor by its shape, type and device."""
    return {
        "shape": [int(n) for n in tensor.shape],
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": tensor.device.type,
    }
