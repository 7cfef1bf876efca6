"""Numbers that the script logs with `stepscope.scalar`, or that were imported, as series."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.run.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedScalars:
    """Values that one process logged under one name, in order of time."""

    name: str
    process: str
    t_ns: Int
    """Epoch nanoseconds."""
    step: Int | None
    """Steps of imported values; None if a value names none."""
    value: NDArray[np.float64]
    """NaN where the logged value was not a finite number."""

    @property
    def nan_count(self) -> int:
        """Number of values that were not finite."""
        return int(np.isnan(self.value).sum())


def read_scalars(run: Run, name: str | None = None) -> list[LoggedScalars]:
    """Read series by process and name.

    Args:
        run: the run.
        name: the only name to read; None for all names.
    """
    condition = run.period.condition("t_ns")
    rows: dict[str, Any] = run.reader.table(
        "scalars",
        ("t_ns", "name", "process", "step", "value"),
        condition=condition if name is None else f"{condition} AND name = ?",
        parameters=() if name is None else (name,),
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
