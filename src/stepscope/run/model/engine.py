"""Engines: where a function of a run and one of its parts is called.

    map       function(run, part) -> small table, for each part
    reduce    the caller combines the tables in the order of the parts

So a figure is the same bit for bit, whichever engine computes it and in whatever order parts are
done. The other engines are in `run.engines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from stepscope import store


class OfReader(Protocol):
    """Anything that is made of a reader alone."""

    reader: store.RunReader

    def __init__(self, reader: store.RunReader) -> None: ...


RunT = TypeVar("RunT", bound=OfReader)
Part = TypeVar("Part")
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class Task(Generic[RunT, Part, Table]):
    """A function and the parts of a run for which it is called; see `Engine.map`."""

    run: RunT
    function: Callable[[RunT, Part], Table]
    parts: Sequence[Part]
    tables: Sequence[str]


class Engine:
    """Engine that calls functions in this process."""

    def map(
        self,
        run: RunT,
        function: Callable[[RunT, Part], Table],
        parts: Sequence[Part],
        *,
        tables: Sequence[str] = (),
    ) -> list[Table]:
        """Call a function of a run for each of its parts.

        Args:
            run: the run, whole.
            function: like the parts and the results, it can be pickled.
            parts: parts of the run.
            tables: tables that the function reads, whose damage is noted.

        Returns:
            The results in the order of the parts.

        Raises:
            StepscopeError: the engine has failed.
        """
        return self.compute(Task(run, function, parts, tables))

    def compute(self, task: Task[RunT, Part, Table]) -> list[Table]:
        """Compute the results of a task, in the order of its parts."""
        return [task.function(task.run, part) for part in task.parts]

    def close(self) -> None:
        """Release connections and processes."""
