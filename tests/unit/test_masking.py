"""Masking, on command lines with and without secrets (`command_lines/`).

In a line, «…» encloses a secret. Generated ones are described, so that no file holds anything that
looks like a real one: «glpat-~w20» is the prefix and 20 characters of the alphabet `w`.
"""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from stepscope.masking import MASK, mask, mask_text

LINES = Path(__file__).with_name("command_lines")
LOWER, UPPER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
ALPHABETS = {
    "h": DIGITS + "abcdef",
    "w": LOWER + UPPER + DIGITS,
    "b": LOWER + UPPER + DIGITS + "+/",
    "U": UPPER + DIGITS,
    "d": DIGITS,
}
MAX_HARMLESS_SHARE = 0.02
"""Share of harmless lines that may lose a word."""


class Line(NamedTuple):
    command: list[str]
    secrets: list[str]
    rest: str
    """The line without its secrets."""


def read_lines(name: str) -> list[Line]:
    generator = random.Random(name)
    texts = LINES.joinpath(name).read_text(encoding="utf-8").splitlines()
    return [parse(text, generator) for text in texts]


def parse(text: str, generator: random.Random) -> Line:
    secrets: list[str] = []

    def generate(match: re.Match[str]) -> str:
        return "".join(generator.choices(ALPHABETS[match[1]], k=int(match[2])))

    def expand(match: re.Match[str]) -> str:
        secrets.append(re.sub(r"~([hwbUd])(\d+)", generate, match[1]))
        return secrets[-1]

    command = shlex.split(re.sub(r"«(.*?)»", expand, text))
    return Line(command, secrets, re.sub(r"«(.*?)»", "", text))


def leaks(line: Line, masked: list[str]) -> bool:
    """Check whether a third of a secret, from its start or to its end, is left."""
    text = "\n".join(masked)
    return any(
        text.count(part) > line.rest.count(part)
        for secret in line.secrets
        for part in (secret[: max(4, len(secret) // 3)], secret[-max(4, len(secret) // 3) :])
    )


def describe(lines: list[Line]) -> str:
    return "\n".join(
        f"{shlex.join(line.command)} -> {shlex.join(mask(line.command))}" for line in lines
    )


@pytest.mark.parametrize("name", ["leaking.txt", "blind_leaking.txt"])
def test_no_secret_leaks(name: str) -> None:
    leaking = [line for line in read_lines(name) if leaks(line, mask(line.command))]
    assert not leaking, describe(leaking)


@pytest.mark.parametrize("name", ["harmless.txt", "blind_harmless.txt"])
def test_harmless_lines_stay(name: str) -> None:
    lines = read_lines(name)
    changed = [line for line in lines if mask(line.command) != line.command]
    assert len(changed) <= MAX_HARMLESS_SHARE * len(lines), describe(changed)


@pytest.mark.parametrize("name", ["leaking.txt", "blind_leaking.txt"])
def test_words_beside_a_secret_stay(name: str) -> None:
    lines = read_lines(name)
    changed = [
        line
        for line in lines
        if any(
            word != masked and not any(part in word for s in line.secrets for part in s.split())
            for word, masked in zip(line.command, mask(line.command), strict=True)
        )
    ]
    assert len(changed) <= MAX_HARMLESS_SHARE * len(lines), describe(changed)


@pytest.mark.parametrize("name", ["leaking.txt", "harmless.txt"])
def test_masking_again_changes_nothing(name: str) -> None:
    for line in read_lines(name):
        masked = mask(line.command)
        assert mask(masked) == masked


def test_a_shell_command_is_masked_like_its_words() -> None:
    """`--on-finding` gets one text."""
    lines = [line for line in read_lines("leaking.txt") if "'" not in "".join(line.command)]
    leaking = [line for line in lines if leaks(line, [mask_text(shlex.join(line.command))])]
    assert not leaking, describe(leaking)


@pytest.mark.parametrize(
    "text",
    ['x="a b" ' * 9, '"' * 9000 + "a b" + '"' * 9000, "a" * 20_000, "a/" * 10_000, "a='" * 3000],
    ids=["value in quotes", "deep quotes", "long word", "long path", "open quotes"],
)
def test_any_text_ends(text: str) -> None:
    assert mask_text(text) == text
    assert mask([text]) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "next_token = logits.argmax(-1)",
        "token = tokens[index]",
        "for token in tokens: counts[token] += 1",
        "password = getpass.getpass()",
        "key, value = self.projection(x).chunk(2)",
        "x = x.view(batch, heads, -1)[:, key_index]",
    ],
)
def test_source_without_literals_stays(text: str) -> None:
    assert mask_text(text) == text


def test_a_literal_in_source_is_masked() -> None:
    assert mask_text("api_key = 'squirrel'") == f"api_key = '{MASK}'"
