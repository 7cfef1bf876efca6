"""`tensor-heat`: one number of many tensors over the steps, such as the norms of gradients."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import REDUCTIONS, round_significant
from stepscope.errors import UsageError
from stepscope.run import (
    Run,
    aggregate_tensors,
    choose_step_columns,
    list_columns,
    list_recorded_tensors,
)
from stepscope.schema import field_label
from stepscope.views.names import list_names
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged
from stepscope.views.tensor_choice import NO_TENSORS, describe_columns, select_tensors

MAX_COLUMNS = 600
MAX_ROWS = 400
MAX_CELLS = 80_000
DIGITS = 4
"""Significant digits of a value."""


class TensorHeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor."""

    name: str
    value: Annotated[list[float | None], field_label(unit="none", display="curve")]
    """By column; null where it was not recorded or has no finite element."""
    non_finite_columns: Annotated[
        list[int], field_label("columns with NaN or infinite", display="identifier")
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
    ranks: Annotated[list[int], field_label(display="identifier")]
    """Ranks that recorded tensors."""
    first_step: Annotated[list[int], field_label(display="identifier")]
    """First recorded step of each column."""
    last_step: Annotated[list[int], field_label(display="identifier")]
    """Last recorded step of each column."""
    columns: str | None
    """How the steps of a column become one value; null where each column is a step."""
    rows: list[TensorHeatRow]
    """In the order in which they were recorded, which is that of the optimizer's parameters."""
    left_out_count: Annotated[int, field_label("omitted tensors")]
    """Tensors that exceed the limit and are omitted."""
    missing: str | None

    text_fields = (
        "collection", "reduction", "rank", "mode", "collections", "columns", "rows",
        "left_out_count", "missing",
    )  # fmt: skip


def show_tensor_heat(run: Run, options: ViewOptions = DEFAULTS) -> TensorHeatView:
    """Show one number of all tensors of a collection over the steps."""
    reduction = options.reduction or "l2"
    if reduction not in REDUCTIONS:
        raise UsageError(f"{reduction!r} is no reduction; choose one of {', '.join(REDUCTIONS)}.")
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
        raise UsageError(
            f"No collection is called {options.collection}; available: {list_names(collections)}."
        )
    default = "gradients" if "gradients" in collections else collections[0]
    collection = options.collection or default
    selection = select_tensors(run, recorded, options.rank, collections=(collection,))
    names = [name for name, group in recorded.names.items() if group == collection]
    shown = names[:MAX_ROWS]
    columns = choose_step_columns(run, selection, min(MAX_COLUMNS, MAX_CELLS // len(shown)))
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
                value=round_significant(values[row], DIGITS),
                non_finite_columns=non_finite[row],
            )
            for row, name in enumerate(shown)
        ],
        left_out_count=len(names) - len(shown),
        missing=None if len(columns) else f"rank {selection.rank} recorded no {collection}",
    )
