"""Help of each command: on one screen, with an example that works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from stepscope.cli import COMMANDS, root
from stepscope.cli.help_texts import EVERYDAY, EXAMPLES
from tests.support.command import run_command
from tests.support.suggested_commands import parse_words

SCREEN_LINES = 40
PAGES = [*COMMANDS, "rules list", "rules explain", "rules check"]


@pytest.mark.parametrize("command", PAGES)
def test_help_fits_on_a_screen_and_has_an_example(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_command(tmp_path, *command.split(), "--help").stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= 80
    at = lines.index("  Example:")
    assert lines[at + 1].split() == ["stepscope", *command.split(), *EXAMPLES[command].split()]


def test_each_example_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("traces", "stepscope-runs", "runs"):
        (tmp_path / directory).mkdir()
    assert EXAMPLES.keys() == set(PAGES)
    for command, example in EXAMPLES.items():
        parse_words([*command.split(), *shlex.split(example)])


@pytest.mark.parametrize("command", EVERYDAY)
def test_all_options_are_shown_on_request(command: str, tmp_path: Path) -> None:
    everyday = run_command(tmp_path, command, "--help").stdout
    complete = run_command(tmp_path, command, "--help-all").stdout
    options = EVERYDAY[command].split()
    assert all(f"{option} " in everyday or f"{option}," in everyday for option in options)
    assert f"stepscope {command} --help-all" in everyday
    assert "--help-all" not in complete.rpartition("Example:")[2]
    module = root.get_command(root.make_context("stepscope", [command]), command)
    assert module is not None
    assert all(option.opts[0] in complete for option in module.params[1:-1])
