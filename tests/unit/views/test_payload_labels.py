"""Labels of all payloads: every field has a title and a unit."""

from __future__ import annotations

import inspect
import runpy
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from stepscope.schema import labels_of, structs_in
from stepscope.schema.units import Unit

GENERATOR = runpy.run_path(str(Path(__file__).parents[3] / "web" / "api_types.py"))
STRUCTS = structs_in(
    payload for by_name in GENERATOR["payloads"]().values() for payload in by_name.values()
)


def schema_text(type_: Any) -> str:
    (schema,), _ = msgspec.json.schema_components([type_])
    return msgspec.json.encode(schema).decode()


def has_numbers(type_: Any) -> bool:
    return any(f'"{kind}"' in schema_text(type_) for kind in ("integer", "number"))


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__qualname__)
def test_every_field_has_a_title_and_numbers_have_a_unit(struct: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(struct):
        label = labels_of(struct)[field.name]
        assert label.title.strip()
        assert label.unit in get_args(Unit)
        hints = getattr(msgspec.inspect.type_info(field.type), "extra_json_schema", None) or {}
        assert (
            label.unit != "none"
            or "x-unit" in hints
            or label.display == "identifier"
            or not has_numbers(field.type)
        ), (
            f"The field {field.name} of {struct.__name__} has no unit: end its name in one, or "
            f"annotate it with field_label(unit=...), in {inspect.getsourcefile(struct)}."
        )


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__qualname__)
def test_values_next_to_each_other_have_different_titles(struct: type[msgspec.Struct]) -> None:
    values = [
        labels_of(struct)[field.name].title
        for field in msgspec.structs.fields(struct)
        if '"array"' not in schema_text(field.type)
    ]
    assert [title for title, count in Counter(values).items() if count > 1] == []
