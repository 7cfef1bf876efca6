"""Utilization samples of one device or node: the latest ones and a sketch of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stepscope.analysis import Series
from stepscope.intervals import Int
from stepscope.rules.inputs import RuleInputs, scan_indices
from stepscope.rules.quantile_sketch import Floats, QuantileSketch
from stepscope.rules.rolling_window import RollingWindow, quantiles_at_scan_ends


@dataclass(slots=True)
class UsageSamples:
    """A rolling window of the latest samples, and a quantile sketch of all samples."""

    window: RollingWindow
    sketch: QuantileSketch = field(default_factory=QuantileSketch)

    @classmethod
    def of_window(cls, length: int) -> UsageSamples:
        """Return the state before any samples."""
        return cls(RollingWindow(length))

    @property
    def count(self) -> int:
        """Count of all samples."""
        return self.window.count

    def add(
        self, inputs: RuleInputs, series: Series, shares: Sequence[float], *, patience: int
    ) -> tuple[Int, Floats]:
        """Add sorted samples.

        Args:
            inputs: the range, for its scans.
            series: new samples.
            shares: quantiles to return.
            patience: scans are left out until the count of samples exceeds this.

        Returns:
            Indices of the scans, and the quantiles of the window at the end of each, one row each.
        """
        self.sketch.add(series.value)
        scans = scan_indices(inputs, series.t_ns)
        return quantiles_at_scan_ends(self.window, series.value, scans, shares, patience=patience)
