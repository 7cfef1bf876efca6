"""Steps in a quarter of their memory, for thousands of ranks and for other processes.

Each array is stored with the narrowest unsigned integers that hold it, one value where all are
alike. Starts are differences, and ends and wall times are relative to the starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.steps import Steps
from stepscope.intervals import Int

_EMPTY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSteps:
    """Steps of one rank, packed."""

    frame: Steps
    """Steps without the arrays that have one entry per step."""
    count: int
    first_start: int
    start_differences: NDArray[Any]
    duration: NDArray[Any]
    excluded: NDArray[Any]
    """Duration minus wall time."""
    fetches: NDArray[Any]
    profiled: NDArray[np.bool_]
    phases: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return self.count

    def unpack(self) -> Steps:
        """Return the steps."""
        start = self.first_start + np.cumsum(self._widen(self.start_differences))
        return replace(
            self.frame,
            start=start,
            end=start + self._widen(self.duration),
            wall_ns=self.wall_ns,
            phase_ns={name: self.phase_ns(name) for name in self.phases},
            fetches=self._widen(self.fetches),
            profiled=np.full(self.count, self.profiled)
            if len(self.profiled) == 1
            else self.profiled,
        )

    @property
    def wall_ns(self) -> Int:
        """As of `Steps`, without unpacking the others."""
        return self._widen(self.duration) - self._widen(self.excluded)

    def phase_ns(self, phase: str) -> Int:
        """As of `Steps`, of one phase."""
        return self._widen(self.phases[phase])

    def has_phase(self, phase: str) -> bool:
        """Return True if a step has time in a phase."""
        return bool(self.phases[phase].any())

    def _widen(self, values: NDArray[Any]) -> Int:
        wide = values.astype(np.int64)
        return wide if len(wide) == self.count else np.full(self.count, wide[0])


def pack_steps(steps: Steps) -> PackedSteps:
    """Pack the steps of one rank; there is at least one."""
    duration = steps.end - steps.start
    return PackedSteps(
        frame=replace(
            steps,
            start=_EMPTY,
            end=_EMPTY,
            wall_ns=_EMPTY,
            phase_ns={},
            fetches=_EMPTY,
            profiled=np.empty(0, dtype=np.bool_),
        ),
        count=len(steps),
        first_start=int(steps.start[0]),
        start_differences=_narrow(np.diff(steps.start, prepend=steps.start[0])),
        duration=_narrow(duration),
        excluded=_narrow(duration - steps.wall_ns),
        fetches=_narrow(steps.fetches),
        profiled=_narrow(steps.profiled),
        phases={name: _narrow(values) for name, values in steps.phase_ns.items()},
    )


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Copy values to the narrowest type that holds them; one value if all are alike."""
    if (values == values[0]).all():
        return values[:1].copy()
    if values.dtype == np.bool_ or values.min() < 0:
        return values
    return values.astype(np.min_scalar_type(int(values.max())))
