"""The few steps under the framework's own profiler: when they are taken, and when not."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.importers.kineto import read_window

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

SCRIPT = Path(__file__).parent / "jobs" / "profiler_windows.py"


@pytest.fixture(scope="module")
def said(module_spool: Any) -> dict[str, Any]:
    """What each situation gave back, with our window."""
    done = module_spool.run(SCRIPT.read_text(), STEPSCOPE_WINDOW="auto")
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def without(module_spool: Any) -> dict[str, Any]:
    """The same without a window."""
    done = module_spool.run(SCRIPT.read_text(), STEPSCOPE_WINDOW="off", STEPSCOPE_SPOOL="")
    return dict(json.loads(line) for line in done.stdout.splitlines())


def windows_in(module_spool: Any, situation: str) -> list[Any]:
    recorded = module_spool.drain()
    (section,) = recorded.of("annotation", name=situation)
    return [r for r in recorded.of("window") if r.inside(section)]


@pytest.mark.parametrize(
    ("situation", "count"),
    [("plain", 1), ("waits_for_data", 0), ("profiles_itself", 0), ("profiles_itself_later", 1)],
)
def test_when_it_opens(said: Any, module_spool: Any, situation: str, count: int) -> None:
    assert len(windows_in(module_spool, situation)) == count
    assert module_spool.drain().notes == []


def test_it_takes_a_few_steps_once(said: Any, module_spool: Any) -> None:
    (window,) = windows_in(module_spool, "plain")
    forwards = [r for r in module_spool.drain().of("forward") if r.inside(window)]
    assert len(forwards) == 3


def test_its_file_is_what_the_importer_reads(said: Any, module_spool: Any) -> None:
    (path,) = module_spool.path.rglob("window-*")
    assert path.name == "window-0.json"
    columns = read_window(path)
    names = set(columns["name"])
    assert {"aten::linear", "aten::addmm"} <= names
    (window,) = windows_in(module_spool, "plain")
    offset = time.time_ns() - time.monotonic_ns()
    operators = columns["start_ns"] - offset
    slack = 50_000_000  # the two clocks are read one after the other
    assert (window.start - slack < operators).all()
    assert (operators < window.end + slack).all()


def test_it_shuts_at_once_for_a_profiler_of_the_jobs_own(said: Any, module_spool: Any) -> None:
    (window,) = windows_in(module_spool, "profiles_itself_later")
    forwards = [r for r in module_spool.drain().of("forward") if r.inside(window)]
    assert len(forwards) < 3


@pytest.mark.parametrize("situation", ["profiles_itself", "profiles_itself_later"])
def test_the_jobs_own_profile_is_what_it_would_be(said: Any, without: Any, situation: str) -> None:
    assert said[situation] == without[situation]
    assert said[situation] not in (0, [0], [])
