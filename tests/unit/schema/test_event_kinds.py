"""Declarations of kinds of events: complete, and consistent with the tables."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import msgspec
import pytest

from stepscope.importers.kineto.tables import check_sources
from stepscope.schema import EVENT_KINDS, Argument, EventKind, ExportedKey, Table, event_kind
from stepscope.schema.event_declaration import check_kinds
from stepscope.schema.table import column


def changed(name: str, **changes: Any) -> tuple[EventKind, ...]:
    """Return all kinds, one of them with changes."""
    replacement = msgspec.structs.replace(event_kind(name), **changes)
    return tuple(replacement if kind.name == name else kind for kind in EVENT_KINDS)


def with_column(table: Table, name: str) -> Table:
    return dataclasses.replace(
        table, columns=(*table.columns, column(name, "BIGINT NULL", "A number."))
    )


OPERATOR = event_kind("operator")
BROKEN = {
    "kernel: 'cpu_op' is a category of operator, too": changed(
        "kernel", categories=("kernel", "cpu_op")
    ),
    "operator: the table operators lacks nonsense": changed(
        "operator",
        arguments=(Argument(key="Nonsense", type="integer", column="nonsense"),),
        export=("Nonsense",),
    ),
    "runtime_call: the table runtime_calls lacks on_moon": changed(
        "runtime_call", constants={"on_moon": 0}
    ),
    "operator: export: 'Nonsense' is no argument with a column": changed(
        "operator", export=("Nonsense",)
    ),
    "operator: export lacks 'Fwd thread id', which is stored": changed(
        "operator", export=tuple(key for key in OPERATOR.export if key != "Fwd thread id")
    ),
    "runtime_call: no constant column distinguishes runtime_call, driver_call": changed(
        "driver_call", constants=event_kind("runtime_call").constants
    ),
    "kernel: the events of streams are device work": changed("kernel", drawing="nested"),
    "device_annotation: shadows are stored in the table annotations": changed(
        "device_annotation", table=OPERATOR.table
    ),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_entry_is_an_error_that_names_the_file(problem: str) -> None:
    with pytest.raises(ValueError, match=r"schema/event_kinds\.py") as raised:
        check_kinds(BROKEN[problem])
    assert problem in str(raised.value)


def test_a_column_without_a_source_is_an_error_that_names_the_file() -> None:
    kinds = changed("operator", table=with_column(OPERATOR.table, "surplus"))
    with pytest.raises(ValueError, match=r"schema/tables/operators\.py: .* the column surplus"):
        check_sources(kinds)


def test_a_constant_of_one_of_two_kinds_is_not_enough() -> None:
    kinds = changed("driver_call", constants={})
    with pytest.raises(ValueError, match=r"schema/tables/runtime_calls\.py: .* the column driver"):
        check_sources(kinds)


def test_a_kind_stays_itself_in_another_process() -> None:
    for kind in EVENT_KINDS:
        assert pickle.loads(pickle.dumps(kind)) is kind  # noqa: S301


def test_plain_keys_are_exported_as_their_arguments_are_read() -> None:
    keys = {key.key: key for key in OPERATOR.exported_keys}
    assert keys["Input Dims"] == ExportedKey(key="Input Dims", form="json", column="input_dims")
    assert keys["Sequence number"] == ExportedKey(
        key="Sequence number", form="number", column="sequence"
    )
