"""Scenarios: training scripts with a label that describes the planted cause.

The label is TOML in a comment at the top, between `# /// scenario` and `# ///`, as in PEP 723. A
file without a label is not a scenario. Either `healthy` or `suspect` and `cause` are required:

    healthy      true: nothing is planted
    suspect      what the job waits for: one of the suspects of a verdict
    cause        the cause within it, or a list of simultaneous causes, largest first
    stage        a word that the name of the largest stage of the verdict must contain
    accept       "suspect/cause" pairs that are correct as well
    fix          effect of --fixed in the words of a suggestion; one per cause
    severities   values for --severity, from mild to severe; default [1.0]
    neighbours   busy processes outside the job, per unit of severity
    ranks        number of ranks, default 1
    cpu_limit    CPU limit of the job's cgroup in cores, divided by the severity
    quick        true: part of the ten-minute subset
    held_out     true: written without knowledge of the rules of the verdict, and not read by
                 developers of these rules; a script that was read is no longer held out
    drawn        "run" or "traces": the script does not train; it draws a run, or traces, of a job
                 that this machine cannot execute, and writes it into the directory of --run

The script accepts --severity, --seed and --fixed, and prints its mean step time as `12.3 ms a step`
and the batch size as `steps of 32 samples`. In scenarios with neighbours or a CPU limit, the fixed
run omits these.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import msgspec

from stepscope.diagnosis.verdict import Suspect

HERE = Path(__file__).resolve().parent / "scenarios"
_BLOCK = re.compile(r"^# /// scenario\n(?P<label>(?:#(?: .*)?\n)+?)# ///$", re.MULTILINE)


class ScenarioError(Exception):
    """Invalid label."""


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Label of a script; see above."""

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
    drawn: Literal["run", "traces"] | None = None

    @property
    def causes(self) -> list[str]:
        """Planted causes, largest first."""
        return [self.cause] if isinstance(self.cause, str) else self.cause

    @property
    def fixes(self) -> list[str]:
        """Fixes, one per cause."""
        return [self.fix] if isinstance(self.fix, str) else self.fix

    @property
    def right(self) -> set[tuple[str, str]]:
        """Pairs of suspect and cause that count as correct."""
        pairs: set[tuple[str, str]] = {(self.suspect, self.causes[0])}
        for pair in self.accept:
            suspect, _, cause = pair.partition("/")
            pairs.add((suspect, cause))
        return pairs


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Script with its label."""

    name: str
    path: Path
    label: Label


def find_scenarios(directories: Iterable[Path]) -> list[Scenario]:
    """Find the scenarios in some directories, sorted by name.

    Raises:
        ScenarioError: a label is invalid, or two scenarios have the same name.
    """
    scenarios: dict[str, Scenario] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.py")):
            label = parse_label(path.read_text(), str(path))
            if label is None:
                continue
            if path.stem in scenarios:
                raise ScenarioError(f"{path} and {scenarios[path.stem].path} have the same name")
            scenarios[path.stem] = Scenario(name=path.stem, path=path, label=label)
    return [scenarios[name] for name in sorted(scenarios)]


def select_one_per_cause(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Select one scenario per cause (the quick one, or the first by name) and all healthy ones."""
    by_cause: dict[tuple[str, ...], Scenario] = {}
    for scenario in sorted(
        scenarios, key=lambda scenario: (not scenario.label.quick, scenario.name)
    ):
        label = scenario.label
        planted = (scenario.name,) if label.healthy else (label.suspect, *label.causes)
        by_cause.setdefault(planted, scenario)
    return sorted(by_cause.values(), key=lambda scenario: scenario.name)


def parse_label(text: str, source: str) -> Label | None:
    """Parse the label of a script; None if it has none.

    Args:
        source: path of the script, for the error.

    Raises:
        ScenarioError: the label is invalid or contradictory.
    """
    block = _BLOCK.search(text)
    if block is None:
        return None
    lines = [line.removeprefix("#").removeprefix(" ") for line in block["label"].splitlines()]
    try:
        label = msgspec.convert(tomllib.loads("\n".join(lines)), Label)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{source}: the label cannot be read: {error}") from error
    problem = _find_contradiction(label)
    if problem is not None:
        raise ScenarioError(f"{source}: {problem}")
    return label


def strip_label(text: str) -> str:
    """Remove the label from a script; line numbers do not change."""
    return _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text, count=1)


def _find_contradiction(label: Label) -> str | None:
    if label.healthy != (label.suspect == "healthy") or label.healthy != (label.causes == ["none"]):
        return "set either `healthy = true`, or a suspect and a cause"
    if label.suspect == "insufficient_evidence":
        return "insufficient_evidence is not a label"
    if not label.healthy and len(label.fixes) != len(label.causes):
        return f"{len(label.causes)} causes and {len(label.fixes)} fixes; set one fix per cause"
    if not label.severities:
        return "no severities"
    for suspect, cause in label.right:
        if suspect not in get_args(Suspect) or not cause:
            return f"accept: '{suspect}/{cause}' is not a suspect/cause pair"
    return None
