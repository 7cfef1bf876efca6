"""`tensors`: the numbers that the script logs."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from stepscope.analysis import Statistics, make_statistics, nan_to_none, summarize
from stepscope.run import Run, RunRange
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged

POINTS = 1000
MOST_SERIES = 200
NO_SCALARS = 'nothing was logged: call stepscope.scalar("loss", value) in the training loop'
NO_TENSORS = (
    "values of tensors (weights, gradients, activations) are not recorded by this version; log "
    "what you want to follow with stepscope.scalar(name, value)"
)


class ScalarSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What one process logged under one name, in order of time."""

    name: str
    process: str
    rank: int | None
    statistics: Statistics | None
    """Of all values but NaN."""
    nan_count: int
    """Values that are no number, or infinite."""
    values_per_point: int
    """A point is the mean of so many values, except perhaps the last."""
    after_ns: list[int]
    """Of each point's first value, after the run's origin."""
    value: list[float | None]
    """Null for a point of which no value is finite."""


class TensorsView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    scalars: list[ScalarSeries]
    left_out_count: int
    """Series that are not sent, because there are too many."""
    tensors_missing: str
    missing: str | None


def tensors(run: Run, options: ViewOptions = DEFAULTS) -> TensorsView:
    """The numbers that the script logs."""
    where, parameters = _where(run, options)
    rows: dict[str, Any] = run.reader.table(
        "scalars",
        ("t_ns", "name", "process", "value"),
        condition=where,
        parameters=parameters,
        order_by="process, name, t_ns",
        encoded=("name", "process"),
    )
    name, process = rows["name"], rows["process"]
    new = (np.diff(name.codes, prepend=-1) != 0) | (np.diff(process.codes, prepend=-1) != 0)
    begins = np.flatnonzero(new)
    ends = np.append(begins[1:], len(new))
    ranks = {each.process: each.rank for each in run.processes}
    origin = run.clock.origin_ns
    found = []
    for begin, end in zip(begins[:MOST_SERIES].tolist(), ends.tolist(), strict=False):
        of = process.values[process.codes[begin]] or ""
        found.append(
            _series(
                rows["t_ns"][begin:end] - origin,
                rows["value"][begin:end],
                name=name.values[name.codes[begin]] or "",
                process=of,
                rank=ranks.get(of),
            )
        )
    return TensorsView(
        scalars=found,
        left_out_count=max(0, len(begins) - MOST_SERIES),
        tensors_missing=NO_TENSORS,
        missing=None if found else NO_SCALARS,
    )


def _where(run: Run, options: ViewOptions) -> tuple[str, tuple[object, ...]]:
    where, parameters = ["true"], list[object]()
    if options.name is not None:
        where.append("name = ?")
        parameters.append(options.name)
    if isinstance(run, RunRange):
        where.append("t_ns >= ? AND t_ns < ?")
        parameters += [run.start_ns, run.end_ns]
    return " AND ".join(where), tuple(parameters)


def _series(
    after_ns: Any, value: Any, *, name: str, process: str, rank: int | None
) -> ScalarSeries:
    together = max(1, -(-len(value) // POINTS))
    first = np.arange(0, len(value), together)
    finite = np.isfinite(value)
    sums = np.add.reduceat(np.where(finite, value, 0.0), first)
    counts = np.add.reduceat(finite, first, dtype=np.int64)
    return ScalarSeries(
        name=name,
        process=process,
        rank=rank,
        statistics=make_statistics(summarize(value[finite])),
        nan_count=int((~finite).sum()),
        values_per_point=together,
        after_ns=after_ns[first].tolist(),
        value=nan_to_none(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)),
    )
