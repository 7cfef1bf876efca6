"""Decoding of known categories in one pass gives the same columns as the slow way."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from stepscope.importers.kineto import decode
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.categories import KnownCategories
from stepscope.importers.kineto.columns import Chunk
from stepscope.importers.kineto.decode import decode_block
from stepscope.importers.kineto.gather import STRING_COLUMNS
from tests.support.kineto_files import Event, kernel, memory, op, training

ARROWS: list[Event] = [
    {"ph": phase, "cat": "ac2g", "id": 7, "name": "ac2g", "pid": 1, "tid": 1, "ts": 3}
    for phase in "sff"
]
USUAL = [*(event for event in training() if event["ph"] != "M"), *ARROWS, memory(2, 512)]


def decoded(events: list[Event]) -> Chunk:
    return decode_block(Block(text=msgspec.json.encode(events)[1:-1]))


def assert_same(first: Chunk, second: Chunk) -> None:
    assert first.columns.keys() == second.columns.keys()
    for kind, columns in first.columns.items():
        assert columns.keys() == second.columns[kind].keys()
        for name, values in columns.items():
            actual, expected = values, second.columns[kind][name]
            if name in STRING_COLUMNS:  # codes of strings depend on their order
                actual = np.array([*first.strings, None], dtype=object)[values]
                expected = np.array([*second.strings, None], dtype=object)[expected]
            np.testing.assert_array_equal(actual, expected, f"{kind} {name}")
    for name in ("tracks", "metadata", "event_count", "flow_counts", "repaired"):
        assert getattr(first, name) == getattr(second, name), name


@pytest.fixture
def categories(monkeypatch: pytest.MonkeyPatch) -> KnownCategories:
    fresh = KnownCategories()
    monkeypatch.setattr(decode, "_categories", fresh)
    return fresh


@pytest.fixture
def empty_categories(monkeypatch: pytest.MonkeyPatch) -> KnownCategories:
    """Return a `KnownCategories` without categories."""
    monkeypatch.setattr(decode, "scan_block", lambda *_: None)  # these are of the Python decoder
    monkeypatch.setattr("stepscope.importers.kineto.categories._WRITTEN_BY_KINETO", set())
    fresh = KnownCategories()
    monkeypatch.setattr(decode, "_categories", fresh)
    return fresh


def test_a_known_block_is_decoded_in_one_pass(empty_categories: KnownCategories) -> None:
    text = msgspec.json.encode(USUAL)
    assert empty_categories.decode(text) is None
    first = decoded(USUAL)
    assert empty_categories.decode(text) is not None
    assert_same(decoded(USUAL), first)
    assert first.flow_counts == (2, 3)


def test_inexact_times_are_read_as_text(categories: KnownCategories) -> None:
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
    known_chunk = decoded(USUAL)
    request.getfixturevalue("empty_categories")
    assert_same(known_chunk, decoded(USUAL))


@pytest.mark.parametrize(
    "odd",
    [
        {**op("aten::new", 1, 2), "cat": "new category"},
        {**op("aten::new", 1, 2), "ph": "B"},
        {**op("aten::new", 1, 2), "args": {"External id": "12"}},
        {**op("aten::new", 1, 2), "args": {"unknown": "key"}},
        {**op("aten::new", 1, 2), "args": None},
        {**op("aten::new", 1, 2), "tid": 1.5},
        {**kernel(1, 2, 5), "args": {"Collective name": "all_reduce", "Seq": 3}},
        {**memory(2, 512), "name": "something else"},
        {**memory(2, 512), "cat": "other instants"},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ],
)
def test_odd_events_are_decoded_the_slow_way(categories: KnownCategories, odd: Event) -> None:
    first = decoded([*USUAL, odd])
    assert_same(decoded([*USUAL, odd]), first)
    categories.__init__()  # type: ignore[misc]
    decoded(USUAL)
    assert_same(decoded([*USUAL, odd]), first)
    assert_same(decoded([*USUAL, odd]), first)


def test_a_kind_is_known_in_all_its_categories_or_none(categories: KnownCategories) -> None:
    other_instant = {**memory(2, 512), "cat": "other instants"}
    instant = {**other_instant, "name": "something else"}
    first = decoded([*USUAL, other_instant, instant])
    categories.__init__()  # type: ignore[misc]
    decoded([*USUAL, instant])
    assert_same(decoded([*USUAL, other_instant, instant]), first)
    assert_same(decoded([*USUAL, other_instant, instant]), first)
