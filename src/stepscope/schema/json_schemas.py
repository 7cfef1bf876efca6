"""JSON schemas of payloads, with the labels of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepscope.schema.field_labels import labels_of, structs_in


def make_schemas(
    payloads: Sequence[type[msgspec.Struct]], ref_template: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Make the schemas of payloads, and of all types inside them by name.

    Properties have `title`, `description`, `x-unit` and `x-display` as far as their labels do.

    Args:
        payloads: the types.
        ref_template: reference to another type, with `{name}` for its name.
    """
    schemas, components = msgspec.json.schema_components(payloads, ref_template=ref_template)
    for struct in structs_in(payloads):
        full_name = f"{struct.__module__}.{struct.__qualname__}"
        component = components.get(struct.__name__) or components[full_name]
        for field in msgspec.structs.fields(struct):
            label = labels_of(struct)[field.name]
            entries = {
                "title": label.title,
                "description": label.description,
                "x-unit": label.unit,
                "x-display": label.display,
            }
            component["properties"][field.encode_name] |= {
                key: value for key, value in entries.items() if value is not None
            }
    return list(schemas), components
