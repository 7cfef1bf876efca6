"""docs/seeds.md: every feature of the replaced tools has a test."""

from __future__ import annotations

from collections import Counter

from tools.docs.seeds import MARK, describe_evidence, find_marked_tests, read_marks, read_rows


def test_every_row_has_evidence() -> None:
    rows, tests = read_rows(), find_marked_tests()
    ids = [row for features in rows.features.values() for row in features]
    without = [row for row in ids if not describe_evidence(row, rows, tests)]
    assert without == [], "mark the tests that show these rows"


def test_ids_belong_to_rows() -> None:
    rows, tests = read_rows(), find_marked_tests()
    ids = Counter(row for features in rows.features.values() for row in features)
    assert max(ids.values()) == 1
    assert ids.keys() >= set().union(rows.commands, *rows.not_yet.values())
    for test in tests:
        assert test.ids, test.name
        assert set(test.ids) <= ids.keys(), test.name


def test_marks_are_read_from_source() -> None:
    source = f"""
pytestmark = [pytest.mark.slow, {MARK}("A-1")]

@pytest.mark.slow
@{MARK}("A-2", "A-3")
def test_a(): ...

@{MARK}("B-1")
class TestB:
    @{MARK}("B-2")
    async def test_c(self): ...
    def test_d(self): ...
"""
    assert dict(read_marks(source)) == {
        None: ["A-1"],
        "test_a": ["A-2", "A-3"],
        "TestB": ["B-1"],
        "test_c": ["B-2"],
    }
