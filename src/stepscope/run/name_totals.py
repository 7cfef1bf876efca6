"""Counts and durations of events by name, summed by the store over several traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.run.traces import Trace, rows_in


class NameTotal(NamedTuple):
    """Events of one name."""

    name: str
    event_count: int
    total_ns: int


def sum_by_name(traces: Sequence[Trace], table: str, condition: str = "true") -> list[NameTotal]:
    """Sum up the events of one table by name, in no order.

    Args:
        traces: traces of one run.
        table: a trace table with the columns `name` and `duration_ns`.
        condition: additional SQL condition.
    """
    if not traces:
        return []
    rows = traces[0].reader.sql(
        "SELECT name, count(*) AS count, CAST(sum(duration_ns) AS BIGINT) AS total_ns "  # noqa: S608 - fixed names
        f"FROM {table} WHERE ({rows_in(traces, table)}) AND {condition} GROUP BY name"
    )
    columns = (rows[column].tolist() for column in ("name", "count", "total_ns"))
    return [NameTotal(name or "", *figures) for name, *figures in zip(*columns, strict=True)]
