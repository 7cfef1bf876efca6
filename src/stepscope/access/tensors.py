"""Tensors of a run: which were recorded, at which steps, with which values."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.analysis import REDUCTIONS, Float, TensorSeries
from stepscope.errors import UsageError
from stepscope.run import Frame, frame_of_tensors


class Tensors:
    """Statistics of tensors at the recorded steps.

        gradients = run.tensors("gradient/.*")
        gradients.steps()
        gradients.reduction("l2").pandas()

    Args:
        load: reads the series.
    """

    def __init__(self, load: Callable[[], list[TensorSeries]]) -> None:
        self._load = load
        self._series: list[TensorSeries] | None = None

    def __repr__(self) -> str:
        return f"Tensors({', '.join(self.names)})"

    def __len__(self) -> int:
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """Names, such as `layers.0.weight` and `gradient/layers.0.weight`."""
        return sorted({series.name for series in self._all})

    @property
    def modes(self) -> list[str]:
        """Modes in which they were recorded."""
        return sorted({series.mode for series in self._all})

    @property
    def ranks(self) -> list[int]:
        """Ranks that recorded them; the only process of a job is rank 0."""
        return sorted({series.rank or 0 for series in self._all})

    def steps(self) -> list[int]:
        """Return the recorded steps: the number of steps of a process before each."""
        return sorted({step for series in self._all for step in series.step.tolist()})

    def reduction(self, name: str) -> Frame:
        """Return a number that describes each tensor at each step: tensor, rank, mode, step, t_ns
        and the number.

        Args:
            name: min, max, mean, std, variance, sum, product, l1, l2, abs_mean, element_count,
                nan_count, infinite_count, zero_count, zero_ratio, update_l2 or update_ratio; the
                numbers that are no counts describe the finite elements.

        Raises:
            UsageError: there is no such reduction.
        """
        if name not in REDUCTIONS:
            raise UsageError(f"{name!r} is no reduction; choose one of {', '.join(REDUCTIONS)}.")
        return Frame(lambda: frame_of_tensors(self._all, (name,)))

    def frame(self) -> Frame:
        """Return all reductions, one row per tensor and step."""
        return Frame(lambda: frame_of_tensors(self._all, REDUCTIONS))

    def array(self, tensor: str, name: str, *, rank: int = 0, mode: str = "TRAIN") -> Float:
        """Return a reduction of one tensor at its steps; NaN where it is not known.

        Raises:
            UsageError: there is no such tensor or reduction.
        """
        for series in self._all:
            if (series.name, series.rank or 0, series.mode) == (tensor, rank, mode):
                try:
                    return series.reduction(name)
                except KeyError:
                    break
        else:
            raise UsageError(f"{tensor!r} was not recorded in mode {mode} on rank {rank}.")
        raise UsageError(f"{name!r} is no reduction; choose one of {', '.join(REDUCTIONS)}.")

    @property
    def _all(self) -> list[TensorSeries]:
        if self._series is None:
            self._series = self._load()
        return self._series
