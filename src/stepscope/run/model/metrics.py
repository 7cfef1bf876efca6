"""Samples of one node, loaded from the store on first use, and series by device.

A day of a large machine is tens of millions of samples: the store computes means, and only
requested metrics are loaded. Means are those of time: where the sampling interval changed while the
job ran, a sample weighs as much as the interval that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, schema, store
from stepscope.analysis import summarize
from stepscope.run.model.clock import ALWAYS, Period


class NodeMetrics:
    """Samples of one node in a range of time.

    Args:
        reader: the run; it may still be growing; values are those of the first read.
        info: the machine.
        period: the range.
    """

    def __init__(
        self, reader: store.RunReader, info: schema.NodeInfo, period: Period = ALWAYS
    ) -> None:
        self._reader = reader
        self._info = info
        self._node = info.node
        self._period = period
        self._means: dict[str, dict[str, float]] = {}

    def between(self, start_ns: int | None, end_ns: int | None) -> NodeMetrics:
        """Return the samples of another range of time; None for the start or end of this one."""
        return NodeMetrics(self._reader, self._info, self._period.between(start_ns, end_ns))

    @cached_property
    def names(self) -> list[str]:
        """Names of the sampled metrics."""
        condition, parameters = self._build_condition()
        rows = self._reader.sql(
            f"SELECT DISTINCT metric FROM metrics WHERE {condition} ORDER BY metric",  # noqa: S608 - only question marks are put in
            parameters,
        )
        return [str(name) for name in rows["metric"]]

    def load(self, *metrics: str) -> dict[str, dict[str, analysis.Series]]:
        """Load samples by metric and device, numbers in numerical order; see `read_series`."""
        loaded = read_series(self._reader, metrics, self._period, node=self._node)
        return {
            metric: {
                device.number: series
                for device, series in sorted(
                    devices.items(), key=lambda item: analysis.numeric_sort_key(item[0].number)
                )
            }
            for metric, devices in loaded.items()
        }

    def series(self, metric: str, device: str = "") -> NDArray[np.float64]:
        """Load the values of one metric of one device, in time order; empty when never sampled."""
        loaded = read_series(self._reader, [metric], self._period, node=self._node, device=device)
        return analysis.merge_series(loaded[metric].values()).value

    def repeat_by_time(self, series: analysis.Series) -> NDArray[np.float64]:
        """Repeat the values of a series so that each occurs in proportion to its interval."""
        changes = self._info.interval_changes
        if not changes:
            return series.value
        intervals = np.array(self._info.intervals_ns)
        number = np.searchsorted([change.t_ns for change in changes], series.t_ns, side="right")
        counts = intervals // np.gcd.reduce(intervals)
        repeated: NDArray[np.float64] = np.repeat(series.value, counts[number])
        return repeated

    def summarize(self, series: analysis.Series) -> analysis.Statistics | None:
        """Summarize the distribution over time of the values of a series; None without any."""
        statistics = summarize(self.repeat_by_time(series))
        if statistics is None or not self._info.interval_changes:
            return statistics
        return msgspec.structs.replace(
            statistics,
            count=int(np.count_nonzero(~np.isnan(series.value))),
            outlier_count=int(np.count_nonzero(series.value > statistics.outlier_threshold)),
        )

    def devices_of(self, metric: str) -> list[str]:
        """List the devices of a metric, numbers in numerical order."""
        return sorted(self._means_of(metric), key=analysis.numeric_sort_key)

    def mean(self, metric: str, device: str = "") -> float | None:
        """Compute the mean of the successful readings; None without any: missing is not zero."""
        value = self._means_of(metric).get(device)
        return None if value is None or np.isnan(value) else value

    def mean_over_devices(self, metric: str) -> float | None:
        """Compute the mean of the means of all devices with readings; None without any."""
        return analysis.average_present(
            self.mean(metric, device) for device in self.devices_of(metric)
        )

    def mean_of_highest(self, metric: str) -> float | None:
        """Compute the mean over samples of the highest value of all devices; None without any."""
        condition, parameters = self._build_condition("metric = ? AND isfinite(value)", metric)
        rows = self._reader.sql(
            "SELECT fsum(highest * weight) / fsum(weight) AS mean FROM (SELECT max(value) AS "  # noqa: S608 - only question marks and numbers are put in
            f"highest, {self._weight} AS weight FROM metrics WHERE {condition} GROUP BY t_ns) "
            "HAVING count(*) > 0",
            parameters,
        )
        return float(rows["mean"][0]) if len(rows["mean"]) else None

    def _means_of(self, metric: str) -> dict[str, float]:
        """Compute the mean by device; NaN where every reading failed."""
        if metric not in self._means:
            condition, parameters = self._build_condition("metric = ?", metric)
            rows = self._reader.sql(
                "SELECT device, coalesce(fsum(value * weight) FILTER (NOT isnan(value)) / "  # noqa: S608 - only question marks and numbers are put in
                "fsum(weight) FILTER (NOT isnan(value)), 'nan'::DOUBLE) AS mean "
                f"FROM (SELECT device, value, {self._weight} AS weight FROM metrics "
                f"WHERE {condition}) GROUP BY device",
                parameters,
            )
            self._means[metric] = dict(
                zip(rows["device"].tolist(), rows["mean"].tolist(), strict=True)
            )
        return self._means[metric]

    @property
    def _weight(self) -> str:
        """The sampling interval at a time as an SQL expression; a constant if it never changed."""
        changes = self._info.interval_changes
        if not changes:
            return "1"
        intervals_ns = self._info.intervals_ns
        cases = (
            f"WHEN t_ns < {change.t_ns} THEN {before_ns}"
            for change, before_ns in zip(changes, intervals_ns, strict=False)
        )
        return f"CASE {' '.join(cases)} ELSE {intervals_ns[-1]} END"

    def _build_condition(
        self, condition: str = "true", *parameters: str
    ) -> tuple[str, tuple[object, ...]]:
        within = self._period.condition("t_ns")
        return f"node = ? AND {condition} AND {within}", (self._node, *parameters)


def read_series(
    reader: store.RunReader,
    metrics: Sequence[str],
    period: Period,
    *,
    node: str | None = None,
    device: str | None = None,
) -> dict[str, dict[analysis.Device, analysis.Series]]:
    """Read the samples of some metrics by metric and device, each series sorted by time.

    Args:
        reader: the run.
        metrics: names; one without samples has no devices.
        period: the range of time.
        node, device: only of this one; None for all.
    """
    conditions, parameters = [period.condition("t_ns")], list[object]()
    for column, name in (("node", node), ("device", device)):
        if name is not None:
            conditions.append(f"{column} = ?")
            parameters.append(name)
    rows = reader.sql(
        "SELECT metric, node, device, list(t_ns) AS t_ns, list(value) AS value FROM metrics "  # noqa: S608 - only question marks and numbers are inserted
        f"WHERE metric IN ({', '.join('?' for _ in metrics)}) AND {' AND '.join(conditions)} "
        "GROUP BY metric, node, device",
        (*metrics, *parameters),
        within=period,
    )
    series: dict[str, dict[analysis.Device, analysis.Series]] = {metric: {} for metric in metrics}
    names = [rows[column] for column in ("metric", "node", "device")]
    # Sorted: sums over devices and lists in findings must not depend on threads.
    for row in np.lexsort(names[::-1]).tolist():
        metric, node_name, number = (values[row] for values in names)
        t_ns = np.asarray(rows["t_ns"][row], dtype=np.int64)
        value = np.asarray(rows["value"][row], dtype=np.float64)
        series[metric][analysis.Device(node_name, number)] = analysis.Series(t_ns, value).sort()
    return series
