"""Tensors of a run: which were recorded, at which steps, with which values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.analysis import REDUCTIONS, Float, TensorSeries
from stepscope.errors import UsageError
from stepscope.run import Frame, TensorElements, frame_of_tensors

DEFAULT_TIMEOUT_S = 600.0


class Tensors:
    """Statistics of tensors at the recorded steps.

        gradients = run.tensors("gradient/.*")
        gradients.steps()
        gradients.reduction("l2").pandas()

    Args:
        load: reads the series.
        list_elements: lists the recorded elements of tensors by name.
        read_elements: reads the elements of one tensor at one step.
        wait: waits until a function finds nothing missing in the run, at most some seconds.
    """

    def __init__(
        self,
        load: Callable[[], list[TensorSeries]],
        *,
        list_elements: Callable[[list[str]], list[TensorElements]],
        read_elements: Callable[[TensorElements], Any],
        wait: Callable[[Callable[[], str | None], float], object],
    ) -> None:
        self._load = load
        self._list_elements = list_elements
        self._read_elements = read_elements
        self._wait = wait
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

    def value(self, step: int, *, rank: int | None = None, mode: str | None = None) -> Any:
        """Return the elements of the only selected tensor at a step (option `--tensors-raw`).

        Args:
            step: the step.
            rank, mode: required if several ranks or modes recorded the tensor at the step.

        Returns:
            An array of NumPy in the shape and type of the tensor; of bfloat16 and 8-bit
            floating-point numbers, which NumPy does not have, float32 with the same values. Of a
            distributed tensor (DTensor) it has the part of the rank.

        Raises:
            UsageError: several tensors are selected, or the elements were not recorded.
            DamagedRunError: the file with the elements is missing or damaged.
        """
        elements = self._elements(rank, mode)
        if step not in elements:
            recorded = ", ".join(map(str, elements))
            raise UsageError(
                f"The elements of {self.names[0]} were not recorded at step {step}, "
                f"only at these steps: {recorded}."
            )
        return self._read_elements(elements[step])

    def values(self, *, rank: int | None = None, mode: str | None = None) -> dict[int, Any]:
        """Return the elements of the only selected tensor by step; see `value`."""
        elements = self._elements(rank, mode)
        return {step: self._read_elements(one) for step, one in elements.items()}

    def wait_for(self, step: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Tensors:
        """Wait until a selected tensor is recorded at this step or a later one; returns the
        tensors, read again. The run is read again, too.

        Raises:
            JobEndedError: the job has ended without them.
            WaitTimeoutError: there were none in time, or the monitor is lost.
        """

        def lacks_step() -> str | None:
            self._series = None
            last = max(self.steps(), default=None)
            if last is not None and last >= step:
                return None
            have = "none of the tensors" if last is None else f"the tensors up to step {last}"
            return f"has {have}, not yet at step {step}"

        self._wait(lacks_step, timeout_s)
        return self

    def _elements(self, rank: int | None, mode: str | None) -> dict[int, TensorElements]:
        """Return the recorded elements of the only tensor by step.

        Raises:
            UsageError: there are none, or those of several tensors, ranks or modes.
        """
        names = self.names
        if len(names) != 1:
            tensors = ", ".join(names[:5]) or "none"
            raise UsageError(
                "The elements of one tensor can be read at a time, and the pattern selects "
                f"{len(names)}: {tensors}{', …' if len(names) > 5 else ''}."
            )
        elements = [
            one
            for one in self._list_elements(names)
            if rank in {None, one.rank} and mode in {None, one.mode}
        ]
        if not elements:
            raise UsageError(
                f"The elements of {names[0]} were not recorded. Run the job with "
                f"`--tensors-raw {names[0]}`."
            )
        if len({(one.rank, one.mode) for one in elements}) > 1:
            ranks = ", ".join(map(str, sorted({one.rank for one in elements})))
            modes = ", ".join(sorted({one.mode for one in elements}))
            raise UsageError(
                f"{names[0]} was recorded on the ranks {ranks} in the modes {modes}. Choose one, "
                "such as rank=0 and mode='TRAIN'."
            )
        return {one.step: one for one in elements}

    @property
    def _all(self) -> list[TensorSeries]:
        if self._series is None:
            self._series = self._load()
        return self._series
