"""Labels of fields: from names, from annotations and from the strings below the fields."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from stepscope.schema import FieldLabel, field_label, labels_of, make_schemas, structs_in, title_of


class Base(msgspec.Struct, kw_only=True):
    busy_ns: int
    """Time with work,
    as an integer."""


class Row(Base, kw_only=True, rename={"ratio": "share"}):
    depth: Annotated[float | None, field_label("mean depth", unit="count")] = None
    ratio: Annotated[float, field_label(display="bar")] = 0
    """Share of the total."""
    rank: int | None = None


class Toy(msgspec.Struct, kw_only=True):
    rows: list[Row] | None
    by_name: dict[str, Row]
    pairs: tuple[tuple[Row, Base], ...]
    level_curve: list[float]


def test_labels() -> None:
    assert labels_of(Row) == {
        "busy_ns": FieldLabel(
            title="busy", unit="ns", description="Time with work, as an integer."
        ),
        "depth": FieldLabel(title="mean depth", unit="count"),
        "ratio": FieldLabel(
            title="ratio", unit="ratio", display="bar", description="Share of the total."
        ),
        "rank": FieldLabel(title="rank", unit="none", display="identifier"),
    }
    assert labels_of(Toy)["level_curve"].display == "curve"
    assert structs_in([Toy, Row]) == [Toy, Row, Base]


def test_labels_of_a_struct_without_source() -> None:
    struct = msgspec.defstruct("Unseen", [("wait_ns", int)], module="nowhere")
    assert labels_of(struct) == {"wait_ns": FieldLabel(title="wait", unit="ns")}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("launch_count", "launches"),
        ("gpu_count", "GPUs"),
        ("epoch_count", "epochs"),
        ("try_count", "tries"),
        ("play_count", "plays"),
        ("box_count", "boxes"),
        ("process_count", "processes"),
        ("matched_count", "matched"),
        ("count", "count"),
        ("mean_mfu_ratio", "mean MFU"),
        ("bytes", "bytes"),
        ("tensor_cores", "Tensor Cores"),
    ],
)
def test_titles_of_names(name: str, title: str) -> None:
    assert title_of(name) == title


def test_schemas_have_the_labels() -> None:
    (reference, _), components = make_schemas([Toy, Row], "{name}")
    assert reference == {"$ref": "Toy"}
    assert components["Row"]["properties"]["share"] == {
        "type": "number",
        "default": 0,
        "title": "ratio",
        "description": "Share of the total.",
        "x-unit": "ratio",
        "x-display": "bar",
    }
    assert {"title": "mean depth", "x-unit": "count"}.items() <= components["Row"]["properties"][
        "depth"
    ].items()
    assert components["Toy"]["properties"]["by_name"]["title"] == "by name"
