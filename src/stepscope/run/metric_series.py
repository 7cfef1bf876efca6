"""Samples of metrics by device, as rules and views take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.analysis import Device, Series
from stepscope.run.period import Period
from stepscope.store import RunReader


def read_series(
    reader: RunReader,
    metrics: Sequence[str],
    period: Period,
    *,
    node: str | None = None,
    device: str | None = None,
) -> dict[str, dict[Device, Series]]:
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
    series: dict[str, dict[Device, Series]] = {metric: {} for metric in metrics}
    names = [rows[column] for column in ("metric", "node", "device")]
    # Sorted: sums over devices and lists in findings must not depend on threads.
    for row in np.lexsort(names[::-1]).tolist():
        metric, node_name, number = (values[row] for values in names)
        t_ns = np.asarray(rows["t_ns"][row], dtype=np.int64)
        value = np.asarray(rows["value"][row], dtype=np.float64)
        series[metric][Device(node_name, number)] = Series(t_ns, value).sort()
    return series
