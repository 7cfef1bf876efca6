"""Mean work of ranks in a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


class MeanWork(msgspec.Struct, frozen=True, kw_only=True):
    """Mean nanoseconds of a step, one entry per rank."""

    step_ns: Float
    work_ns: dict[str, Float]
    """All but exposed communication by activity: phases of a job, or parts of traced steps."""
    compute_ns: Float
    """Activities that compute."""
    overlap_ns: Float | None
    """Computation that hides communication; None for a job, which does not record it."""

    @classmethod
    def measure(
        cls,
        wall_ns: Float,
        work_ns: Mapping[str, Float],
        compute: Collection[str],
        overlap_ns: Float | None = None,
    ) -> MeanWork:
        """Measure the means of arrays of the shape (ranks, steps).

        Args:
            wall_ns: duration of the steps.
            work_ns: their time by activity.
            compute: activities that compute.
            overlap_ns: computation that hides communication.
        """
        means = {activity: times.mean(axis=1) for activity, times in work_ns.items()}
        return cls(
            step_ns=wall_ns.mean(axis=1),
            work_ns=means,
            compute_ns=sum((means[name] for name in compute), start=np.zeros(len(wall_ns))),
            overlap_ns=None if overlap_ns is None else overlap_ns.mean(axis=1),
        )
