"""Functions of ranks, called where the ranks are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from stepscope.run.period import Period
from stepscope.run.rank_tables import StepTable, split_by_node
from stepscope.run.run import Rank, Run
from stepscope.schema import ProcessInfo

Figure = TypeVar("Figure")


class RankPart(NamedTuple):
    """Ranks of a run or of a range of it, without the run."""

    period: Period
    ranks: list[tuple[ProcessInfo, StepTable]]

    def attach(self, run: Run) -> list[Rank]:
        """Return the ranks of a run: its own, if it has them, else of a run of these alone."""
        if run.period != self.period:
            run = run.between(*self.period)
        if not run.has_ranks:
            run.all_ranks = [Rank(run, process, table) for process, table in self.ranks]
        processes = {process.process for process, _ in self.ranks}
        return [rank for rank in run.all_ranks if rank.process.process in processes]


def detach_ranks(run: Run, ranks: Sequence[Rank]) -> RankPart:
    """Return ranks without their run, so that another process can attach them."""
    return RankPart(run.period, [(rank.process, rank.table) for rank in ranks])


def map_ranks(
    function: Callable[[Rank], Figure], run: Run, *, tables: Sequence[str]
) -> list[Figure]:
    """Call a function of one rank for all ranks of a run, by the engine of the run.

    Args:
        function: like its result, it can be pickled.
        run: the run.
        tables: tables that the function reads.

    Raises:
        StepscopeError: the engine has failed.
    """
    ranks = {rank.process.process: rank for rank in run.ranks}
    parts = [
        detach_ranks(run, [ranks[process.process] for process in part])
        for part in split_by_node([rank.process for rank in run.ranks])
    ]
    tables_of_parts = run.engine.map(
        run, partial(_call_for_ranks, function=function), parts, tables=tables
    )
    figures = {process: figure for part in tables_of_parts for process, figure in part}
    return [figures[rank.process.process] for rank in run.ranks]


def _call_for_ranks(
    run: Run, part: RankPart, *, function: Callable[[Rank], Figure]
) -> list[tuple[str, Figure]]:
    return [(rank.process.process, function(rank)) for rank in part.attach(run)]
