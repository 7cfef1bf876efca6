"""Keys of files in a run, and the columns of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepscope.schema import SPANS
from stepscope.store import DictColumn, layout
from stepscope.store.engine import join_columns, make_batch
from stepscope.store.layout import Segment
from tests.support.store_rows import spans


def make_segment(first: int, last: int, node: str = "n") -> Segment:
    return Segment("spans", node, first, last)


def ranges(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(segment.first, segment.last) for segment in segments]


def test_keys() -> None:
    assert layout.node_key("gpu-01.example") == "nodes/gpu-01.example/node.json"
    assert layout.status_key("gpu-01") == "nodes/gpu-01/status.json"
    assert layout.process_key("12-34-0") == "processes/12-34-0.json"
    assert layout.document_key("findings", "verdict") == "findings/verdict.json"
    assert make_segment(0, 15).key == "tables/spans/n/00000000-00000015.parquet"
    for kind in ("nodes", "processes", "tables"):
        with pytest.raises(ValueError, match="not a kind of document"):
            layout.document_key(kind, "x")


NAMES = ["a", "A", "a/b", "a%2Fb", ".a", "%2Ea", "..", "ü", "a b", "'", "a=b", "\ud800", "*", "\0"]


def test_file_names_can_be_decoded() -> None:
    encoded = {name: layout.encode_file_name(name) for name in NAMES}
    assert {layout.decode_file_name(name) for name in encoded.values()} == set(NAMES)
    for text in encoded.values():
        assert not text.startswith(".")
        assert "/" not in text
    with pytest.raises(ValueError, match="empty"):
        layout.encode_file_name("")


def test_segment_keys_round_trip() -> None:
    for segment in (
        make_segment(0, 0),
        make_segment(16, 31, "a/ü"),
        make_segment(123456789, 123456789),
        Segment("spans", "n", 0, 15, coarseness=2),
    ):
        assert layout.parse_segment(segment.key) == segment
    names = ("notes.txt", "1-2.parquet", "00000005-00000001.parquet", "00000000-00000000.parquet.t")
    for key in ("run.json", *(f"tables/spans/n/{name}" for name in names)):
        assert layout.parse_segment(key) is None


def test_a_covering_segment_hides_what_it_covers() -> None:
    files = [make_segment(*edges) for edges in ((0, 0), (1, 1), (0, 15), (15, 15), (16, 16))]
    assert ranges(layout.select_visible(files)) == [(0, 15), (16, 16)]
    assert ranges(layout.find_covered(files)) == [(0, 0), (1, 1), (15, 15)]
    nested = [make_segment(*edges) for edges in ((16, 31), (0, 255), (17, 17), (256, 256))]
    assert ranges(layout.select_visible(nested)) == [(0, 255), (256, 256)]
    of_nodes = [make_segment(0, 15, "a"), make_segment(3, 3, "b")]
    assert layout.select_visible(of_nodes) == of_nodes


def test_gaps() -> None:
    assert ranges(layout.find_gaps([make_segment(0, 15), make_segment(16, 16)])) == []
    assert ranges(layout.find_gaps([make_segment(2, 2), make_segment(5, 5)])) == [(0, 1), (3, 4)]
    assert layout.find_gaps([make_segment(0, 0, "a"), make_segment(1, 1, "b")]) == [
        make_segment(0, 0, "b")
    ]


def test_sixteen_merge_into_one() -> None:
    (merge,) = layout.plan_merges([make_segment(i, i) for i in range(20)])
    assert merge.target == make_segment(0, 15)
    assert ranges(list(merge.sources)) == [(i, i) for i in range(16)]


def test_a_coarser_segment_hides_the_finer_one_of_its_range() -> None:
    files = [make_segment(0, 15), Segment("spans", "n", 0, 15, 1), Segment("spans", "n", 0, 15, 2)]
    assert layout.select_visible(files) == files[2:]
    assert layout.find_covered(files) == files[:2]


def test_only_equally_coarse_segments_merge() -> None:
    files = [Segment("spans", "n", 16 * i, 16 * i + 15, int(i < 15)) for i in range(16)]
    assert layout.plan_merges(files) == []
    files[15] = Segment("spans", "n", 240, 255, 1)
    (merge,) = layout.plan_merges(files)
    assert merge.target == Segment("spans", "n", 0, 255, 1)


def test_a_group_with_a_gap_stays_and_its_neighbors_merge() -> None:
    files = [make_segment(i, i) for i in range(40) if i != 5]
    assert [merge.target for merge in layout.plan_merges(files)] == [make_segment(16, 31)]


def test_ten_hours_of_flushes_keep_few_segments() -> None:
    segments: list[Segment] = []
    max_count = 0
    for number in range(10 * 3600 // 5):
        segments.append(make_segment(number, number))
        while merges := layout.plan_merges(segments):
            for merge in merges:
                segments = [s for s in segments if s not in merge.sources] + [merge.target]
        max_count = max(max_count, len(segments))
        assert not layout.find_gaps(segments[:0])
    assert layout.find_gaps(segments) == []
    assert max_count < 60


def test_encode_and_decode() -> None:
    column = DictColumn.encode(["b", None, "a", "b"])
    assert column.values == ["b", "a"]
    assert column.codes.tolist() == [0, -1, 1, 0]
    assert column.decode().tolist() == ["b", None, "a", "b"]
    assert DictColumn.constant("x", 2).decode().tolist() == ["x", "x"]
    assert DictColumn.constant(None, 1).decode().tolist() == [None]
    assert DictColumn.encode([]).decode().tolist() == []


def test_only_strings_in_use_are_sent() -> None:
    interned = [f"name {i}" for i in range(10_000)]
    name = DictColumn(np.array([9_999, 3, 3], dtype=np.int32), interned)
    batch = make_batch(SPANS, spans([0, 1, 2], name=name))
    assert '["name 3","name 9999"]' in batch.dictionaries


INVALID_COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "length": ({"depth": np.zeros(2, np.int16)}, "differ in length"),
    "unknown column": ({"colour": np.zeros(3)}, r"unknown columns \['colour'\]"),
    "strings as objects": ({"name": np.array(["a", "b", "c"], object)}, "spans.name: strings"),
    "numbers as strings": ({"seq": DictColumn.constant("1", 3)}, "spans.seq: strings"),
    "float for integer": ({"value": np.zeros(3)}, "spans.value: float64"),
    "bool for integer": ({"value": np.zeros(3, bool)}, "spans.value: bool"),
    "two dimensions": ({"value": np.zeros((3, 3), np.int64)}, "2 dimensions"),
    "overflow": ({"flags": np.array([0, 0, 40_000])}, "does not fit SMALLINT"),
    "unsigned overflow": ({"value": np.array([0, 0, 2**63], np.uint64)}, "does not fit BIGINT"),
    "null number": ({"value": np.ma.MaskedArray([1, 2, 3], mask=[0, 1, 0])}, "spans.value: null"),
    "null code": ({"name": DictColumn(np.array([0, -1, 0], np.int32), ["a"])}, "spans.name: null"),
    "null value": ({"name": DictColumn.constant(None, 3)}, "spans.name: null"),
    "code too large": ({"name": DictColumn(np.array([0, 1, 0], np.int32), ["a"])}, "outside"),
    "code too small": ({"name": DictColumn(np.array([0, -2, 0], np.int32), ["a"])}, "outside"),
    "codes are floats": ({"name": DictColumn(np.zeros(3), ["a"])}, "integers"),
    "values are numbers": ({"name": DictColumn(np.zeros(3, np.int32), [1])}, "strings or None"),
}


@pytest.mark.parametrize(
    ("changed", "message"), INVALID_COLUMNS.values(), ids=INVALID_COLUMNS.keys()
)
def test_an_invalid_column_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_batch(SPANS, spans([0, 1, 2], **changed))


def test_a_missing_column_is_named() -> None:
    columns = spans([0])
    del columns["log"]
    with pytest.raises(ValueError, match=r"missing columns \['log'\]"):
        make_batch(SPANS, columns)


def test_masked_values_are_ignored() -> None:
    end = np.ma.MaskedArray(np.array([5, 2**64 - 1], np.uint64), mask=[False, True])
    assert make_batch(SPANS, spans([0, 1], end_ns=end)).row_count == 2


def test_narrow_and_strided_numbers_are_accepted() -> None:
    strided = np.arange(6, dtype=np.int8)[::2]
    batch = make_batch(SPANS, spans([0, 1, 2], value=strided, depth=strided))
    assert {str(array.dtype) for array in batch.arrays.values()} >= {"int64", "int16"}
    assert all(array.flags["C_CONTIGUOUS"] for array in batch.arrays.values())


def test_rows_of_several_batches() -> None:
    texts = [["a", None, "b"], [], ["c", "a"], [None, None]]
    numbers = [[1, None, 3], [], [4, 5], [None, None]]
    parts = []
    for words, counts in zip(texts, numbers, strict=True):
        values = np.array([count or 0 for count in counts], dtype=np.int64)
        mask = [count is None for count in counts]
        parts.append(
            {
                "name": DictColumn.encode(words),
                "count": np.ma.MaskedArray(values, mask=mask) if any(mask) else values,
                "id": values + 7,
            }
        )
    joined = join_columns(parts)
    assert joined["name"].decode().tolist() == [text for words in texts for text in words]
    assert joined["name"].values == ["a", "b", "c"]
    assert joined["count"].tolist() == [count for counts in numbers for count in counts]
    assert joined["id"].tolist() == [7 + (n or 0) for counts in numbers for n in counts]
    assert join_columns(parts[:1]) is parts[0]
