"""Fetches of batches in one trace."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.intervals import contains, union
from stepscope.run.step_activity import DividedTrace, read_fetches


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Fetches of batches by the training thread."""

    has_workers: bool
    """True if workers prepare the batches."""
    ns_per_step: float
    count_per_step: float


def measure_fetches(divided: DividedTrace) -> Fetches | None:
    """Measure the fetches inside the steps; None without any."""
    steps, fetches = divided.steps, read_fetches(divided.trace)
    inside = contains(union(steps.extent), fetches.start_ns)
    if not inside.any():
        return None
    return Fetches(
        has_workers=fetches.has_workers,
        ns_per_step=float(fetches.duration_ns[inside].sum()) / len(steps.names),
        count_per_step=int(inside.sum()) / len(steps.names),
    )
