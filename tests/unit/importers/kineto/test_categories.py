"""Blocks of known categories are decoded in one pass, and to the same columns as otherwise."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from stepscope.importers.kineto import decode
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.categories import KnownCategories
from stepscope.importers.kineto.columns import Chunk
from stepscope.importers.kineto.decode import decode_block
from stepscope.importers.kineto.gather import _STRING_COLUMNS
from tests.support.kineto_files import Event, kernel, memory, op, training

ARROWS: list[Event] = [
    {"ph": phase, "cat": "ac2g", "id": 7, "name": "ac2g", "pid": 1, "tid": 1, "ts": 3}
    for phase in "sff"
]
USUAL = [*(each for each in training() if each["ph"] != "M"), *ARROWS, memory(2, 512)]


def decoded(events: list[Event]) -> Chunk:
    return decode_block(Block(text=msgspec.json.encode(events)[1:-1]))


def assert_same(one: Chunk, other: Chunk) -> None:
    assert one.columns.keys() == other.columns.keys()
    for kind, columns in one.columns.items():
        assert columns.keys() == other.columns[kind].keys()
        for name, values in columns.items():
            found, wanted = values, other.columns[kind][name]
            if name in _STRING_COLUMNS:  # strings are numbered as they are met
                found = np.array([*one.strings, None], dtype=object)[values]
                wanted = np.array([*other.strings, None], dtype=object)[wanted]
            np.testing.assert_array_equal(found, wanted, f"{kind} {name}")
    for name in ("tracks", "metadata", "event_count", "flow_counts", "repaired"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.fixture
def categories(monkeypatch: pytest.MonkeyPatch) -> KnownCategories:
    fresh = KnownCategories()
    monkeypatch.setattr(decode, "_categories", fresh)
    return fresh


@pytest.fixture
def ignorant(monkeypatch: pytest.MonkeyPatch) -> KnownCategories:
    """KnownCategories that were told of none."""
    monkeypatch.setattr("stepscope.importers.kineto.categories._WRITTEN_BY_KINETO", set())
    fresh = KnownCategories()
    monkeypatch.setattr(decode, "_categories", fresh)
    return fresh


def test_a_known_block_is_decoded_in_one_pass(ignorant: KnownCategories) -> None:
    text = msgspec.json.encode(USUAL)
    assert ignorant.decode(text) is None
    first = decoded(USUAL)
    assert ignorant.decode(text) is not None
    assert_same(decoded(USUAL), first)
    assert first.flow_counts == (2, 3)


def test_times_that_numbers_do_not_hold_are_read_as_text(categories: KnownCategories) -> None:
    event = {**op("aten::mm", 0, 0), "dur": msgspec.Raw(b"1.001")}
    for nanosecond in (123, 124):
        event["ts"] = msgspec.Raw(b"1711964646123456.%d" % nanosecond)
        (columns,) = decoded([event]).columns.values()
        assert columns["start"].tolist() == [1_711_964_646_123_456_000 + nanosecond]
        assert columns["duration"].tolist() == [1_001]
        assert categories.decode(msgspec.json.encode([event])) is not None


def test_what_kineto_writes_is_known_from_the_start(
    categories: KnownCategories, request: pytest.FixtureRequest
) -> None:
    assert categories.decode(msgspec.json.encode(USUAL)) is not None
    told = decoded(USUAL)
    request.getfixturevalue("ignorant")
    assert_same(told, decoded(USUAL))


@pytest.mark.parametrize(
    "odd",
    [
        {**op("aten::new", 1, 2), "cat": "category nobody has met"},
        {**op("aten::new", 1, 2), "ph": "B"},
        {**op("aten::new", 1, 2), "args": {"External id": "12"}},
        {**op("aten::new", 1, 2), "args": {"nobody": "knows"}},
        {**op("aten::new", 1, 2), "args": None},
        {**op("aten::new", 1, 2), "tid": 1.5},
        {**kernel(1, 2, 5), "args": {"Collective name": "all_reduce", "Seq": 3}},
        {**memory(2, 512), "name": "something else"},
        {**memory(2, 512), "cat": "other instants"},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ],
)
def test_what_is_odd_is_decoded_as_ever(categories: KnownCategories, odd: Event) -> None:
    first = decoded([*USUAL, odd])
    assert_same(decoded([*USUAL, odd]), first)
    categories.__init__()  # type: ignore[misc]
    decoded(USUAL)
    assert_same(decoded([*USUAL, odd]), first)
    assert_same(decoded([*USUAL, odd]), first)


def test_a_kind_is_known_in_all_its_categories_or_in_none(categories: KnownCategories) -> None:
    other = {**memory(2, 512), "cat": "other instants"}
    instant = {**other, "name": "something else"}
    first = decoded([*USUAL, other, instant])
    categories.__init__()  # type: ignore[misc]
    decoded([*USUAL, instant])
    assert_same(decoded([*USUAL, other, instant]), first)
    assert_same(decoded([*USUAL, other, instant]), first)
