"""Payloads as tables, CSV and workbooks, read back by other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import openpyxl
import pytest

from stepscope.errors import UsageError
from stepscope.exporters import ViewTable, choose_table, tabulate, write_csv, write_workbook
from stepscope.exporters.view_tables import MAX_EXACT, MAX_ROWS, MAX_TEXT_LENGTH
from stepscope.run import Run
from stepscope.schema import FieldLabel
from stepscope.views import VIEWS
from tests.support.kineto_files import trace, training

LABEL = FieldLabel(title="", unit="none")


class Call(msgspec.Struct, kw_only=True):
    shape: list[int] = []
    total_ns: int | None = None


class Times(msgspec.Struct, kw_only=True):
    mean_ns: float
    max_ns: int


class Kernel(msgspec.Struct, kw_only=True):
    name: str
    times: Times | None = None
    calls: list[Call] = []
    children: list[Kernel] = []


class Trace(msgspec.Struct, kw_only=True):
    rank: int | None
    trace: str
    kernels: list[Kernel] = []
    by_phase: dict[str, int] = {}


class Payload(msgspec.Struct, kw_only=True):
    share_of: str = "all"
    traces: list[Trace] = []


class Group(msgspec.Struct, kw_only=True):
    calls: list[Call]


class Groups(msgspec.Struct, kw_only=True):
    groups: list[Group]


def tables_of(payload: msgspec.Struct) -> dict[str, ViewTable]:
    return {table.name: table for table in tabulate(payload)}


def test_lists_are_tables_and_rows_repeat_their_owners() -> None:
    kernels = [
        Kernel(name="a", times=Times(mean_ns=1.5, max_ns=2), calls=[Call(shape=[2, 3]), Call()]),
        Kernel(name="b", times=Times(mean_ns=math.nan, max_ns=4), calls=[Call(total_ns=7)]),
    ]
    payload = Payload(
        traces=[
            Trace(rank=0, trace="x", kernels=kernels, by_phase={"forward": 5}),
            Trace(rank=None, trace="y", kernels=kernels[:1]),
        ]
    )
    tables = tables_of(payload)
    assert list(tables) == ["summary", "traces", "kernels", "kernels.calls", "by_phase"]
    assert tables["summary"].rows == [{"share_of": "all"}]
    assert tables["traces"].rows == [{"rank": 0, "trace": "x"}, {"rank": None, "trace": "y"}]
    assert list(tables["kernels"].labels) == [
        "rank", "trace", "name", "times.mean_ns", "times.max_ns",
    ]  # fmt: skip
    assert [list(row.values()) for row in tables["kernels"].rows] == [
        [0, "x", "a", 1.5, 2], [0, "x", "b", None, 4], [None, "y", "a", 1.5, 2],
    ]  # fmt: skip
    assert tables["kernels.calls"].rows[0] == {
        "rank": 0, "trace": "x", "name": "a", "shape": "[2,3]", "total_ns": None,
    }  # fmt: skip
    assert tables["by_phase"].rows == [{"rank": 0, "trace": "x", "key": "forward", "value": 5}]
    assert tables["kernels"].labels["times.max_ns"].unit == "ns"


def test_children_of_children_are_one_table() -> None:
    leaf = Kernel(name="leaf")
    root = Kernel(name="root", children=[Kernel(name="inner", children=[leaf]), leaf])
    rows = tables_of(Trace(rank=1, trace="x", kernels=[root]))["kernels.children"].rows
    names = [(row["parent.name"], row["name"]) for row in rows]
    assert names == [("root", "inner"), ("inner", "leaf"), ("root", "leaf")]
    assert all(row["rank"] == 1 for row in rows)


def test_rows_without_a_name_are_numbered() -> None:
    tables = tables_of(Groups(groups=[Group(calls=[Call()]), Group(calls=[Call(), Call()])]))
    assert [row["row"] for row in tables["groups.calls"].rows] == [0, 1, 1]
    assert [row["row"] for row in tables["groups"].rows] == [0, 1]


@pytest.fixture(scope="module")
def run(imported: Callable[..., Run]) -> Run:
    return imported(**{f"rank{n}": trace(*training(), distributedInfo={"rank": n}) for n in (0, 1)})


def test_a_table_has_a_row_for_every_object_of_the_payload(run: Run) -> None:
    for payload in (view(run) for view in VIEWS.values() if not view.needs):
        objects: dict[str, int] = {}
        _count_objects(msgspec.to_builtins(payload), payload, "", objects)
        tables = tabulate(payload)
        assert {table.name: len(table.rows) for table in tables} == objects
        assert all(set(row) <= set(table.labels) for table in tables for row in table.rows)


def _count_objects(plain: Any, value: Any, path: str, objects: dict[str, int]) -> None:
    """Count the elements of lists of structs and of mappings by path, over the JSON form."""
    if not path:
        objects["summary"] = 1
    for field in value.__struct_fields__:
        inner, inner_path = getattr(value, field), f"{path}.{field}".lstrip(".")
        if path.rpartition(".")[2] == field:
            inner_path = path
        if isinstance(inner, msgspec.Struct):
            _count_objects(plain[field], inner, inner_path, objects)
            continue
        items = list(inner.values()) if isinstance(inner, dict) else inner
        is_table = isinstance(inner, dict) or (
            isinstance(items, list) and items and isinstance(items[0], msgspec.Struct)
        )
        if is_table:
            table = inner_path.removeprefix("traces.")
            objects[table] = objects.get(table, 0) + len(plain[field])
            for item, plain_item in zip(items, plain[field], strict=True):
                if isinstance(item, msgspec.Struct):
                    _count_objects(plain_item, item, inner_path, objects)


@pytest.mark.parametrize("name", VIEWS)
def test_the_main_table_of_a_view_is_in_its_payload(name: str) -> None:
    payload = VIEWS[name].payload
    definitions = msgspec.json.schema(payload)["$defs"]

    def structs_at(schema: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the structs of a field, of its items, or of the alternatives of either."""
        reference = schema.get("$ref", "").rpartition("/")[2]
        if reference:
            return [definitions[reference]]
        inner = [schema.get("items") or {}, *schema.get("anyOf", ())]
        return [struct for part in inner if part for struct in structs_at(part)]

    def has(structs: list[dict[str, Any]], path: list[str]) -> bool:
        fields = [s["properties"][path[0]] for s in structs if path[0] in s.get("properties", {})]
        if len(path) > 1:
            return any(has(structs_at(field), path[1:]) for field in fields)
        return any("array" in str(field) for field in fields)

    path = (VIEWS[name].table or name).split(".")
    top = [definitions[payload.__name__]]
    assert path == ["summary"] or has(top, path) or has(top, ["traces", *path])


def test_choice_of_a_table() -> None:
    class Payload(msgspec.Struct):
        missing: str | None = None

    labels = {"a": LABEL}
    tables = [
        ViewTable(name="summary", labels=labels, rows=[{}]),
        ViewTable(name="steps", rows=[]),
        ViewTable(name="traces", labels=labels, rows=[{}, {}]),
    ]
    assert choose_table(Payload(), tables, "gpu-time", None).name == "traces"
    assert choose_table(Payload("no step"), tables, "steps", "summary").name == "summary"
    with pytest.raises(UsageError, match="steps of this run has no rows: no step"):
        choose_table(Payload("no step"), tables, "steps", None)
    for name in (None, "steps"):  # never another one in its place
        with pytest.raises(
            UsageError, match=r"no table 'steps' with rows. Choose one .*--table: summary, traces"
        ):
            choose_table(Payload(), tables, "steps", name)


CELLS = ["plain", 'a "b", c', "two\nlines", "=cmd()", "@sum", "-3", "", "ü", None, True, -3, 0.1]


def test_csv_is_read_back() -> None:
    table = ViewTable(name="t", labels={"x": LABEL, "y": LABEL})
    table.rows = [{"x": cell, "y": 1} for cell in CELLS] + [{"y": 2}]
    file = io.BytesIO()
    write_csv(file, table)
    header, *rows = csv.reader(io.StringIO(file.getvalue().decode(), newline=""))
    assert header == ["x", "y"]
    assert [row[0] for row in rows] == [
        *("plain", 'a "b", c', "two\nlines", "'=cmd()", "'@sum", "'-3", "", "ü", "", "true"),
        *("-3", "0.1", ""),
    ]
    assert [row[1] for row in rows] == ["1"] * len(CELLS) + ["2"]


def test_workbook_is_read_back(tmp_path: Path) -> None:
    label = FieldLabel(title="time", unit="ns", description="It is long.")
    table = ViewTable(name="t", labels={"x": LABEL, "time_ns": label})
    values = [*CELLS, MAX_EXACT, MAX_EXACT + 1, "x" * (MAX_TEXT_LENGTH + 1), "http://a.b"]
    table.rows = [{"x": value, "time_ns": 5} for value in values]
    with (tmp_path / "x.xlsx").open("wb") as file:
        write_workbook(file, {"a/b" * 20: table, "A/b" * 20: table})
    book = openpyxl.load_workbook(tmp_path / "x.xlsx")
    first, second, columns = book.sheetnames
    assert first == ("a-b" * 20)[:31]
    assert second == ("A-b" * 20)[:29] + "~2"
    rows = list(book[first].iter_rows(values_only=True))
    assert rows[0] == ("x", "time_ns")
    expected = [None if value == "" else value for value in CELLS]
    expected += [MAX_EXACT, str(MAX_EXACT + 1), "x" * (MAX_TEXT_LENGTH - 1) + "…", "http://a.b"]
    assert [row[0] for row in rows[1:]] == expected
    assert book[first]["A5"].data_type == "s"  # not a formula
    explained = list(book[columns].iter_rows(values_only=True))
    assert explained[2] == (first, "time_ns", "time", "ns", "It is long.")


def test_a_table_longer_than_a_worksheet() -> None:
    table = ViewTable(name="events", labels={"x": LABEL}, rows=[{}] * (MAX_ROWS + 1))
    with pytest.raises(UsageError, match="events has 1,048,576 rows, and a worksheet 1,048,575"):
        write_workbook(io.BytesIO(), {"events": table})
