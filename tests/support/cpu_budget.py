"""CPU time of the tests against tests/budget.toml, so that people go on running `make test`.

CPU time rather than wall time, so that a busy machine fails nothing: of the process that runs a
test, and of its children that have ended, since the end of the test before it.
"""

from __future__ import annotations

import resource
import tomllib
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable
from pathlib import Path, PurePosixPath

import msgspec
import pytest

from tests.support.forked_jobs import FORKS
from tests.support.parts import Part

BUDGET = Path(__file__).parents[1] / "budget.toml"
TOLERANCE = 1.5
"""Factor above a budget from which a session fails, because machines differ."""
REASON_ABOVE_S = 2.0
"""CPU time of one test above which it has to carry a reason."""
REASONS = ("slow", "extended")
"""Marks whose argument is the reason."""


class Budget(msgspec.Struct, forbid_unknown_fields=True):
    """CPU seconds of one tier."""

    limit: float
    folders: dict[str, float]

    def find_folder(self, file: str) -> str:
        """Return the innermost folder of a file that has a budget. Raises KeyError."""
        parents = map(str, PurePosixPath(file).parents)
        folder = next((parent for parent in parents if parent in self.folders), None)
        if folder is None:
            raise KeyError(f"{file} is in no folder of {BUDGET.name}")
        return folder

    def sum_folders(self, spent: dict[str, float]) -> dict[str, float]:
        """Return CPU seconds by folder, from those by file."""
        sums: dict[str, float] = defaultdict(float)
        for file, seconds in spent.items():
            sums[self.find_folder(file)] += seconds
        return dict(sorted(sums.items()))


class Budgets(msgspec.Struct, forbid_unknown_fields=True):
    """Content of budget.toml."""

    reasons: dict[str, str]
    """Why tests are slow, by folder; tests elsewhere say it themselves."""
    tiers: dict[str, Budget]
    """Budgets by the goal of make."""


def read_budgets() -> Budgets:
    """Read tests/budget.toml."""
    return msgspec.convert(tomllib.loads(BUDGET.read_text()), Budgets)


class CpuBudget:
    """Plug-in that measures each test, prints a table, and fails a session that spent too much."""

    def __init__(
        self,
        budget: Budget,
        part: Part | None = None,
        *,
        slow_folders: Collection[str] = (),
        reason_above_s: float = REASON_ABOVE_S,
    ) -> None:
        self.budget = budget
        self.part = part
        self.slow_folders = tuple(f"{folder}/" for folder in slow_folders)
        self.reason_above_s = reason_above_s
        self.spent: dict[str, float] = defaultdict(float)  # by file
        self.tests: dict[str, float] = defaultdict(float)  # without a reason, by node id
        self.problems: list[str] = []
        self._last_s = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._last_s = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = _cpu_seconds()
        report.cpu_s, self._last_s = now_s - self._last_s, now_s
        report.has_reason = report.nodeid.startswith(self.slow_folders) or any(
            mark.args for name in REASONS for mark in item.iter_markers(name)
        )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what workers measured."""
        if not hasattr(report, "cpu_s"):  # the worker died
            return
        self.spent[report.nodeid.partition("::")[0]] += report.cpu_s
        # The first test sets up what many share, so that only the test itself counts here.
        if report.when == "call" and not report.has_reason:
            self.tests[report.nodeid] += report.cpu_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        self.problems = self._find_excesses()
        if self.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("CPU seconds, spent and given")
        for name, spent_s, given_s in self._rows():
            terminalreporter.write_line(f"{name:28}{spent_s:8.1f}{given_s:8.0f}")
        for problem in self.problems:
            terminalreporter.write_line(problem, red=True)
        for note in self._find_unexplained():
            terminalreporter.write_line(note, yellow=True)

    def _rows(self) -> Iterable[tuple[str, float, float]]:
        sums = self.budget.sum_folders(self.spent)
        for folder, spent_s in sums.items():
            share = self.part.share_of(folder) if self.part else 1.0
            yield folder, spent_s, share * self.budget.folders[folder]
        share = self.part.share_of("tests") if self.part else 1.0
        yield "sum, and limit of the tier", sum(sums.values()), share * self.budget.limit

    def _find_excesses(self) -> list[str]:
        return [
            f"{name}: {spent_s:.0f} CPU seconds are more than {TOLERANCE} times {given_s:.0f}"
            for name, spent_s, given_s in self._rows()
            if spent_s > TOLERANCE * given_s
        ]

    def _find_unexplained(self) -> list[str]:
        return [
            f"{test} took {seconds:.1f} CPU seconds: make it cheaper, or mark it slow(reason)"
            for test, seconds in self.tests.items()
            if seconds > TOLERANCE * self.reason_above_s
        ]


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + FORKS.cpu_s
