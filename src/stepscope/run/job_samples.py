"""Samples of the machines, as columns."""

from __future__ import annotations

from stepscope.run.frames import FrameColumns
from stepscope.store import RunReader

_COLUMNS = ("t_ns", "node", "metric", "device", "value")


def read_job_samples(
    reader: RunReader,
    *,
    metrics: list[str] | None,
    nodes: list[str] | None,
    devices: list[str] | None,
    start_ns: int | None,
    end_ns: int | None,
) -> FrameColumns:
    """Read samples from `start_ns` until before `end_ns`, in order of time; None selects all."""
    conditions: list[str] = []
    parameters: list[object] = []
    for column, names in (("metric", metrics), ("node", nodes), ("device", devices)):
        if names is not None:
            conditions.append(f"list_contains(?, {column})")
            parameters.append(names)
    for condition, moment in (("t_ns >= ?", start_ns), ("t_ns < ?", end_ns)):
        if moment is not None:
            conditions.append(condition)
            parameters.append(moment)
    return reader.table(
        "metrics",
        columns=_COLUMNS,
        condition=" AND ".join(conditions) or None,
        parameters=parameters,
        order_by="t_ns, node, metric, device",
        encoded=("node", "metric", "device"),
    )
