"""Search for the next record of a run: a clock that jumps leaves years without any."""

from __future__ import annotations

import numpy as np

from stepscope.run.period import Period
from stepscope.store import RunReader

_TIMES = (("metrics", "t_ns"), ("spans", "start_ns"))


def has_records(reader: RunReader, period: Period) -> bool:
    """Return True if there is a sample in a range of time, or a span that starts in it."""
    return any(
        len(
            reader.sql(
                f"SELECT 1 AS one FROM {table} WHERE {period.condition(column)} LIMIT 1",  # noqa: S608 - fixed names and numbers
                within=period,
            )["one"]
        )
        for table, column in _TIMES
    )


def find_next_record(reader: RunReader, period: Period) -> int | None:
    """Find the earliest sample or start of a span in a range of time; None without any."""
    earliest = ", ".join(
        f"(SELECT min({column}) FROM {table} WHERE {period.condition(column)})"  # noqa: S608 - fixed names and numbers
        for table, column in _TIMES
    )
    times = reader.sql(f"SELECT least({earliest}) AS t_ns", within=period)["t_ns"]
    return None if np.ma.getmaskarray(times)[0] else int(times[0])
