"""Import of finished windows: one child at a time, with retries, never twice."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from stepscope.monitor.windows import imports as window_imports
from stepscope.monitor.windows.imports import WindowFile, WindowImports

CHILD = """
import fcntl, os, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    print(os.getpriority(os.PRIO_PROCESS, 0), *arguments, file=log)
path = arguments[-1]
verdict = open(path).read().split()
state = path + ".tries"
with open(state, "a") as tries:
    tries.write("x")
done = os.path.getsize(state)
word = verdict[min(done, len(verdict)) - 1]
if word == "slow":
    fcntl.flock(open({gate!r}), fcntl.LOCK_SH)
elif word != "0":
    print("a reason", file=sys.stderr)
    sys.exit(int(word))
"""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[TextIO]:
    """Locked file; a slow child waits until it is closed."""
    with (tmp_path / "gate").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@pytest.fixture
def make(
    tmp_path: Path, gate: TextIO, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WindowImports]:
    """Create imports with a child that does what its file says."""
    monkeypatch.setattr(window_imports, "FIRST_RETRY_S", 0.01)
    (tmp_path / "run").mkdir()
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(log=str(tmp_path / "log"), gate=gate.name))

    def make_imports(**options: object) -> WindowImports:
        command = (sys.executable, "-S", "-E", str(script))
        return WindowImports(str(tmp_path / "run"), "node", command=command, **options)

    return make_imports


def window(tmp_path: Path, verdict: str, number: int = 0, rank: int | None = None) -> WindowFile:
    path = tmp_path / f"window-{number}_77.json"
    path.write_text(verdict)
    return WindowFile(path, "77-1-0", number, rank)


def test_a_window_is_stored_and_its_file_removed(
    make: Callable[..., WindowImports], tmp_path: Path
) -> None:
    imports = make()
    file = window(tmp_path, "0", number=3, rank=1)
    imports.add(file)
    assert imports.is_queued(file.key)
    assert imports.close() == []
    assert imports.stored == {("77-1-0", 3)}
    assert imports.is_idle
    assert not file.path.exists()
    niceness, *arguments = (tmp_path / "log").read_text().split()
    assert niceness in {"19", "0"}  # a quick child reads it before it is set
    assert arguments == [
        *("--run", str(tmp_path / "run"), "--node", "node", "--process", "77-1-0"),
        *("--window", "3", "--rank", "1", str(file.path)),
    ]


def test_the_child_has_the_lowest_priority(
    make: Callable[..., WindowImports], tmp_path: Path, gate: TextIO
) -> None:
    all_cores = os.sched_getaffinity(0)
    job_cores = set(sorted(all_cores)[:1])
    imports = make(job_cores=lambda: job_cores)
    imports.add(window(tmp_path, "slow"))
    imports.poll()
    child = imports.child_pid
    assert child is not None
    assert os.getpriority(os.PRIO_PROCESS, child) == 19
    assert os.sched_getaffinity(child) == (all_cores - job_cores or all_cores)
    gate.close()
    imports.close()


def test_one_child_at_a_time(
    make: Callable[..., WindowImports], tmp_path: Path, gate: TextIO
) -> None:
    imports = make()
    for number in range(3):
        imports.add(window(tmp_path, "slow", number))
    imports.poll()
    first = imports.child_pid
    imports.poll()
    assert imports.child_pid == first
    gate.close()
    imports.close()
    assert len(imports.stored) == 3


def test_a_failed_import_is_retried_unless_the_error_lasts(
    make: Callable[..., WindowImports], tmp_path: Path
) -> None:
    imports = make()
    file, lasting = window(tmp_path, "75 1 0"), window(tmp_path, "75", 1)
    imports.add(file)
    imports.add(file)  # without effect
    assert imports.close() == []
    imports.add(file)
    assert imports.is_idle
    assert imports.stored == {file.key}
    assert imports.last_error is None
    imports.add(lasting)
    assert imports.close() == [lasting]
    assert lasting.path.exists()
    assert imports.last_error == "a reason"


@pytest.mark.parametrize(("verdict", "keep_raw"), [("2", False), ("0", True)])
def test_an_unreadable_file_is_kept_and_others_on_request(
    make: Callable[..., WindowImports], tmp_path: Path, verdict: str, keep_raw: bool
) -> None:
    imports = make(keep_raw=keep_raw)
    file = window(tmp_path, verdict)
    imports.add(file)
    assert imports.close() == []
    assert imports.unreadable == ({} if keep_raw else {file.key: "a reason"})
    (raw_file,) = (tmp_path / "run" / "raw").iterdir()
    assert raw_file.name == "77-1-0-window-0_77.json"
    assert raw_file.read_text() == verdict
    assert not file.path.exists()
