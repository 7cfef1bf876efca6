"""The budget of CPU time measures tests with their children, and fails a session above it."""

from __future__ import annotations

import pytest

from tests.support import cpu_budget
from tests.support.cpu_budget import Budget

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.support.cpu_budget import REASONS, Budget, CpuBudget

def pytest_configure(config):
    for mark in REASONS:
        config.addinivalue_line("markers", mark)
    budget = Budget(limit={limit}, folders={{"cheap": 1, "busy": {busy}}})
    plugin = CpuBudget(budget, slow_folders={slow_folders}, reason_above_s=0.1)
    config.pluginmanager.register(plugin)
"""
BUSY = """
import subprocess, sys, time
import pytest

SPIN = "import time\\nwhile time.process_time() < 0.3: pass"

{mark}
def test_busy():
    start_s = time.process_time()
    exec(SPIN.replace("0.3", str(start_s + 0.3)))
    subprocess.run([sys.executable, "-c", SPIN], check=True)
"""


def write_tests(
    pytester: pytest.Pytester,
    *,
    limit: float,
    busy: float,
    mark: str = "",
    slow_folders: tuple[str, ...] = (),
) -> None:
    content = CONFTEST.format(limit=limit, busy=busy, slow_folders=slow_folders)
    pytester.makeconftest(content)
    for folder, content in (("cheap", "def test_cheap(): ..."), ("busy", BUSY.format(mark=mark))):
        directory = pytester.mkdir(folder)
        (directory / f"test_{folder}.py").write_text(content)


REASON = "@pytest.mark.slow('it burns CPU time')"


@pytest.mark.parametrize(("workers", "mark", "slow_folders"), [(0, REASON, ()), (1, "", ("busy",))])
def test_a_session_within_its_budget_shows_what_it_spent(
    pytester: pytest.Pytester, workers: int, mark: str, slow_folders: tuple[str, ...]
) -> None:
    write_tests(pytester, limit=3, busy=2, mark=mark, slow_folders=slow_folders)
    result = pytester.runpytest("-n", str(workers))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["*CPU seconds, spent and given*", "busy *  2", "cheap *  1", "sum*  3"]
    )
    (busy, cheap) = (float(line.split()[1]) for line in result.outlines[-4:-2])
    assert 0.55 < busy < 1.5, "0.3 s each of the test and its child"
    assert cheap < 0.3


@pytest.mark.parametrize(
    ("limit", "busy", "mark", "problem"),
    [
        (3, 0.3, REASON, "busy: * CPU seconds are more than 1.5 times 0"),
        (0.3, 2, REASON, "sum, and limit of the tier: * CPU seconds are more than 1.5 times 0"),
    ],
    ids=["folder", "tier"],
)
def test_a_session_that_spent_too_much_fails(
    pytester: pytest.Pytester, limit: float, busy: float, mark: str, problem: str
) -> None:
    write_tests(pytester, limit=limit, busy=busy, mark=mark)
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([problem])


@pytest.mark.parametrize("mark", ["", "@pytest.mark.slow"], ids=["no-reason", "empty-reason"])
def test_a_test_without_a_reason_is_named(pytester: pytest.Pytester, mark: str) -> None:
    write_tests(pytester, limit=3, busy=2, mark=mark)
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["busy/test_busy.py::test_busy took * CPU seconds: make it*"])


def test_a_file_belongs_to_the_innermost_folder() -> None:
    budget = Budget(limit=1, folders={"tests/unit": 1, "tests/unit/views": 1})
    spent = {
        "tests/unit/views/timeline/test_a.py": 1.0,
        "tests/unit/test_b.py": 2.0,
        "tests/unit/run/test_c.py": 4.0,
    }
    assert budget.sum_folders(spent) == {"tests/unit": 6.0, "tests/unit/views": 1.0}
    with pytest.raises(KeyError, match=cpu_budget.BUDGET.name):
        budget.find_folder("elsewhere/test_d.py")
