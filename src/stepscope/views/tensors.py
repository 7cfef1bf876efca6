"""`tensors`: numbers that the script logs, and statistics of tensors."""

from __future__ import annotations

import math
import re
from typing import Annotated

import msgspec

from stepscope.analysis import (
    Statistics,
    downsample_columns,
    nan_to_none,
    summarize,
)
from stepscope.run import LoggedScalars, Run, TensorSeries, read_scalars, read_tensors
from stepscope.schema import field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged

MAX_POINTS = 1000
MAX_SERIES = 200
MAX_NORMS = 60
NO_SCALARS = 'nothing was logged: call stepscope.scalar("loss", value) in the training loop'
NO_TENSORS = (
    "no weights or gradients were recorded: run the job with `--tensors weights,gradients,losses`"
)
MAX_TENSORS = 5000


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
    step: list[int] | None
    """Step of each point's first value; null where the values name none."""
    value: list[float | None]
    """Null for a point without a finite value."""


class RecordedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of one process: its values at the last recorded step."""

    name: str
    collection: str
    rank: int | None
    mode: str
    shape: str
    dtype: Annotated[str, field_label("type")]
    record_count: Annotated[int, field_label("recorded steps")]
    step: Annotated[int, field_label("last step")]
    """Last recorded step: the number of steps before it."""
    mean: Annotated[float | None, field_label(unit="none")]
    """Of the finite elements, as are the next four."""
    standard_deviation: Annotated[float | None, field_label(unit="none")]
    min: Annotated[float | None, field_label(unit="none")]
    max: Annotated[float | None, field_label(unit="none")]
    l2: Annotated[float | None, field_label("L2 norm", unit="none")]
    zero_ratio: float | None
    """Share of zeros in all elements."""
    update_ratio: Annotated[float | None, field_label(unit="none")]
    """L2 norm of the change by the optimizer step, divided by that of the tensor."""
    non_finite_count: Annotated[int | None, field_label("NaN and infinite")]
    """Elements that were NaN or infinite, over all recorded steps; null if unknown."""
    l2_by_step: Annotated[
        list[float | None], field_label("L2 norm over steps", unit="none", display="curve")
    ]


class TensorsView(Ranged, frozen=True, kw_only=True):
    """Payload of `tensors`."""

    scalars: list[ScalarSeries]
    left_out_count: Annotated[int, field_label("omitted series")]
    """Series that exceed the limit and are omitted."""
    tensors: list[RecordedTensor]
    """Those with NaN or infinite elements first."""
    left_out_tensor_count: Annotated[int, field_label("omitted tensors")]
    """Tensors that exceed the limit and are omitted."""
    tensors_missing: str | None
    missing: str | None


def show_tensors(run: Run, options: ViewOptions = DEFAULTS) -> TensorsView:
    """Show the numbers that the script logs, and the statistics of tensors."""
    logged = read_scalars(run, options.name)
    series = read_tensors(
        run, None if options.name is None else re.compile(re.escape(options.name))
    )
    tensors = sorted(map(_show_tensor, series), key=lambda tensor: not tensor.non_finite_count)
    ranks = {process.process: process.rank for process in run.processes}
    return TensorsView(
        scalars=[
            _show_series(series, ranks.get(series.process), run.clock.origin_ns)
            for series in logged[:MAX_SERIES]
        ],
        left_out_count=max(0, len(logged) - MAX_SERIES),
        tensors=tensors[:MAX_TENSORS],
        left_out_tensor_count=max(0, len(tensors) - MAX_TENSORS),
        tensors_missing=None if series else NO_TENSORS,
        missing=None if logged or series else NO_SCALARS,
    )


def _show_tensor(series: TensorSeries) -> RecordedTensor:
    def last(reduction: str) -> float | None:
        return nan_to_none(series.reduction(reduction)[-1:])[0]

    non_finite = series.stored["nan_count"].sum() + series.stored["infinite_count"].sum()
    _, norms = downsample_columns(series.reduction("l2"), MAX_NORMS)
    return RecordedTensor(
        name=series.name,
        collection=series.collection,
        rank=series.rank,
        mode=series.mode,
        shape=series.shape,
        dtype=series.dtype,
        record_count=len(series.step),
        step=int(series.step[-1]),
        mean=last("mean"),
        standard_deviation=last("std"),
        min=last("min"),
        max=last("max"),
        l2=last("l2"),
        zero_ratio=last("zero_ratio"),
        update_ratio=last("update_ratio"),
        non_finite_count=None if math.isnan(non_finite) else int(non_finite),
        l2_by_step=nan_to_none(norms),
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
        step=None if series.step is None else series.step[::values_per_point].tolist(),
        value=nan_to_none(means),
    )
