"""Imported files have what they have: nothing shown of them advises to record something."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stepscope.cli import root
from stepscope.diagnosis import diagnose
from stepscope.errors import UsageError
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.profiling_report import choose_report_rules, make_report
from tests.support.debugger_files import DebuggerOutput, event, operator, sample, step
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
    params=[write_samples, write_steps, write_operators, write_trace], ids=lambda w: w.__name__
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    write: Callable[[Path], None] = request.param
    write(tmp_path / "files")
    arguments = ["import", str(tmp_path / "files"), "-o", str(tmp_path / "run")]
    root.main(arguments, standalone_mode=False)
    return Run(open_run(tmp_path / "run"))


def find_advice(payload: object) -> list[str]:
    text = msgspec.json.encode(payload).decode()
    return [text[max(0, m.start() - 80) : m.end() + 40] for m in ADVICE.finditer(text)]


def test_views(run: Run) -> None:
    for name, view in VIEWS.items():
        for options in (ViewOptions(), ViewOptions(by="shape"), ViewOptions(by="stack")):
            try:
                payload = view(run, options)
            except UsageError:  # a view of one event, or without groups
                continue
            assert find_advice(payload) == [], name


def test_report_verdict_and_rules(run: Run) -> None:
    assert run.is_imported
    assert find_advice(make_report(run, choose_report_rules()).sections) == []
    assert find_advice(diagnose(run)) == []
    assert find_advice(check_rules(run.reader, choose_rules()).findings) == []
