"""The checks of the source fire on what they name, and accept plain terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_source import MAX_FILE_LINES, MAX_FUNCTION_LINES, check_python, check_text, main


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("found = 1", "'found'"),
        ("def load(asked: int) -> None: ...", "'asked'"),
        ("for each in (1, 2): pass", "'each'"),
        ("class Row:\n    own: int", "'own'"),
        ("_kept = 1", "'_kept'"),
        ("MOST_ROWS = 3", "'MOST_ROWS'"),
        ('"""What a row is."""', "'What'"),
        ('def f() -> int:\n    """Whether it works."""', "'Whether'"),
        ("x = 1\n" * (MAX_FILE_LINES + 1), f"{MAX_FILE_LINES + 1} lines"),
        ("def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES, f"{MAX_FUNCTION_LINES + 1} lines"),
    ],
)
def test_a_problem_is_reported_with_its_place(source: str, sentence: str) -> None:
    (problem,) = check_python(source)
    assert sentence in problem.sentence
    assert problem.line >= 1


@pytest.mark.parametrize(
    "source",
    [
        '"""Read model of one run."""\n\nMAX_ROWS = 3\n\n\ndef load(path: str) -> int: ...',
        "x = 1\n" * MAX_FILE_LINES,
        "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1),
        "row.found = 1",
    ],
)
def test_plain_source_passes(source: str) -> None:
    assert list(check_python(source)) == []


def test_archaic_words_are_found_in_any_text() -> None:
    word = "".join(("any", "body"))
    assert [problem.line for problem in check_text(f"one\nTell {word}, {word.title()}.")] == [2, 2]
    assert list(check_text(f"{word}like")) == []


def test_the_exit_status_says_whether_there_are_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "module.py"
    file.write_text("rows = 1\n")
    assert main([str(tmp_path)]) == 0
    file.write_text("rows = 1\nfound = 2\n")
    assert main([str(tmp_path)]) == 1
    assert f"{file}:2: " in capsys.readouterr().out
