"""Engines: where a function of a run and one of its parts is called.

    map       function(run, part) -> small table, for each part
    reduce    the caller combines the tables in the order of the parts

So a figure is the same bit for bit, whichever engine computes it and in whatever order parts are
done. The other engines are in `run.engines`.

Small tables of ranks, which tasks make of a part of a run each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from stepscope import analysis, budget, schema, store
from stepscope.run.model.tables import LARGE_READ


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

    def apply(self, function: Callable[[Part], Table], items: Sequence[Part]) -> list[Table]:
        """Call a function of no run for each item; results in the order of the items.

        Args:
            function: like the items and the results, it can be pickled.
            items: the items.

        Raises:
            StepscopeError: the engine has failed.
        """
        return [function(item) for item in items]

    def close(self) -> None:
        """Release connections and processes."""


MAX_PART_PROCESSES = 8
"""Processes of one node that are read in one part of the run."""


class StepTable(NamedTuple):
    """Steps of one training process."""

    steps: analysis.PackedSteps
    waiting: analysis.DataWait | None = None
    """Waiting of the measured steps, which every verdict needs; None if not measured yet."""


class SpanSource(Protocol):
    """Run, as far as tables are made of it."""

    def cache_step_spans(self, processes: Sequence[schema.ProcessInfo]) -> None:
        """Read the spans by which steps are found, of processes of one node."""

    def step_spans(self, process: schema.ProcessInfo) -> analysis.Spans:
        """Return the spans by which steps are found."""


def find_step_tables(
    run: SpanSource, processes: Sequence[schema.ProcessInfo], *, end_kinds: tuple[str, ...]
) -> dict[str, StepTable]:
    """Find the steps of some processes, by process; those without a complete step are omitted.

    Args:
        run: the run.
        processes: processes of one node.
        end_kinds: as of `find_steps`.
    """
    run.cache_step_spans(processes)
    tables = {}
    for process in processes:
        if "forward" in end_kinds and process.may_hide_training:
            continue
        spans = run.step_spans(process)
        steps = analysis.find_steps(spans, end_kinds)
        if steps is not None:
            waiting = analysis.split_data_wait(spans, steps, steps.measured())
            tables[process.process] = StepTable(analysis.pack_steps(steps), waiting)
            del steps
            if len(spans) > LARGE_READ:
                budget.trim_heap()
    return tables


def split_by_node(processes: Sequence[schema.ProcessInfo]) -> list[list[schema.ProcessInfo]]:
    """Split processes into parts that one task reads: a few processes of one node each."""
    nodes: dict[str, list[schema.ProcessInfo]] = {}
    for process in processes:
        nodes.setdefault(process.node, []).append(process)
    return [
        members[first : first + MAX_PART_PROCESSES]
        for members in nodes.values()
        for first in range(0, len(members), MAX_PART_PROCESSES)
    ]
