"""Samples of one node, read from the store as far as somebody asks for them.

A day of a large machine is tens of millions of samples: means are computed by the store, and only
the metrics that are asked for are ever loaded.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Metrics, average_present, numeric_sort_key
from stepscope.store import RunReader

_COLUMNS = ("t_ns", "metric", "device", "value")


class NodeMetrics:
    """Samples of one node in a range of time.

    Args:
        reader: the run; it may still be growing, and what was read stays as it was read.
        node: name of the machine.
        start_ns, end_ns: the range, the end exclusive; None for no border.
    """

    def __init__(
        self,
        reader: RunReader,
        node: str,
        start_ns: int | None = None,
        end_ns: int | None = None,
    ) -> None:
        self._reader = reader
        self._node = node
        self._range = (start_ns, end_ns)
        self._means: dict[str, dict[str, float]] = {}

    def between(self, start_ns: int | None, end_ns: int | None) -> NodeMetrics:
        """Samples of another range of time."""
        return NodeMetrics(self._reader, self._node, start_ns, end_ns)

    @cached_property
    def names(self) -> list[str]:
        """Metrics that were sampled."""
        where, parameters = self._where()
        found = self._reader.sql(
            f"SELECT DISTINCT metric FROM metrics WHERE {where} ORDER BY metric",  # noqa: S608 - only question marks are put in
            parameters,
        )
        return [str(name) for name in found["metric"]]

    def load(self, *metrics: str, device: str | None = None) -> Metrics:
        """Samples of some metrics, of one device or of all."""
        marks = ", ".join("?" for _ in metrics)
        where, parameters = self._where(f"metric IN ({marks})", *metrics)
        if device is not None:
            where, parameters = f"{where} AND device = ?", (*parameters, device)
        rows = self._reader.table(
            "metrics",
            columns=_COLUMNS,
            where=where,
            parameters=parameters,
            order_by="t_ns",
            encoded=("metric", "device"),
        )
        return Metrics(
            t_ns=rows["t_ns"],
            metric=rows["metric"].codes,
            metrics=[value or "" for value in rows["metric"].values],
            device=rows["device"].codes,
            devices=[value or "" for value in rows["device"].values],
            value=rows["value"],
        )

    def series(self, metric: str, device: str = "") -> NDArray[np.float64]:
        """Values of one metric of one device, in time order; empty when never sampled."""
        return self.load(metric, device=device).value

    def devices_of(self, metric: str) -> list[str]:
        """Devices that a metric was sampled of, numbers in numerical order."""
        return sorted(self._means_of(metric), key=numeric_sort_key)

    def mean(self, metric: str, device: str = "") -> float | None:
        """Mean of the readings that did not fail, None without any: missing is not zero."""
        found = self._means_of(metric).get(device)
        return None if found is None or np.isnan(found) else found

    def mean_over_devices(self, metric: str) -> float | None:
        """Mean of the means of the devices that were read; None without any."""
        return average_present(self.mean(metric, device) for device in self.devices_of(metric))

    def _means_of(self, metric: str) -> dict[str, float]:
        """By device; NaN where every reading failed."""
        if metric not in self._means:
            where, parameters = self._where("metric = ?", metric)
            found = self._reader.sql(
                "SELECT device, coalesce(favg(value) FILTER (NOT isnan(value)), 'nan'::DOUBLE) "  # noqa: S608 - only question marks are put in
                f"AS mean FROM metrics WHERE {where} GROUP BY device",
                parameters,
            )
            self._means[metric] = dict(
                zip(found["device"].tolist(), found["mean"].tolist(), strict=True)
            )
        return self._means[metric]

    def _where(self, condition: str = "true", *parameters: str) -> tuple[str, tuple[object, ...]]:
        where = f"node = ? AND {condition}"
        given: tuple[object, ...] = (self._node, *parameters)
        start_ns, end_ns = self._range
        if start_ns is not None:
            where, given = f"{where} AND t_ns >= ?", (*given, start_ns)
        if end_ns is not None:
            where, given = f"{where} AND t_ns < ?", (*given, end_ns)
        return where, given
