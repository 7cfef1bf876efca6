"""Commands on a trace instead of a run: imported once into the cache, and used from there."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.command import run_command
from tests.support.kineto_files import kernel, launch, op, trace, training

TRACE = trace(op("aten::mm", 0, 900), launch(100, 50, 1), kernel(400, 800, 1))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an empty cache; return the directory of its runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stepscope" / "runs"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Write a file, and a directory of two ranks with other files."""
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(TRACE))
    ranks = tmp_path / "log" / "deep"
    ranks.mkdir(parents=True)
    (ranks / "rank0.json").write_bytes(TRACE)
    (ranks / "rank1.json.gz").write_bytes(gzip.compress(TRACE))
    (ranks / "config.json").write_text('{"ph": 1}')
    (ranks / "notes.txt").write_text("mine")
    return tmp_path


COMMANDS = [
    ["show", "{}", "kernels"],
    ["diagnose", "{}"],
    ["cost", "{}", "--usd-per-hour", "3"],
    ["rules", "check", "{}"],
    ["report", "{}"],
    ["compare", "{}", "{}"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_on_a_trace_shows_what_it_shows_of_its_import(
    traces: Path, command: list[str]
) -> None:
    runs = ["one.json.gz", "one.json.gz"]
    if command[0] == "show":
        assert run_command(traces, "import", "one.json.gz", "-o", "one.json-run").returncode == 0
        runs.append("one.json-run")
    results = [
        run_command(traces, *(word.format(run) for word in command), "--json") for run in runs
    ]
    # `rules check` exits with 3 where a rule fires.
    assert {result.returncode for result in results} == {3 if command[0] == "rules" else 0}, results
    first, second, *of_run = (json.loads(result.stdout) for result in results)
    assert first | {"made_ns": 0} == second | {"made_ns": 0}
    assert all(payload == first for payload in of_run)
    assert "was imported into" in results[0].stderr
    assert "has not changed since its import" in results[1].stderr
    lines = results[1].stderr.splitlines()
    assert len(lines) == len([word for word in command if word == "{}"])


def test_export_of_a_trace(traces: Path) -> None:
    done = run_command(traces, "export", "one.json.gz", "--to", "chrome", "-o", "again.json")
    assert done.returncode == 0, done.stderr
    events = json.loads((traces / "again.json").read_text())["traceEvents"]
    assert {"aten::mm", "gemm"} <= {event.get("name") for event in events}


def test_a_directory_of_traces_is_one_run(traces: Path, cache: Path) -> None:
    done = run_command(traces, "show", "log", "overview", "--json")
    assert done.returncode == 0, done.stderr
    (run,) = cache.iterdir()
    sources = open_run(run).info.sources
    assert [Path(source.path).name for source in sources] == ["rank0.json", "rank1.json.gz"]
    assert len(open_run(run).table("traces")["trace"]) == 2


def test_a_changed_file_is_imported_again(traces: Path, cache: Path) -> None:
    file = traces / "one.json.gz"
    run_command(traces, "show", "one.json.gz", "kernels")
    (traces / "link.json.gz").symlink_to("one.json.gz")  # another path to the same trace
    done = run_command(traces / "log", "show", "../link.json.gz", "kernels")
    assert "has not changed" in done.stderr
    assert len(list(cache.iterdir())) == 1
    status = file.stat()
    file.write_bytes(gzip.compress(trace(*training())))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    done = run_command(traces, "show", "one.json.gz", "kernels")
    assert "was imported into" in done.stderr
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_file(tmp_path: Path, cache: Path) -> None:
    for name, content, says in (
        ("cut.json.gz", gzip.compress(TRACE)[:30], "truncated"),
        ("notes.md", b"# Notes\n", "is not a trace that stepscope can read: as JSON"),
        ("empty.json", b"", "is empty"),
        ("hollow.json.gz", gzip.compress(b"")[:12], "is empty, and "),
    ):
        (tmp_path / name).write_bytes(content)
        for _ in range(2):  # a failed import is not cached
            done = run_command(tmp_path, "diagnose", name)
            assert done.returncode == 2
            assert name in done.stderr
            assert says in done.stderr
            assert len(done.stderr.splitlines()) == 1
    assert list(cache.iterdir()) == []
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "package.json").write_text('{"name": "mine"}')
    done = run_command(tmp_path, "diagnose", "empty")
    assert done.returncode == 2
    assert "empty is not a run" in done.stderr


def test_runs_are_never_taken_for_directories_of_traces(tmp_path: Path, cache: Path) -> None:
    """Neither a run with a trace in it, nor a directory of repeated runs."""
    run = RunBuilder(tmp_path / "runs" / "a").write()
    (run / "trace.json").write_bytes(TRACE)
    (tmp_path / "runs" / "trace.json").write_bytes(TRACE)
    assert not run_command(tmp_path, "diagnose", "runs/a").stderr
    done = run_command(tmp_path, "compare", "runs", "runs/a")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert not cache.exists()


def test_an_unwritable_cache(traces: Path, cache: Path) -> None:
    cache.parent.parent.write_text("in the way")
    done = run_command(traces, "diagnose", "one.json.gz")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cache" in done.stderr
