"""Numbers that the script logs with `stepscope.scalar`, or that were imported, as series."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from stepscope.analysis import LoggedScalars
from stepscope.run.run import Run


def read_scalars(run: Run, name: str | None = None) -> list[LoggedScalars]:
    """Read series by process and name.

    Args:
        run: the run.
        name: the only name to read; None for all names.
    """
    condition = run.period.condition("t_ns")
    if name is None:
        return select_scalars(run, condition)
    return select_scalars(run, f"{condition} AND name = ?", (name,))


def select_scalars(
    run: Run, condition: str, parameters: tuple[object, ...] = ()
) -> list[LoggedScalars]:
    """Read the rows of `scalars` that fulfil an SQL condition, by process and name."""
    rows: dict[str, Any] = run.reader.table(
        "scalars",
        ("t_ns", "name", "process", "step", "value"),
        condition=condition,
        parameters=parameters,
        order_by="process, name, t_ns, seq",
        encoded=("name", "process"),
    )
    names, processes = rows["name"], rows["process"]
    is_first = np.diff(names.codes, prepend=-1) != 0
    is_first |= np.diff(processes.codes, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    steps = np.ma.asarray(rows["step"])
    value = np.where(np.isfinite(rows["value"]), rows["value"], np.nan)
    return [
        LoggedScalars(
            name=names.values[names.codes[start]] or "",
            process=processes.values[processes.codes[start]] or "",
            t_ns=rows["t_ns"][start:end],
            step=None if np.ma.is_masked(steps[start:end]) else steps.data[start:end],
            value=value[start:end],
        )
        for start, end in pairwise([*starts.tolist(), len(is_first)])
    ]
