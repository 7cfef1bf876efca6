"""Cache of imported runs: what it keeps, and what it removes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stepscope.errors import UnreadableTraceError
from stepscope.schema import SourceFile
from stepscope.store import CachedRun
from stepscope.store.cache import LIMIT_VARIABLE, RECENT_S


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def cached(name: str, *, size_bytes: int = 1, changed_ns: int = 1, version: str = "1") -> CachedRun:
    source = SourceFile(path=f"/{name}", size_bytes=size_bytes, changed_ns=changed_ns)
    return CachedRun([source], version)


def fill(run: CachedRun, *, unused_s: float = 0, size_bytes: int = 1000) -> CachedRun:
    with run.create() as staged:
        staged.mkdir()
        (staged / "run.json").write_bytes(bytes(size_bytes))
    used_s = time.time() - unused_s
    os.utime(run.path, (used_s, used_s))
    return run


def fail_to_fill(run: CachedRun) -> None:
    with run.create() as staged:
        staged.mkdir()
        raise UnreadableTraceError("no trace")


def test_a_run_is_that_of_its_files_and_version() -> None:
    fill(cached("a"))
    assert cached("a").use()
    different = [
        cached("b"),
        cached("a", size_bytes=2),
        cached("a", changed_ns=2),
        cached("a", version="2"),
    ]
    assert not any(run.use() for run in different)


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    run = cached("a")
    with pytest.raises(UnreadableTraceError):
        fail_to_fill(run)
    assert not run.use()
    assert list((tmp_path / "stepscope" / "runs").iterdir()) == []


def test_of_two_processes_that_import_the_same_files_the_first_one_wins() -> None:
    run, competitor = cached("a"), cached("a")
    with run.create() as staged:
        staged.mkdir()
        (staged / "run.json").write_text("second")
        fill(competitor, size_bytes=5)
    assert (run.path / "run.json").stat().st_size == 5


def test_the_least_recently_used_runs_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.0000025")  # 2500 bytes
    runs = [fill(cached(name), unused_s=RECENT_S * age) for name, age in (("a", 4), ("b", 3))]
    assert [run.use() for run in runs] == [True, True]
    for run, age in zip(runs, (3, 4), strict=True):
        used_s = time.time() - RECENT_S * age
        os.utime(run.path, (used_s, used_s))
    latest = fill(cached("c"))
    assert [run.use() for run in (*runs, latest)] == [True, False, True]


def test_a_run_that_a_query_may_be_about_to_open_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    recent = fill(cached("a"))
    fill(cached("b"))
    assert recent.use()


def test_the_rest_of_a_killed_import_is_removed(tmp_path: Path) -> None:
    rest = tmp_path / "stepscope" / "runs" / ".killed"
    rest.mkdir(parents=True)
    os.utime(rest, (0, 0))
    fill(cached("a"))
    assert not rest.exists()
