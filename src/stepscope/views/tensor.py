"""`tensor`: the statistics of one tensor over the steps, and its histograms."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import Float, round_significant
from stepscope.errors import UsageError, name_similar
from stepscope.run import (
    Run,
    TensorSelection,
    aggregate_tensors,
    choose_step_columns,
    list_recorded_tensors,
    read_histograms,
)
from stepscope.schema import field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged
from stepscope.views.tensor_choice import NO_TENSORS, describe_columns, select_tensors

MAX_COLUMNS = 600
MAX_HISTOGRAM_COLUMNS = 300
DIGITS = 4
NO_HISTOGRAMS = "no histograms were recorded: run the job with `--tensor-histograms`"
Curve = Annotated[list[float | None], field_label(unit="none", display="curve")]


class HistogramBin(msgspec.Struct, frozen=True, kw_only=True):
    """Elements between two values, over the steps."""

    low: Annotated[float, field_label(unit="none")]
    high: Annotated[float, field_label(unit="none")]
    share_ratio: Annotated[list[float | None], field_label(display="curve")]
    """Share of the elements of each column."""


class TensorHistogramView(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms over the steps."""

    first_step: Annotated[list[int], field_label(display="identifier")]
    last_step: Annotated[list[int], field_label(display="identifier")]
    columns: str | None
    bins: list[HistogramBin]
    """From the lowest values to the highest; bins are powers of two, and one around zero."""


class TensorView(Ranged, frozen=True, kw_only=True):
    """Payload of `tensor`: columns are recorded steps, or groups of them."""

    name: str
    collection: str | None
    rank: int | None
    mode: str | None
    ranks: Annotated[list[int], field_label(display="identifier")]
    """Ranks that recorded tensors."""
    first_step: Annotated[list[int], field_label(display="identifier")]
    """First recorded step of each column."""
    last_step: Annotated[list[int], field_label(display="identifier")]
    columns: str | None
    """How the steps of a column become one value; null where each column is a step."""
    min: Curve
    """Smallest finite element."""
    max: Curve
    """Largest finite element."""
    mean: Curve
    standard_deviation: Curve
    l2: Annotated[list[float | None], field_label("L2 norm", unit="none", display="curve")]
    update_ratio: Curve
    """L2 norm of the change by the optimizer step, divided by that of the tensor; the largest of a
    column, as are the norm and the next."""
    zero_ratio: Annotated[list[float | None], field_label(display="curve")]
    """Share of zeros in all elements."""
    nan_count: Annotated[list[float | None], field_label("NaN", display="curve")]
    """Elements that were NaN in the steps of the column."""
    infinite_count: Annotated[list[float | None], field_label("infinite", display="curve")]
    histogram: TensorHistogramView | None
    histogram_missing: Annotated[str | None, field_label("histograms")]
    missing: str | None

    text_fields = (
        "name", "collection", "rank", "mode", "columns", "min", "max", "mean",
        "standard_deviation", "l2", "update_ratio", "zero_ratio", "nan_count", "infinite_count",
        "histogram_missing", "missing",
    )  # fmt: skip


def show_tensor(run: Run, options: ViewOptions = DEFAULTS) -> TensorView:
    """Show the statistics of one tensor over the steps, and its histograms."""
    recorded = list_recorded_tensors(run)
    name = options.name or ""
    if recorded.names and name not in recorded.names:
        raise UsageError(f"No tensor is called {name!r}.{name_similar(name, recorded.names)}")
    if not recorded.names:
        selection = TensorSelection(rank=0, mode="TRAIN", tensors=(name,))
    else:
        selection = select_tensors(run, recorded, options.rank, tensors=(name,))
    columns = choose_step_columns(run, selection, MAX_COLUMNS)
    values = aggregate_tensors(
        run,
        selection,
        columns,
        [name],
        [
            ("min", "min"), ("max", "max"), ("mean", "avg"), ("std", "avg"), ("l2", "max"),
            ("update_ratio", "max"), ("zero_ratio", "max"), ("nan_count", "sum"),
            ("infinite_count", "sum"),
        ],
    )  # fmt: skip
    curves = [round_significant(matrix[0], DIGITS) for matrix in values]
    low, high, mean, std, l2, update_ratio, zero_ratio, nan_count, infinite_count = curves
    histogram = _show_histograms(run, selection)
    missing = None
    if not len(columns):
        missing = f"rank {selection.rank} did not record {name}" if recorded.names else NO_TENSORS
    return TensorView(
        name=name,
        collection=recorded.names.get(name),
        rank=selection.rank if recorded.names else None,
        mode=selection.mode if recorded.names else None,
        ranks=recorded.ranks,
        first_step=columns.first_step.tolist(),
        last_step=columns.last_step.tolist(),
        columns=describe_columns(
            columns.steps_per_column, "mean, for extremes and norms the extreme,"
        ),
        min=low,
        max=high,
        mean=mean,
        standard_deviation=std,
        l2=l2,
        update_ratio=update_ratio,
        zero_ratio=zero_ratio,
        nan_count=nan_count,
        infinite_count=infinite_count,
        histogram=histogram,
        histogram_missing=NO_HISTOGRAMS if histogram is None else None,
        missing=missing,
    )


def _show_histograms(run: Run, selection: TensorSelection) -> TensorHistogramView | None:
    read = read_histograms(run, selection, MAX_HISTOGRAM_COLUMNS)
    if not len(read.columns):
        return None
    shares: Float = read.counts / read.counts.sum(axis=0)
    return TensorHistogramView(
        first_step=read.columns.first_step.tolist(),
        last_step=read.columns.last_step.tolist(),
        columns=describe_columns(read.columns.steps_per_column, "mean"),
        bins=[
            HistogramBin(
                low=float(low), high=float(high), share_ratio=round_significant(share, DIGITS)
            )
            for low, high, share in zip(read.low, read.high, shares, strict=True)
        ],
    )
