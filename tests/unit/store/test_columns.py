from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepscope.schema import SPANS
from stepscope.store import DictColumn
from stepscope.store.columns import join_columns, make_batch
from tests.support.store_rows import spans


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
