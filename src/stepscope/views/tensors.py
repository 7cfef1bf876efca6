"""`tensors`: numbers that the script logs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    Statistics,
    downsample_columns,
    nan_to_none,
    summarize,
)
from stepscope.run import LoggedScalars, Run, read_scalars
from stepscope.schema import field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged

MAX_POINTS = 1000
MAX_SERIES = 200
NO_SCALARS = 'nothing was logged: call stepscope.scalar("loss", value) in the training loop'
NO_TENSORS = (
    "this version does not record values of tensors (weights, gradients, activations); log the "
    "values you need with stepscope.scalar(name, value)"
)


class ScalarSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Values that one process logged under one name, in order of time."""

    name: str
    process: str
    rank: int | None
    statistics: Statistics | None
    """Distribution of the finite values."""
    nan_count: Annotated[int, field_label("NaN")]
    """Values that are NaN or infinite."""
    values_per_point: Annotated[int, field_label(unit="count")]
    """Number of values that a point averages; the last point may have fewer."""
    after_ns: list[int]
    """Time of each point's first value, after the run's origin."""
    value: list[float | None]
    """Null for a point without a finite value."""


class TensorsView(Ranged, frozen=True, kw_only=True):
    """Payload of `tensors`."""

    scalars: list[ScalarSeries]
    left_out_count: Annotated[int, field_label("omitted series")]
    """Series that exceed the limit and are omitted."""
    tensors_missing: str
    missing: str | None


def show_tensors(run: Run, options: ViewOptions = DEFAULTS) -> TensorsView:
    """Show the numbers that the script logs."""
    logged = read_scalars(run, options.name)
    ranks = {process.process: process.rank for process in run.processes}
    return TensorsView(
        scalars=[
            _show_series(series, ranks.get(series.process), run.clock.origin_ns)
            for series in logged[:MAX_SERIES]
        ],
        left_out_count=max(0, len(logged) - MAX_SERIES),
        tensors_missing=NO_TENSORS,
        missing=None if logged else NO_SCALARS,
    )


def _show_series(series: LoggedScalars, rank: int | None, origin_ns: int) -> ScalarSeries:
    values_per_point, means = downsample_columns(series.value, MAX_POINTS)
    return ScalarSeries(
        name=series.name,
        process=series.process,
        rank=rank,
        statistics=summarize(series.value),
        nan_count=series.nan_count,
        values_per_point=values_per_point,
        after_ns=(series.t_ns[::values_per_point] - origin_ns).tolist(),
        value=nan_to_none(means),
    )
