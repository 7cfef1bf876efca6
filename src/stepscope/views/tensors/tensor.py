"""`tensor` and `tensor-heat`: statistics of tensors over the steps, of a chosen rank and mode."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import analysis, errors, schema
from stepscope.run import (
    RecordedTensors,
    Run,
    TensorSelection,
    aggregate_tensors,
    choose_step_columns,
    list_columns,
    list_recorded_tensors,
    number_ranks,
    read_histograms,
)
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions, list_names

MAX_COLUMNS = 600
MAX_HISTOGRAM_COLUMNS = 300
DIGITS = 4
NO_HISTOGRAMS = "no histograms were recorded: run the job with `--tensor-histograms`"
Curve = Annotated[list[float | None], schema.field_label(unit="none", display="curve")]


class HistogramBin(msgspec.Struct, frozen=True, kw_only=True):
    """Elements between two values, over the steps."""

    low: Annotated[float, schema.field_label(unit="none")]
    high: Annotated[float, schema.field_label(unit="none")]
    share_ratio: Annotated[list[float | None], schema.field_label(display="curve")]
    """Share of the elements of each column."""


class TensorHistogramView(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms over the steps."""

    first_step: Annotated[list[int], schema.field_label(display="identifier")]
    last_step: Annotated[list[int], schema.field_label(display="identifier")]
    columns: str | None
    bins: list[HistogramBin]
    """From the lowest values to the highest; bins are powers of two, and one around zero."""


class TensorView(Ranged, frozen=True, kw_only=True):
    """Payload of `tensor`: columns are recorded steps, or groups of them."""

    name: str
    collection: str | None
    rank: int | None
    mode: str | None
    ranks: Annotated[list[int], schema.field_label(display="identifier")]
    """Ranks that recorded tensors."""
    first_step: Annotated[list[int], schema.field_label(display="identifier")]
    """First recorded step of each column."""
    last_step: Annotated[list[int], schema.field_label(display="identifier")]
    columns: str | None
    """How the steps of a column become one value; null where each column is a step."""
    min: Curve
    """Smallest finite element."""
    max: Curve
    """Largest finite element."""
    mean: Curve
    standard_deviation: Curve
    l2: Annotated[list[float | None], schema.field_label("L2 norm", unit="none", display="curve")]
    update_ratio: Curve
    """L2 norm of the change by the optimizer step, divided by that of the tensor; the largest of a
    column, as are the norm and the next."""
    zero_ratio: Annotated[list[float | None], schema.field_label(display="curve")]
    """Share of zeros in all elements."""
    nan_count: Annotated[list[float | None], schema.field_label("NaN", display="curve")]
    """Elements that were NaN in the steps of the column."""
    infinite_count: Annotated[list[float | None], schema.field_label("infinite", display="curve")]
    histogram: TensorHistogramView | None
    histogram_missing: Annotated[str | None, schema.field_label("histograms")]
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
        raise errors.UsageError(
            f"No tensor is called {name!r}.{errors.name_similar(name, recorded.names)}"
        )
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
    curves = [analysis.round_significant(matrix[0], DIGITS) for matrix in values]
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
    shares: analysis.Float = read.counts / read.counts.sum(axis=0)
    return TensorHistogramView(
        first_step=read.columns.first_step.tolist(),
        last_step=read.columns.last_step.tolist(),
        columns=describe_columns(read.columns.steps_per_column, "mean"),
        bins=[
            HistogramBin(
                low=float(low),
                high=float(high),
                share_ratio=analysis.round_significant(share, DIGITS),
            )
            for low, high, share in zip(read.low, read.high, shares, strict=True)
        ],
    )


MAX_HEAT_COLUMNS = 600
MAX_ROWS = 400
MAX_CELLS = 80_000
"""Significant digits of a value."""


class TensorHeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor."""

    name: str
    value: Annotated[list[float | None], schema.field_label(unit="none", display="curve")]
    """By column; null where it was not recorded or has no finite element."""
    non_finite_columns: Annotated[
        list[int], schema.field_label("columns with NaN or infinite", display="identifier")
    ]
    """Columns in which an element was NaN or infinite."""

    text_fields = ("name", "value")


class TensorHeatView(Ranged, frozen=True, kw_only=True):
    """Payload of `tensor-heat`."""

    collection: str | None
    reduction: str
    rank: int | None
    mode: str | None
    collections: list[str]
    """Collections that were recorded."""
    ranks: Annotated[list[int], schema.field_label(display="identifier")]
    """Ranks that recorded tensors."""
    first_step: Annotated[list[int], schema.field_label(display="identifier")]
    """First recorded step of each column."""
    last_step: Annotated[list[int], schema.field_label(display="identifier")]
    """Last recorded step of each column."""
    columns: str | None
    """How the steps of a column become one value; null where each column is a step."""
    rows: list[TensorHeatRow]
    """In the order in which they were recorded, which is that of the optimizer's parameters."""
    left_out_count: Annotated[int, schema.field_label("omitted tensors")]
    """Tensors that exceed the limit and are omitted."""
    missing: str | None

    text_fields = (
        "collection", "reduction", "rank", "mode", "collections", "columns", "rows",
        "left_out_count", "missing",
    )  # fmt: skip


def show_tensor_heat(run: Run, options: ViewOptions = DEFAULTS) -> TensorHeatView:
    """Show one number of all tensors of a collection over the steps."""
    reduction = options.reduction or "l2"
    if reduction not in analysis.REDUCTIONS:
        raise errors.UsageError(
            f"{reduction!r} is no reduction; choose one of {', '.join(analysis.REDUCTIONS)}."
        )
    recorded = list_recorded_tensors(run)
    collections = sorted(set(recorded.names.values()))
    if not collections:
        return TensorHeatView(
            collection=None,
            reduction=reduction,
            rank=None,
            mode=None,
            collections=[],
            ranks=[],
            first_step=[],
            last_step=[],
            columns=None,
            rows=[],
            left_out_count=0,
            missing=NO_TENSORS,
        )
    if options.collection not in {None, *collections}:
        raise errors.UsageError(
            f"No collection is called {options.collection}; available: {list_names(collections)}."
        )
    default = "gradients" if "gradients" in collections else collections[0]
    collection = options.collection or default
    selection = select_tensors(run, recorded, options.rank, collections=(collection,))
    names = [name for name, group in recorded.names.items() if group == collection]
    shown = names[:MAX_ROWS]
    columns = choose_step_columns(run, selection, min(MAX_HEAT_COLUMNS, MAX_CELLS // len(shown)))
    values, nan_count, infinite_count = aggregate_tensors(
        run,
        selection,
        columns,
        shown,
        [(reduction, "max"), ("nan_count", "sum"), ("infinite_count", "sum")],
    )
    non_finite = list_columns(nan_count + infinite_count > 0)
    return TensorHeatView(
        collection=collection,
        reduction=reduction,
        rank=selection.rank,
        mode=selection.mode,
        collections=collections,
        ranks=recorded.ranks,
        first_step=columns.first_step.tolist(),
        last_step=columns.last_step.tolist(),
        columns=describe_columns(columns.steps_per_column, "maximum"),
        rows=[
            TensorHeatRow(
                name=name,
                value=analysis.round_significant(values[row], DIGITS),
                non_finite_columns=non_finite[row],
            )
            for row, name in enumerate(shown)
        ],
        left_out_count=len(names) - len(shown),
        missing=None if len(columns) else f"rank {selection.rank} recorded no {collection}",
    )


NO_TENSORS = (
    "no weights or gradients were recorded: run the job with `--tensors weights,gradients,losses`"
)


def select_tensors(
    run: Run,
    recorded: RecordedTensors,
    rank: int | None,
    *,
    collections: tuple[str, ...] = (),
    tensors: tuple[str, ...] = (),
) -> TensorSelection:
    """Select tensors of a rank, by default the first that recorded any, while it trained.

    Raises:
        UsageError: there is no such rank.
    """
    number_ranks(run).require(rank)
    return TensorSelection(
        rank=recorded.ranks[0] if rank is None else rank,
        mode=recorded.modes[0],
        collections=collections,
        tensors=tensors,
    )


def describe_columns(steps_per_column: int, aggregate: str) -> str | None:
    """Explain columns that hold more than one recorded step; None otherwise."""
    if steps_per_column == 1:
        return None
    return f"each column is the {aggregate} of up to {steps_per_column} recorded steps"
