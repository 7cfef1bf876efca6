"""The journal, truncated in every way that a kill or a full disk can cause."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from stepscope.spool import Journal, read_journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path / "journal.jsonl"))


def texts(journal: Journal, offset: int = 0) -> list[object]:
    return [line.get("text") for line in read_journal(journal.path, offset)[0]]


def test_lines_come_back_in_order(journal: Journal) -> None:
    journal.write("name", id=1, text="a\nb\r\u2028 \udcff", labels=None)
    journal.write("fact", fact="x", value=object, nothing=None)
    (name, fact), end = read_journal(journal.path)
    assert name == {"k": "name", "id": 1, "text": "a\nb\r\u2028 \udcff", "labels": None}
    assert fact["value"] == repr(object)
    assert end == Path(journal.path).stat().st_size


def test_reading_continues_at_the_offset(journal: Journal) -> None:
    journal.write("note", text="1")
    _, offset = read_journal(journal.path)
    journal.write("note", text="2")
    assert texts(journal, offset) == ["2"]


def test_a_line_cut_by_a_kill_stays_unread_until_it_is_complete(journal: Journal) -> None:
    journal.write("note", text="1")
    journal.write("note", text="2")
    path = Path(journal.path)
    content = path.read_bytes()
    second = content.index(b'{"k": "note", "text": "2"')
    for size in range(second, len(content)):
        path.write_bytes(content[:size])
        lines, offset = read_journal(journal.path)
        assert [line["text"] for line in lines] == ["1"]
        path.write_bytes(content)
        assert texts(journal, offset) == ["2"]


def test_a_line_cut_by_a_full_disk_does_not_corrupt_the_next(journal: Journal) -> None:
    """A real short write: the limit on the file's size ends in the middle of the line."""
    journal.write("note", text="1")
    size = Path(journal.path).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9, hard))
    try:
        with pytest.raises(OSError, match="No space left"):
            journal.write("note", text="cut")
        with pytest.raises(OSError, match="too large"):
            journal.write("note", text="refused")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert Path(journal.path).stat().st_size == size + 9
    journal.write("note", text="2")
    assert texts(journal) == ["1", "2"]


def test_lines_that_are_not_objects_are_skipped(journal: Journal) -> None:
    Path(journal.path).write_bytes(b'[1]\n\xff\xfe\n{"k": "note", "text": "ok"}\n\n7\n')
    assert texts(journal) == ["ok"]
