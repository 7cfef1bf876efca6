"""Figures of ranks that need their spans and samples, measured where these are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, get_args

from stepscope.run.rank_parts import map_ranks
from stepscope.run.run import Rank, Run

RankFigure = Literal["making", "core_delays", "waiting_threads", "host_work"]
"""Cached properties of `Rank`."""
RANK_FIGURES: tuple[RankFigure, ...] = get_args(RankFigure)
TABLES = ("spans", "stacks", "metrics")


def measure_ranks(run: Run, figures: Iterable[RankFigure]) -> None:
    """Measure figures of all ranks of a run, by its engine, and keep them with the ranks.

    A rank measures a figure itself when it is first read. This reads the spans of many ranks at
    once, in other processes or on other machines.

    Raises:
        StepscopeError: the engine has failed.
    """
    missing = [name for name in figures if any(name not in vars(rank) for rank in run.ranks)]
    if not missing:
        return
    rows = map_ranks(partial(_measure, figures=missing), run, tables=TABLES)
    for rank, values in zip(run.ranks, rows, strict=True):
        vars(rank).update(zip(missing, values, strict=True))


def _measure(rank: Rank, *, figures: Sequence[RankFigure]) -> list[Any]:
    return [getattr(rank, name) for name in figures]
