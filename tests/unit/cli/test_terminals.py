"""Text for terminals that are not UTF-8, pipes of a known width, and terminals without styles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli import COMMANDS
from stepscope.cli.rules import FIRED
from stepscope.cli.text import console, table
from stepscope.views import VIEWS
from tests.support.access_run import draw
from tests.support.command import run_command

TEXTS = [
    ["diagnose", "run"],
    *(["show", "run", view] for view in VIEWS if not VIEWS[view].needs),
    ["compare", "run", "run"],
    ["cost", "run"],
    ["rules", "list"],
    ["rules", "explain", "LowGPUUtilization"],
    ["rules", "check", "run"],
    ["watch", "run"],
    *([command, "--help"] for command in COMMANDS),
]
IMPORTANT = [["diagnose", "run"], ["show", "run", "steps"], ["rules", "--help"], ["diagnose", "ü…"]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("terminals")
    draw(directory / "run").open()
    return directory


def test_every_text_can_be_written_in_ascii(directory: Path) -> None:
    for arguments in TEXTS:
        done = run_command(directory, *arguments, encoding="ascii")
        assert done.returncode in {0, FIRED}, arguments
        for line in (done.stdout + done.stderr).splitlines():
            assert line.isascii()
            assert "\\" not in line, f"spell a character of {arguments}"
            assert line == line.rstrip(), f"{arguments} has trailing blanks"


def test_names_of_users_are_escaped(directory: Path) -> None:
    for name, text in (("run…", "run..."), ("a\udcffb", "a\\udcffb"), ("中", "\\u4e2d")):
        done = run_command(directory, "diagnose", name, encoding="ascii")
        assert done.returncode == 2
        assert f" {text} does not exist" in done.stderr
    assert "中 does not exist" in run_command(directory, "diagnose", "中").stderr
    assert "a\\udcffb does not exist" in run_command(directory, "diagnose", "a\udcffb").stderr


def test_latin_1(directory: Path) -> None:
    for arguments in IMPORTANT:
        done = run_command(directory, *arguments, encoding="latin-1")
        expected = run_command(directory, *arguments)
        assert done.returncode == expected.returncode
        assert ("·" in done.stdout) == ("·" in expected.stdout)
    assert "ü..." in done.stderr


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_a_process_in_an_ascii_locale(directory: Path, variables: dict[str, str]) -> None:
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} | variables
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "diagnose", "run"],
        capture_output=True,
        cwd=directory,
        env=environment,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    bar = next(line for line in done.stdout.splitlines() if b"data wait" in line)
    assert b"####" in bar
    assert done.stdout.isascii()


def test_json_is_utf_8(directory: Path) -> None:
    verdict = run_command(directory, "diagnose", "run", "--json").stdout
    assert not verdict.isascii()
    assert run_command(directory, "diagnose", "run", "--json", encoding="ascii").stdout == verdict
    markdown = ["compare", "run", "run", "--markdown", "-"]
    document = run_command(directory, *markdown).stdout
    assert run_command(directory, *markdown, encoding="ascii").stdout == document


def test_columns_stay_aligned() -> None:
    lines = run_narrow_table("utf-8"), run_narrow_table("ascii")
    for ours, plain in zip(*lines, strict=True):
        assert len(ours) == len(plain)
    assert "abcdefghijk..." in lines[1][1]


def run_narrow_table(encoding: str) -> list[str]:
    """Print a table whose name is cut in a process, so that its streams can be replaced."""
    code = (
        "from stepscope.cli.streams import prepare_streams; prepare_streams()\n"
        "from stepscope.cli.text import console, table\n"
        "rows = table('name', 'time', 'count')\n"
        "rows.add_row('abcdefghijklmnopqrstuvwxyz', '1 µs', '4')\n"
        "rows.add_row('b', '123,456 µs', '12')\n"
        "console().print(rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "32"},
        timeout=60,
    )
    return done.stdout.decode(encoding).splitlines()


@pytest.mark.parametrize("columns", [60, 140, None])
def test_a_pipe_is_as_wide_as_columns(
    directory: Path, monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    width = columns or 100
    text = run_command(directory, "diagnose", "run").stdout
    lines = [line for line in text.splitlines() if "stepscope" not in line]  # not broken: to paste
    assert width - 20 < max(map(len, lines)) <= width


@pytest.mark.parametrize("columns", ["0", "-5", "many", ""])
def test_an_unusable_width_is_ignored(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console().width == 100


def test_no_color_means_no_escape(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in run_command(directory, "diagnose", "run").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in IMPORTANT:
        assert "\x1b" not in run_command(directory, *arguments).stdout, arguments


def test_blanks_inside_a_line_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("a", "b")
    rows.add_row("", "1")
    rows.add_row("x", "")
    out = console()
    out.print(rows)
    out.print("  indented  ", "words  ")
    assert capsys.readouterr().out == "a  b\n   1\nx\n  indented   words\n"
