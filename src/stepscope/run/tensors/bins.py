"""Statistics of tensors over the steps, aggregated by the store: a long run draws as fast as a
short one. Columns are groups of consecutive recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.run.job.times import find_current_processes
from stepscope.run.model.rank_numbers import number_ranks
from stepscope.run.model.run import Run

_FINITE = "(element_count - nan_count - infinite_count)"
_DERIVED = {
    "variance": "std * std",
    "sum": f"mean * {_FINITE}",
    "abs_mean": f"l1 / nullif({_FINITE}, 0)",
    "update_ratio": "update_l2 / nullif(l2, 0)",
    "zero_ratio": "zero_count / nullif(element_count, 0)",
}
"""Reductions that are not stored, in SQL; `TensorSeries.reduction` explains them."""
Aggregate = Literal["min", "max", "avg", "sum"]


class TensorSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors of one rank in one mode."""

    rank: int
    mode: str
    collections: tuple[str, ...] = ()
    """Only these; empty for all."""
    tensors: tuple[str, ...] = ()
    """Only these; empty for all."""


class RecordedTensors(msgspec.Struct, frozen=True, kw_only=True):
    """Names, ranks and modes of the recorded tensors, of which a selection chooses."""

    names: dict[str, str]
    """Collections by tensor, in the order in which a process recorded them."""
    ranks: list[int]
    modes: list[str]
    """TRAIN first."""


class StepColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of consecutive recorded steps."""

    steps: intervals.Int
    """All recorded steps, ascending."""
    steps_per_column: int
    """Recorded steps of a column; the last one may have fewer."""

    def __len__(self) -> int:
        return len(self.first_step)

    @property
    def first_step(self) -> intervals.Int:
        """First step of each column."""
        first: intervals.Int = self.steps[:: self.steps_per_column]
        return first

    @property
    def last_step(self) -> intervals.Int:
        """Last recorded step of each column."""
        ends = np.arange(1, len(self) + 1) * self.steps_per_column
        last: intervals.Int = self.steps[np.minimum(ends, len(self.steps)) - 1]
        return last

    @property
    def join(self) -> str:
        """SQL that adds the number of the column, `col`, to rows with a step; takes `steps`."""
        return (
            f"JOIN (SELECT step, number // {self.steps_per_column} AS col FROM "  # noqa: S608 - numbers
            f"(SELECT unnest(?::BIGINT[]) AS step, unnest(range({len(self.steps)})) AS number)"
            ") USING (step)"
        )


def list_recorded_tensors(run: Run) -> RecordedTensors:
    """List the tensors, ranks and modes with statistics in the range."""
    rows = run.reader.sql(
        "SELECT process, tensor, mode, any_value(collection) AS collection, min(seq) AS seq "  # noqa: S608
        f"FROM tensor_statistics WHERE {run.period.condition('t_ns')} "
        "GROUP BY process, tensor, mode ORDER BY seq, tensor",
        within=run.period,
    )
    ranks = number_ranks(run).by_process
    return RecordedTensors(
        names=dict(zip(rows["tensor"].tolist(), rows["collection"].tolist(), strict=True)),
        ranks=sorted({ranks.get(process, 0) for process in rows["process"].tolist()}),
        modes=sorted(set(rows["mode"].tolist()), key=lambda mode: (mode != "TRAIN", mode)),
    )


def choose_step_columns(
    run: Run, selection: TensorSelection, max_count: int, *, table: str = "tensor_statistics"
) -> StepColumns:
    """Group the recorded steps of a selection into at most `max_count` columns."""
    condition, parameters = _condition(run, selection)
    steps = run.reader.sql(
        f"SELECT DISTINCT step FROM {table} WHERE {condition} ORDER BY step",  # noqa: S608 - fixed names
        parameters,
        within=run.period,
    )["step"]
    return StepColumns(steps=steps, steps_per_column=max(1, -(-len(steps) // max_count)))


def aggregate_tensors(
    run: Run,
    selection: TensorSelection,
    columns: StepColumns,
    names: Sequence[str],
    values: Sequence[tuple[str, Aggregate]],
) -> list[analysis.Float]:
    """Aggregate reductions of tensors by column.

    Args:
        run: the run.
        selection: rows that count.
        columns: the columns.
        names: tensors in the order of the rows of the result.
        values: reductions (`REDUCTIONS`) and how their values in a column become one.

    Returns:
        For each of `values` a matrix of tensors by columns; NaN where nothing is known.
    """
    condition, parameters = _condition(run, selection)
    expressions = [
        f"{aggregate}({_DERIVED.get(name, name)}) AS v{index}"
        for index, (name, aggregate) in enumerate(values)
    ]
    rows: dict[str, Any] = run.reader.sql(
        f"SELECT tensor, col, {', '.join(expressions)} FROM tensor_statistics "  # noqa: S608 - fixed names
        f"{columns.join} WHERE {condition} GROUP BY ALL",
        [columns.steps.tolist(), *parameters],
        within=run.period,
    )
    row_of = {name: row for row, name in enumerate(names)}
    is_shown = np.array([name in row_of for name in rows["tensor"]], dtype=np.bool_)
    at = (
        np.array([row_of[name] for name in rows["tensor"][is_shown]], dtype=np.int64),
        rows["col"][is_shown].astype(np.int64),
    )
    matrices = []
    for index in range(len(values)):
        matrix = np.full((len(names), len(columns)), np.nan)
        numbers = np.ma.asarray(rows[f"v{index}"], dtype=np.float64)
        matrix[at] = np.ma.filled(numbers, np.nan)[is_shown]
        matrices.append(matrix)
    return matrices


class LastStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of one process in one mode: its last row, and its norm over the steps."""

    name: str
    collection: str
    rank: int | None
    mode: str
    shape: str
    dtype: str
    record_count: int
    step: int
    """Last recorded step."""
    non_finite_count: int | None
    """Over all recorded steps; None if it is not known of all."""
    last: dict[str, float | None]
    """Reductions of the last row; None where not known."""
    l2: analysis.Float
    """Means over groups of consecutive recorded steps."""


_LAST = ("mean", "std", "min", "max", "l2", "zero_ratio", "update_ratio")


def read_last_statistics(
    run: Run, name: str | None = None, *, max_columns: int
) -> list[LastStatistics]:
    """Read the last statistics of all tensors, or of one, by process in the order of recording."""
    condition = run.period.condition("t_ns") + ("" if name is None else " AND tensor = ?")
    parameters = [] if name is None else [name]
    steps = run.reader.sql(
        f"SELECT DISTINCT step FROM tensor_statistics WHERE {condition} ORDER BY step",  # noqa: S608 - fixed names
        parameters,
        within=run.period,
    )["step"]
    columns = StepColumns(steps=steps, steps_per_column=max(1, -(-len(steps) // max_columns)))
    fields = ", ".join(f"'{name}': {_DERIVED.get(name, name)}" for name in _LAST)
    rows: dict[str, Any] = run.reader.sql(
        "SELECT process, tensor, mode, list(l2 ORDER BY col) AS l2, sum(n) AS n, min(seq) AS seq, "  # noqa: S608 - fixed names
        "max(step) AS step, CASE WHEN count(broken) = count(*) THEN sum(broken) END AS broken, "
        "max_by(last, step) AS last, "
        "max_by(texts, step) AS texts FROM ("
        "SELECT process, tensor, mode, col, favg(l2) AS l2, count(*) AS n, min(seq) AS seq, "
        "max(step) AS step, CASE WHEN count(nan_count + infinite_count) = count(*) "
        "THEN sum(nan_count + infinite_count) END AS broken, "
        f"max_by({{{fields}}}, step) AS last, max_by([collection, shape, dtype], step) AS texts "
        f"FROM tensor_statistics {columns.join} WHERE {condition} GROUP BY ALL"
        ") GROUP BY process, tensor, mode ORDER BY process, seq",
        [steps.tolist(), *parameters],
        within=run.period,
    )
    ranks = {process.process: process.rank for process in run.processes}
    current = find_current_processes(run)
    rows["broken"] = np.ma.filled(np.ma.asarray(rows["broken"], np.float64), np.nan)
    return [
        LastStatistics(
            name=tensor,
            collection=texts[0],
            rank=ranks.get(process),
            mode=mode,
            shape=texts[1] or "",
            dtype=texts[2] or "",
            record_count=int(count),
            step=int(step),
            non_finite_count=None if np.isnan(broken) else int(broken),
            last=last,
            l2=np.ma.filled(np.ma.asarray(norms, dtype=np.float64), np.nan),
        )
        for process, tensor, mode, norms, count, step, broken, last, texts in zip(
            *(rows[key] for key in (
                "process", "tensor", "mode", "l2", "n", "step", "broken", "last", "texts"
            )),
            strict=True,
        )
        if process in current or process not in ranks
    ]  # fmt: skip


class TensorHistograms(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms of one tensor over the steps, on bins that all steps share."""

    columns: StepColumns
    low: analysis.Float
    """Lower ends of the bins, ascending."""
    high: analysis.Float
    counts: NDArray[np.float64]
    """Elements, bins by columns; those of the steps of a column are added."""


def read_histograms(run: Run, selection: TensorSelection, max_columns: int) -> TensorHistograms:
    """Read the histograms of one tensor.

    Bins are powers of two, and one around zero, whose width differs from step to step; here it has
    that of the step with the widest, and includes the bins inside of it.
    """
    columns = choose_step_columns(run, selection, max_columns, table="tensor_histograms")
    condition, parameters = _condition(run, selection)
    rows: dict[str, Any] = run.reader.sql(
        "SELECT col, low, high, CAST(sum(count) AS DOUBLE) AS n FROM tensor_histograms "  # noqa: S608 - fixed names
        f"{columns.join} WHERE {condition} GROUP BY ALL",
        [columns.steps.tolist(), *parameters],
        within=run.period,
    )
    low, high = rows["low"].astype(np.float64), rows["high"].astype(np.float64)
    is_zero = (low <= 0) & (high >= 0)
    width = float(np.abs([low[is_zero], high[is_zero]]).max(initial=0.0))
    is_inside = (low >= -width) & (high <= width)
    low, high = np.where(is_inside, -width, low), np.where(is_inside, width, high)
    edges = np.unique(np.stack([low, high], axis=1), axis=0)
    counts = np.zeros((len(edges), len(columns)))
    np.add.at(counts, (np.searchsorted(edges[:, 0], low), rows["col"].astype(np.int64)), rows["n"])
    return TensorHistograms(columns=columns, low=edges[:, 0], high=edges[:, 1], counts=counts)


def _condition(run: Run, selection: TensorSelection) -> tuple[str, list[object]]:
    ranks = number_ranks(run).by_process
    current = find_current_processes(run)
    processes = [name for name in sorted(current) if ranks.get(name, 0) == selection.rank]
    conditions, parameters = [run.period.condition("t_ns"), "mode = ?"], [selection.mode]
    for column, names in (
        ("process", processes),
        ("collection", selection.collections),
        ("tensor", selection.tensors),
    ):
        if names:
            conditions.append(f"{column} IN ({', '.join('?' * len(names))})")
            parameters += names
    return " AND ".join(conditions), [*parameters]


def list_columns(mask: NDArray[np.bool_]) -> list[list[int]]:
    """List for each row of a matrix the columns that are true."""
    return [np.flatnonzero(row).tolist() for row in mask]
