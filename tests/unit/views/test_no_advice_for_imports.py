"""Imported files have what they have: nothing shown of them advises to record something."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stepscope.diagnosis import diagnose
from stepscope.errors import UsageError
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.run import Run
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.profiling_report import choose_report_rules, make_report
from tests.support.debugger_files import DebuggerOutput, event, operator, sample, step
from tests.support.imported_runs import import_into
from tests.support.kineto_files import trace, training

ADVICE = re.compile(
    r"(?<!not )\b[Rr]ecord (a|the|it|with|again|some|few|one|CUDA|CPU)\b"
    r"|`stepscope (run|capture|doctor)\b|stepscope run --|stepscope\.step\("
)


def write_samples(path: Path) -> None:
    samples = [sample("CPUUtilization", "cpu0", 50, second=second) for second in range(30)]
    DebuggerOutput(path).system("algo-1", samples)


def write_steps(path: Path) -> None:
    events = [step(n, 1000 * n, 900) for n in range(40)]
    events += [event("Forward", "Net", 1000 * n, 500) for n in range(40)]
    DebuggerOutput(path).events("77-algo-1", events)


def write_operators(path: Path) -> None:
    write_steps(path)
    events = [operator("aten::mm", 3000 + 10 * n, 9, step=3) for n in range(30)]
    DebuggerOutput(path).events("77-algo-1", events, suffix="model_timeline")


def write_trace(path: Path) -> None:
    path.mkdir()
    (path / "trace.json").write_bytes(trace(*training()))


@pytest.fixture(
    scope="module",
    params=[write_samples, write_steps, write_operators, write_trace],
    ids=lambda w: w.__name__,
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    write: Callable[[Path], None] = request.param
    directory = tmp_path_factory.mktemp(write.__name__)
    write(directory / "files")
    return import_into(directory / "run", directory / "files")


def find_advice(payload: object) -> list[str]:
    text = msgspec.json.encode(payload).decode()
    return [text[max(0, m.start() - 80) : m.end() + 40] for m in ADVICE.finditer(text)]


def test_views(run: Run) -> None:
    for name, view in VIEWS.items():
        for by in view.by or (None,):
            try:
                payload = view(run, ViewOptions(by=by))
            except UsageError:  # a view of one event
                continue
            assert find_advice(payload) == [], name


def test_report_verdict_and_rules(run: Run) -> None:
    assert run.is_imported
    assert find_advice(make_report(run, choose_report_rules()).sections) == []
    assert find_advice(diagnose(run)) == []
    assert find_advice(check_rules(run.reader, choose_rules()).findings) == []
