"""Labels of all payloads: every field has a title and a unit."""

from __future__ import annotations

import functools
import inspect
import runpy
from collections import Counter
from pathlib import Path
from typing import get_args

import msgspec

from stepscope.schema import labels_of, structs_in
from stepscope.schema.labels import Unit

GENERATOR = runpy.run_path(str(Path(__file__).parents[3] / "web" / "api_types.py"))
STRUCTS = structs_in(
    payload for by_name in GENERATOR["payloads"]().values() for payload in by_name.values()
)


@functools.cache
def schema_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the JSON schema of each field."""
    fields = msgspec.structs.fields(struct)
    schemas, _ = msgspec.json.schema_components([field.type for field in fields])
    return {
        field.name: msgspec.json.encode(schema).decode()
        for field, schema in zip(fields, schemas, strict=True)
    }


def test_every_field_has_a_title_and_numbers_have_a_unit() -> None:
    for struct in STRUCTS:
        for field in msgspec.structs.fields(struct):
            label = labels_of(struct)[field.name]
            assert label.title.strip()
            assert label.unit in get_args(Unit)
            hints = getattr(msgspec.inspect.type_info(field.type), "extra_json_schema", None) or {}
            text = schema_texts(struct)[field.name]
            assert (
                label.unit != "none"
                or "x-unit" in hints
                or label.display == "identifier"
                or not ('"integer"' in text or '"number"' in text)
            ), (
                f"The field {field.name} of {struct.__name__} has no unit: end its name in one, or "
                f"annotate it with field_label(unit=...), in {inspect.getsourcefile(struct)}."
            )


def test_values_next_to_each_other_have_different_titles() -> None:
    for struct in STRUCTS:
        texts, labels = schema_texts(struct), labels_of(struct)
        values = [labels[name].title for name, text in texts.items() if '"array"' not in text]
        assert [title for title, count in Counter(values).items() if count > 1] == [], struct
