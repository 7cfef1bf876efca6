"""Figures of ranks, measured where the ranks are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from stepscope import schema
from stepscope.run.model.clock import Period
from stepscope.run.model.engine import StepTable, split_by_node
from stepscope.run.model.run import Rank, Run

Figure = TypeVar("Figure")


class RankPart(NamedTuple):
    """Ranks of a run or of a range of it, without the run."""

    period: Period
    ranks: list[tuple[schema.ProcessInfo, StepTable, str]]

    def attach(self, run: Run) -> list[Rank]:
        """Return the ranks of a run: its own, if it has them, else of a run of these alone."""
        if run.period != self.period:
            run = run.between(*self.period)
        if not run.has_ranks:
            run.all_ranks = [Rank(run, *rank) for rank in self.ranks]
        processes = {process.process for process, _, _ in self.ranks}
        return [rank for rank in run.all_ranks if rank.process.process in processes]


def detach_ranks(run: Run, ranks: Sequence[Rank]) -> RankPart:
    """Return ranks without their run, so that another process can attach them."""
    return RankPart(run.period, [(rank.process, rank.table, rank.name) for rank in ranks])


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


def largest_model(rank: Rank) -> schema.ModelFact | None:
    """Return the facts of the model with most parameters; None where none was reported."""
    return max(rank.facts(schema.ModelFact), key=lambda model: model.parameter_count, default=None)


def inputs_of(rank: Rank, model: schema.ModelFact | None) -> list[schema.ModelInputsFact]:
    """Return the facts of the inputs of a model's first calls, one per distinct shape."""
    if model is None:
        return []
    return [fact for fact in rank.facts(schema.ModelInputsFact) if fact.model == model.model]


def embedding_ratio(rank: Rank) -> float | None:
    """Compute the share of the largest model's parameters in lookup tables with dense gradients.

    The optimizer updates rows of these that no sample used. None where unknown.
    """
    model = largest_model(rank)
    if model is None or model.embedding_parameter_count is None:
        return None
    return model.embedding_parameter_count / max(1, model.parameter_count)


def samples_at_a_time(rank: Rank) -> int | None:
    """Return the smallest batch of a call of the largest model; None where unknown.

    By convention it is the first dimension of the first input. A vector of real numbers is one
    sample, whose elements are its features; a vector of integers is a batch of indices.
    """
    inputs = [fact.inputs[0] for fact in inputs_of(rank, largest_model(rank)) if fact.inputs]
    return min((_count_samples(first) for first in inputs if first.shape), default=None)


def _count_samples(first: schema.ModelInput) -> int:
    is_vector = len(first.shape) == 1 and "float" in first.dtype
    return 1 if is_vector else first.shape[0]


def input_bytes(rank: Rank) -> int:
    """Compute the size of the largest inputs of a call of the largest model; 0 where unknown."""
    calls = [fact.inputs for fact in inputs_of(rank, largest_model(rank))]
    return max((sum(map(_tensor_bytes, inputs)) for inputs in calls), default=0)


def _tensor_bytes(tensor: schema.ModelInput) -> int:
    """Compute the size of a tensor: 4 bytes for each element of a float32, 1 of a bool."""
    bits = re.search(r"\d+", tensor.dtype)
    return math.prod(tensor.shape) * (int(bits[0]) // 8 if bits else 1)
