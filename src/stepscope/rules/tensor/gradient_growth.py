"""Gradients that have grown by the time of a loss, against their own records before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope.analysis import Float, TensorSeries
from stepscope.intervals import Int
from stepscope.rules.tensor.base import Mask

PREFIX = "gradient/"
"""Start of the names of gradients."""
DEVIATIONS_PER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""
MIN_RECORDS = 10
"""Records before a record that it can be compared with."""


class GradientGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Gradient that grew first, before a loss or in its step."""

    record: int = 0
    """Record of the loss."""
    step: int = 0
    """Recorded step at which the gradient grew."""
    tensor: str = ""
    """Gradient; of several at one step, the one that grew most."""
    ratio: float | None = None
    """Its norm, as a multiple of the median before; null if elements are NaN or infinite, or the
    median is zero."""
    others_count: int = 0
    """Further gradients that grew at that step."""


class Limits(NamedTuple):
    """Limits of what counts as growth; see LossSpike."""

    window: int
    deviations: float
    factor: float


@dataclass(slots=True)
class _Gradient:
    """Latest records of one gradient."""

    step: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    t_ns: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    norm: Float = field(default_factory=lambda: np.empty(0))
    is_broken: Mask = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    """True where elements are NaN or infinite; the norm is of the others."""


class _Growth(NamedTuple):
    step: int
    size: float
    """Norm as a multiple of the median before; infinite if that is no number."""
    tensor: str


@dataclass(slots=True)
class GradientRecords:
    """Latest records of the gradients of one process."""

    gradients: dict[str, _Gradient] = field(default_factory=dict)

    def add(self, series: TensorSeries) -> None:
        """Add new records of a gradient."""
        gradient = self.gradients.setdefault(series.name, _Gradient())
        broken = series.reduction("nan_count") + series.reduction("infinite_count") > 0
        gradient.step = np.concatenate([gradient.step, series.step])
        gradient.t_ns = np.concatenate([gradient.t_ns, series.t_ns])
        gradient.norm = np.concatenate([gradient.norm, series.reduction("l2")])
        gradient.is_broken = np.concatenate([gradient.is_broken, broken])

    def trim(self, record_count: int) -> None:
        """Forget all but the latest records."""
        for gradient in self.gradients.values():
            gradient.step = gradient.step[-record_count:]
            gradient.t_ns = gradient.t_ns[-record_count:]
            gradient.norm = gradient.norm[-record_count:]
            gradient.is_broken = gradient.is_broken[-record_count:]

    def has_later_than_next(self, t_ns: int) -> bool:
        """Return True if there are records at more than one time from a time on."""
        times = {t for g in self.gradients.values() for t in g.t_ns[g.t_ns >= t_ns][:2].tolist()}
        return len(times) > 1

    def find_first(
        self, limits: Limits, *, record: int, t_ns: int, next_ns: int | None
    ) -> GradientGrowth | None:
        """Find the gradient that grew first; None if none had grown by the end of the step.

        A gradient counts if its last record up to then is larger than usual; it has grown at the
        first of the records in a row, up to that one, that are.

        Args:
            limits: limits of what counts as growth.
            record: number of the loss.
            t_ns: time of the loss.
            next_ns: time of the next value of the loss; None if there is none.
        """
        growths = [
            growth
            for name, gradient in self.gradients.items()
            if (growth := _find_growth(name, gradient, limits, t_ns, next_ns)) is not None
        ]
        if not growths:
            return None
        step = min(growth.step for growth in growths)
        first = [growth for growth in growths if growth.step == step]
        largest = max(first, key=lambda growth: growth.size)
        return GradientGrowth(
            record=record,
            step=step,
            tensor=largest.tensor,
            ratio=largest.size if np.isfinite(largest.size) else None,
            others_count=len(first) - 1,
        )


def _find_growth(
    name: str, gradient: _Gradient, limits: Limits, t_ns: int, next_ns: int | None
) -> _Growth | None:
    # The gradients of the step of a loss are recorded after it.
    end = int(np.searchsorted(gradient.t_ns, t_ns))
    if end < len(gradient.t_ns) and (next_ns is None or gradient.t_ns[end] < next_ns):
        end += 1
    growth = None
    for row in range(end - 1, max(MIN_RECORDS, end - limits.window) - 1, -1):
        size = _measure(gradient, row, limits)
        if size is None:
            break
        growth = _Growth(int(gradient.step[row]), size, name)
    return growth


def _measure(gradient: _Gradient, row: int, limits: Limits) -> float | None:
    """Return the norm at a row as a multiple of the median before; None if it has not grown."""
    before = gradient.norm[max(0, row - limits.window) : row]
    before = before[np.isfinite(before)]
    if len(before) < MIN_RECORDS:
        return None
    if gradient.is_broken[row]:
        return np.inf
    value, median = float(gradient.norm[row]), float(np.median(before))
    deviation = DEVIATIONS_PER_MEDIAN * float(np.median(np.abs(before - median)))
    if value - median > limits.deviations * deviation and value > limits.factor * median:
        return value / median if median > 0 else np.inf
    return None
