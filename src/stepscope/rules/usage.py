"""Utilization samples of one device or node: the latest ones and a sketch of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Series
from stepscope.intervals import Int
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.quantile_sketch import Floats, QuantileSketch
from stepscope.rules.rolling_window import RollingWindow, quantiles_at_scan_ends
from stepscope.rules.trigger import last_indices


class WindowQuantiles(NamedTuple):
    """Quantiles of the window of samples at the end of some scans; arrays have a row per scan."""

    scan: Int
    """Index of the scan."""
    quantiles: Floats
    start_ns: Int
    """First sample of the window."""
    end_ns: Int
    """Last sample of the window."""

    def where(self, condition: NDArray[np.bool_]) -> WindowQuantiles:
        """Return the scans for which a condition holds."""
        return WindowQuantiles(
            self.scan[condition],
            self.quantiles[condition],
            self.start_ns[condition],
            self.end_ns[condition],
        )


@dataclass(slots=True)
class UsageSamples:
    """A rolling window of the latest samples, and a quantile sketch of all samples."""

    window: RollingWindow
    times: RollingWindow
    """Times of the samples of the window."""
    sketch: QuantileSketch = field(default_factory=QuantileSketch)

    @classmethod
    def of_window(cls, length: int) -> UsageSamples:
        """Return the state before any samples."""
        return cls(RollingWindow(length), RollingWindow(length))

    @property
    def count(self) -> int:
        """Count of all samples."""
        return self.window.count

    def add(
        self, inputs: RuleInputs, series: Series, shares: Sequence[float], *, patience: int
    ) -> WindowQuantiles:
        """Add sorted samples.

        Args:
            inputs: the range, for its scans.
            series: new samples.
            shares: quantiles to return.
            patience: scans are left out until the count of samples exceeds this.
        """
        self.sketch.add(series.value)
        scans = scan_indices(inputs, series.t_ns)
        t_ns, previous = self.times.extend(series.t_ns)
        scan, quantiles = quantiles_at_scan_ends(
            self.window, series.value, scans, shares, patience=patience
        )
        latest = last_indices(scans)[-len(scan) :] if len(scan) else scan
        ends = latest + previous
        starts = np.maximum(ends + 1 - self.times.length, 0)
        return WindowQuantiles(scan, quantiles, t_ns[starts], t_ns[ends])
