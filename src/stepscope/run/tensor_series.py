"""Statistics of tensors over the steps, as series."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Float
from stepscope.intervals import Int
from stepscope.run.frames import FrameColumns
from stepscope.run.run import Run
from stepscope.store import DictColumn

_STORED = (
    "element_count", "nan_count", "infinite_count", "zero_count",
    "min", "max", "mean", "std", "l1", "l2", "product", "update_l2",
)  # fmt: skip
REDUCTIONS = (*_STORED, "variance", "sum", "abs_mean", "update_ratio", "zero_ratio")
"""Names of the numbers that describe a tensor at a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSeries:
    """Statistics of one tensor of one process in one mode, in order of steps."""

    name: str
    collection: str
    process: str
    rank: int | None
    mode: str
    shape: str
    """Sizes at the last step, such as 768x192; empty for a single number, or if unknown."""
    dtype: str
    """Empty if unknown."""
    step: Int
    """Number of steps of the process before each."""
    t_ns: Int
    """Epoch nanoseconds."""
    stored: dict[str, Float]
    """The stored numbers by name; NaN where unknown."""

    def reduction(self, name: str) -> Float:
        """Return one of `REDUCTIONS` at each step; NaN where it is not known.

        `variance` and `std` divide by the number of elements, and like `mean`, `sum`, `l1` and `l2`
        describe the finite ones. `abs_mean` is the mean of the absolute values, `update_ratio` the
        L2 norm of the change by the optimizer step as a share of that of the tensor after it, and
        `zero_ratio` the share of zeros in all elements.
        """
        stored = self.stored
        if name in stored:
            return stored[name]
        finite = stored["element_count"] - stored["nan_count"] - stored["infinite_count"]
        with np.errstate(divide="ignore", invalid="ignore"):
            match name:
                case "variance":
                    return stored["std"] ** 2
                case "sum":
                    return stored["mean"] * finite
                case "abs_mean":
                    return stored["l1"] / finite
                case "update_ratio":
                    return stored["update_l2"] / stored["l2"]
                case "zero_ratio":
                    return stored["zero_count"] / stored["element_count"]
        raise KeyError(name)


def read_tensors(
    run: Run,
    pattern: re.Pattern[str] | None = None,
    *,
    collections: Collection[str] = (),
    rank: int | None = None,
) -> list[TensorSeries]:
    """Read the statistics of tensors, by process and in the order in which they were recorded.

    Args:
        run: the run.
        pattern: matches whole names; None for all.
        collections: only these; empty for all.
        rank: only this rank; None for all.
    """
    names = _list_names(run, pattern, collections)
    processes = {info.process: info.rank for info in run.processes}
    condition = f"{run.period.condition('t_ns')} AND tensor IN ({', '.join('?' * len(names))})"
    if not names:
        return []
    rows = run.reader.table(
        "tensor_statistics",
        (
            "process",
            "tensor",
            "mode",
            "collection",
            "shape",
            "dtype",
            "seq",
            "step",
            "t_ns",
            *_STORED,
        ),
        condition=condition,
        parameters=tuple(names),
        order_by="process, tensor, mode, step, seq",
        encoded=("process", "tensor", "mode", "collection", "shape", "dtype"),
    )
    series = []
    borders = _borders(rows, ("process", "tensor", "mode"))
    for start, end in sorted(
        borders, key=lambda b: (rows["process"].codes[b[0]], rows["seq"][b[0]])
    ):
        texts = {name: _text(rows[name], end - 1) for name in ("process", "tensor", "mode")}
        if rank is not None and (processes.get(texts["process"]) or 0) != rank:
            continue
        series.append(
            TensorSeries(
                name=texts["tensor"],
                collection=_text(rows["collection"], end - 1),
                process=texts["process"],
                rank=processes.get(texts["process"]),
                mode=texts["mode"],
                shape=_text(rows["shape"], end - 1),
                dtype=_text(rows["dtype"], end - 1),
                step=rows["step"][start:end],
                t_ns=rows["t_ns"][start:end],
                stored={
                    name: np.ma.filled(np.ma.asarray(rows[name][start:end], np.float64), np.nan)
                    for name in _STORED
                },
            )
        )
    return series


def frame_of_tensors(series: Sequence[TensorSeries], reductions: Sequence[str]) -> FrameColumns:
    """Return the columns tensor, collection, rank, mode, step, t_ns and the reductions."""
    sizes = [len(one.step) for one in series]

    def repeat(texts: Iterable[str]) -> DictColumn:
        column = DictColumn.encode(texts)
        return DictColumn(np.repeat(column.codes, sizes), column.values)

    def join(arrays: Iterable[NDArray[Any]], dtype: type) -> NDArray[Any]:
        return np.concatenate([np.empty(0, dtype), *arrays])

    columns: dict[str, Any] = {
        "tensor": repeat(one.name for one in series),
        "collection": repeat(one.collection for one in series),
        "rank": np.repeat(np.array([one.rank or 0 for one in series], dtype=np.int64), sizes),
        "mode": repeat(one.mode for one in series),
        "step": join((one.step for one in series), np.int64),
        "t_ns": join((one.t_ns for one in series), np.int64),
    }
    for name in reductions:
        values = join((one.reduction(name) for one in series), np.float64)
        columns[name] = np.ma.MaskedArray(values, mask=np.isnan(values))
    return columns


def list_tensors(run: Run) -> dict[str, str]:
    """Return the names of the recorded tensors with their collections."""
    rows = run.reader.sql("SELECT DISTINCT tensor, collection FROM tensor_statistics")
    return dict(sorted(zip(rows["tensor"].tolist(), rows["collection"].tolist(), strict=True)))


def _list_names(
    run: Run, pattern: re.Pattern[str] | None, collections: Collection[str]
) -> list[str]:
    return [
        name
        for name, collection in list_tensors(run).items()
        if (pattern is None or pattern.fullmatch(name))
        and (not collections or collection in collections)
    ]


def _borders(rows: dict[str, Any], columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return start and end of the rows with equal strings in the columns."""
    is_first = np.zeros(len(rows["t_ns"]), dtype=np.bool_)
    for column in columns:
        is_first |= np.diff(rows[column].codes, prepend=-2) != 0
    return list(pairwise([*np.flatnonzero(is_first).tolist(), len(is_first)]))


def _text(column: Any, row: int) -> str:
    code = column.codes[row]
    return column.values[code] or "" if code >= 0 else ""
