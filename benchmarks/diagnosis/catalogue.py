"""Scenarios: training scripts that say in a comment at their top what is planted in them.

The label is TOML between `# /// scenario` and `# ///`, as PEP 723 has it for dependencies. A file
without one is no scenario. Keys, all but those of one of the two kinds optional:

    healthy      true: nothing is planted
    suspect      what the job waits for: one of the suspects of a verdict
    cause        the cause within it, or a list of causes that are planted at once, the largest
                 first
    stage        what the largest stage of the verdict must be about
    accept       "suspect/cause" pairs that are as right
    fix          what --fixed does, in words that an advice would use; one for each cause
    severities   values for --severity, from mild to severe; default [1.0]
    neighbours   processes beside the job that are always busy, per unit of severity
    ranks        processes that train together, default 1
    cpu_limit    cores that a control group allows the job, divided by the severity
    quick        part of the ten-minute subset
    held_out     written by somebody who did not know the rules of the verdict, and not looked at
                 by those who work on them; once looked at, it is held out no more
    drawn        the script does not train: it writes the record of a job that this machine cannot
                 run, into the run directory that --run names

The script takes --severity, --seed and --fixed, and prints its mean step as `12.3 ms a step` and
the samples in it as `steps of 32 samples`. Where neighbours or a limit are planted, --fixed is
that they are gone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec

from stepscope.diagnosis.verdict import Suspect

HERE = Path(__file__).resolve().parent / "scenarios"
_BLOCK = re.compile(r"^# /// scenario\n(?P<label>(?:#(?: .*)?\n)+?)# ///$", re.MULTILINE)


class ScenarioError(Exception):
    """A label that cannot be read."""


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is planted in a script; see above."""

    suspect: Suspect = "healthy"
    cause: str | list[str] = "none"
    healthy: bool = False
    stage: str | None = None
    accept: list[str] = []
    fix: str | list[str] = []
    severities: list[float] = msgspec.field(default_factory=lambda: [1.0])
    neighbours: float = 0.0
    ranks: int = 1
    cpu_limit: float | None = None
    quick: bool = False
    held_out: bool = False
    drawn: bool = False

    @property
    def causes(self) -> list[str]:
        """The largest first."""
        return [self.cause] if isinstance(self.cause, str) else self.cause

    @property
    def fixes(self) -> list[str]:
        """One for each cause."""
        return [self.fix] if isinstance(self.fix, str) else self.fix

    @property
    def right(self) -> set[tuple[str, str]]:
        """Suspect and cause, as a right verdict may have them."""
        pairs: set[tuple[str, str]] = {(self.suspect, self.causes[0])}
        for pair in self.accept:
            suspect, _, cause = pair.partition("/")
            pairs.add((suspect, cause))
        return pairs


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A script and its label."""

    name: str
    path: Path
    label: Label


def find(directories: Iterable[Path]) -> list[Scenario]:
    """All scenarios in these directories, by name.

    Raises:
        ScenarioError: a label is wrong, or two scenarios have one name.
    """
    found: dict[str, Scenario] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.py")):
            label = read_label(path.read_text(), str(path))
            if label is None:
                continue
            if path.stem in found:
                raise ScenarioError(f"{path} and {found[path.stem].path} have the same name")
            found[path.stem] = Scenario(name=path.stem, path=path, label=label)
    return [found[name] for name in sorted(found)]


def one_of_each_cause(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Of those that plant the same the quick one, or the first by name; and all healthy ones."""
    chosen: dict[tuple[str, ...], Scenario] = {}
    for scenario in sorted(scenarios, key=lambda each: (not each.label.quick, each.name)):
        label = scenario.label
        planted = (scenario.name,) if label.healthy else (label.suspect, *label.causes)
        chosen.setdefault(planted, scenario)
    return sorted(chosen.values(), key=lambda each: each.name)


def read_label(text: str, place: str) -> Label | None:
    """The label of a script, None without one.

    Args:
        place: where the text is from, for the error.

    Raises:
        ScenarioError: it does not parse, or contradicts itself.
    """
    block = _BLOCK.search(text)
    if block is None:
        return None
    lines = [line.removeprefix("#").removeprefix(" ") for line in block["label"].splitlines()]
    try:
        label = msgspec.convert(tomllib.loads("\n".join(lines)), Label)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{place}: the label cannot be read: {error}") from error
    wrong = _contradiction(label)
    if wrong is not None:
        raise ScenarioError(f"{place}: {wrong}")
    return label


def without_label(text: str) -> str:
    """A script as its user wrote it; lines keep their numbers."""
    return _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text, count=1)


def _contradiction(label: Label) -> str | None:
    if label.healthy != (label.suspect == "healthy") or label.healthy != (label.causes == ["none"]):
        return "either `healthy = true`, or a suspect and a cause"
    if label.suspect == "insufficient_evidence":
        return "no verdict is no label"
    if not label.healthy and len(label.fixes) != len(label.causes):
        return f"{len(label.causes)} causes and {len(label.fixes)} fixes; one for each is needed"
    if not label.severities:
        return "no severities"
    for suspect, cause in label.right:
        if suspect not in get_args(Suspect) or not cause:
            return f"accept: '{suspect}/{cause}' is no suspect/cause"
    return None
