"""Parts of `make test-all` that take about equally long, dealt by the recorded cost of each file.

A file stays in one part, so that its tests share what their fixtures record. Environments of
frameworks are those of the last part, checks of the source those of the first.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COSTS = ROOT / "tests" / "costs.json"
FRAMEWORKS = "tests/frameworks"
CHECKS_S = 150.0
ENVIRONMENTS_S = 240.0
"""Seconds in which the environments of the frameworks are made."""


def read_costs() -> dict[str, float]:
    """Return the cost of each test file: seconds of its tests, by the number of workers."""
    costs: dict[str, float] = defaultdict(float)
    for recorded in json.loads(COSTS.read_text()).values():
        for file, seconds in recorded.items():
            costs[file] += seconds
    usual = statistics.median(costs.values())
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))
    return {file: costs.get(file, usual) for file in files}


def deal(costs: dict[str, float], count: int) -> list[set[str]]:
    """Deal files to parts: the most expensive first, each to the part with the least so far."""
    parts: list[set[str]] = [set() for _ in range(count)]
    sums = [0.0] * count
    sums[0] += CHECKS_S
    sums[-1] += ENVIRONMENTS_S
    for file, seconds in sorted(costs.items(), key=lambda item: (-item[1], item[0])):
        part = count - 1 if file.startswith(FRAMEWORKS) else sums.index(min(sums))
        parts[part].add(file)
        sums[part] += seconds
    return parts


@dataclass(frozen=True)
class Part:
    """One of `count` parts, from 1 on."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read `2/6`. Raises ValueError."""
        number, count = map(int, text.split("/"))
        if not 1 <= number <= count:
            raise ValueError(text)
        return cls(number, count)

    @cached_property
    def costs(self) -> dict[str, float]:
        return read_costs()

    @cached_property
    def files(self) -> set[str]:
        return deal(self.costs, self.count)[self.number - 1]

    def share_of(self, folder: str) -> float:
        """Return the share of a folder's cost that this part has."""
        costs = {file: s for file, s in self.costs.items() if file.startswith(f"{folder}/")}
        return sum(costs[file] for file in costs.keys() & self.files) / sum(costs.values())

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out files of other parts before they are imported."""
        file = collection_path.relative_to(ROOT).as_posix()
        return True if file in self.costs and file not in self.files else None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Accept that a part may have no test of a kind."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK


class CostRecorder:
    """Plug-in that writes the cost of the files of a session, by the marks that it selects."""

    def __init__(self, workers: int, marks: str) -> None:
        self.workers = workers
        self.marks = marks
        self.costs: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.costs[report.nodeid.partition("::")[0]] += report.duration / self.workers

    def pytest_sessionfinish(self) -> None:
        """Replace what was recorded of these files, and forget files that are gone."""
        recorded = json.loads(COSTS.read_text())
        session = recorded.get(self.marks, {}) | self.costs
        recorded[self.marks] = {
            file: round(seconds, 1) for file, seconds in session.items() if (ROOT / file).exists()
        }
        COSTS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
