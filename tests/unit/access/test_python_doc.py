"""docs/python.md: its examples give what they print."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from stepscope.access import OpenRun

DOC = Path(__file__).parents[3] / "docs" / "python.md"


def test_examples_print_what_they_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "RUN").unlink(missing_ok=True)
    (path.parent / "RUN").symlink_to(path)
    monkeypatch.chdir(path.parent)
    result = doctest.testfile(str(DOC), module_relative=False)
    assert result.attempted > 30
    assert result.failed == 0


def test_every_question_is_in_it() -> None:
    text = DOC.read_text()
    members = [name for name in dir(OpenRun) if not name.startswith("_")]
    missing = [name for name in members if not re.search(rf"\b{name}\b", text)]
    assert missing == []
