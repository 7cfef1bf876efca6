"""Fetches of batches in one trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import is_data_loader, match_rows
from stepscope.intervals import contains, union
from stepscope.run.step_activity import TIMES, DividedTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Fetches of batches by the training thread."""

    has_workers: bool
    """True if workers prepare the batches."""
    ns_per_step: float
    count_per_step: float


def measure_fetches(divided: DividedTrace) -> Fetches | None:
    """Measure the fetches inside the steps; None without any."""
    steps = divided.steps
    starts, durations, has_workers = [], [], False
    for table, condition in (("annotations", "on_device = 0"), ("operators", "")):
        columns = divided.trace.columns(table, ("name", *TIMES), condition=condition)
        rows = match_rows(columns["name"], is_data_loader)
        starts.append(columns["start_ns"][rows])
        durations.append(columns["duration_ns"][rows])
        has_workers |= bool(match_rows(columns["name"], _has_workers)[rows].any())
    start, duration = np.concatenate(starts), np.concatenate(durations)
    inside = contains(union(steps.extent), start)
    if not inside.any():
        return None
    return Fetches(
        has_workers=has_workers,
        ns_per_step=float(duration[inside].sum()) / len(steps.names),
        count_per_step=int(inside.sum()) / len(steps.names),
    )


def _has_workers(name: str) -> bool:
    return "MultiProcessing" in name
