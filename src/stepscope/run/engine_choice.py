"""Choice of the engine for the parts of a run."""

from __future__ import annotations

from stepscope.run.engine import Engine, Part, RunT, Table, Task

MIN_POOL_PARTS = 8
"""Parts from which processes are worth their start."""


class LocalEngine(Engine):
    """Engine that starts processes on this machine for a run of many parts."""

    def __init__(self) -> None:
        self._processes: Engine | None = None

    def compute(self, task: Task[RunT, Part, Table]) -> list[Table]:
        """See `Engine.compute`."""
        if len(task.parts) < MIN_POOL_PARTS:
            return super().compute(task)
        if self._processes is None:
            from stepscope.run.executors import ProcessEngine  # most runs have few parts

            self._processes = ProcessEngine()
        return self._processes.compute(task)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._processes is not None:
            self._processes.close()


def choose_engine(scheduler: str | None) -> Engine:
    """Choose the engine for the parts of a run.

    Args:
        scheduler: address of a Dask scheduler; None for this machine.

    Raises:
        StepscopeError: the scheduler cannot be used.
    """
    if scheduler is None:
        return LocalEngine()
    from stepscope.run.dask_engine import DaskEngine

    return DaskEngine(scheduler)
