"""Numbers that the script logs with `stepscope.scalar`, as series."""

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
    value: NDArray[np.float64]
    """NaN where the logged value was not a finite number."""

    @property
    def nan_count(self) -> int:
        """Number of values that were not finite."""
        return int(np.isnan(self.value).sum())

    def count_steps(self, step_ends: Int) -> Int:
        """Return the number of steps of the process that had ended at each value.

        Args:
            step_ends: epoch nanoseconds at which they ended.
        """
        return np.searchsorted(step_ends, self.t_ns, side="right")

    def non_finite_groups(self, size: int) -> list[int]:
        """Return the groups of *size* consecutive values of which one was not finite."""
        groups: list[int] = np.unique(np.flatnonzero(np.isnan(self.value)) // size).tolist()
        return groups


def read_scalars(run: Run, name: str | None = None) -> list[LoggedScalars]:
    """Read series by process and name.

    Args:
        run: the run.
        name: the only name to read; None for all names.
    """
    condition = run.period.condition("t_ns")
    rows: dict[str, Any] = run.reader.table(
        "scalars",
        ("t_ns", "name", "process", "value"),
        condition=condition if name is None else f"{condition} AND name = ?",
        parameters=() if name is None else (name,),
        order_by="process, name, t_ns",
        encoded=("name", "process"),
    )
    names, processes = rows["name"], rows["process"]
    is_first = np.diff(names.codes, prepend=-1) != 0
    is_first |= np.diff(processes.codes, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    value = np.where(np.isfinite(rows["value"]), rows["value"], np.nan)
    return [
        LoggedScalars(
            name=names.values[names.codes[start]] or "",
            process=processes.values[processes.codes[start]] or "",
            t_ns=rows["t_ns"][start:end],
            value=value[start:end],
        )
        for start, end in pairwise([*starts.tolist(), len(is_first)])
    ]
