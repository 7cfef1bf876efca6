"""`stepscope import`: what it takes, what it refuses in one sentence, and what it never touches."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from stepscope.cli import main
from stepscope.importers.kineto import importer
from stepscope.run.model.traces import load_traces
from stepscope.store import open_run
from tests.support.kineto_files import op, trace, training

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 30


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def sentences(self) -> list[str]:
        return self.err.splitlines()


Command = Callable[..., Answer]


@pytest.fixture
def run_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run the command in the directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["stepscope", "import", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Answer(code, captured.out, captured.err)

    return run


def test_numpy_has_one_thread_and_the_environment_stays_as_it_is() -> None:
    code = (
        "import os, sys; from stepscope.cli import main; before = dict(os.environ)\n"
        "sys.argv = ['stepscope', 'rules', 'explain', 'StepOutlier', '--json']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "threads = os.listdir('/proc/self/task')\n"
        "print('numpy' in sys.modules, len(threads), before == dict(os.environ))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert shown.stdout.splitlines()[-1].split() == ["True", "1", "True"]


FOREIGN = {
    "picture.png": PNG,
    "notes.txt": b"not a trace\n" * 100,
    "other.json": json.dumps({"a": [1, 2, {"b": None}]}).encode(),
    "numbers.json": b"[1, 2, 3]",
    "empty_list.json": b"[]",
    "empty_object.json": b"{}",
    "no_events.json": b'{"traceEvents": []}',
    "odd_events.json": b'{"traceEvents": 5}',
    "zero.json": b"",
    "blank.json": b" \n" * 10,
    "half.json": b'{"traceEvents": [{"ph": "X", "na',
    "picture.json.gz": gzip.compress(PNG),
    "zero.json.gz": gzip.compress(b""),
    "cut.json.gz": gzip.compress(trace(*training()))[:9],
    "magic.gz": b"\x1f\x8b",
    "zeros.json": b"\0" * 5_000,
    "utf16.json": trace(*training()).decode().encode("utf-16"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(tmp_path: Path, run_import: Command, name: str) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    answer = run_import(name, "-o", "run")
    assert answer.code == 2
    assert not answer.out
    assert len(answer.sentences) == 1
    assert name in answer.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_foreign_file_of_any_size_is_refused_at_once(tmp_path: Path, run_import: Command) -> None:
    """Only its beginning is read."""
    with (tmp_path / "huge.json").open("wb") as file:
        file.write(b'{"a": [')
        file.truncate(4 << 30)
    answer = run_import("huge.json", "-o", "run")
    assert (answer.code, len(answer.sentences)) == (2, 1)


def test_a_directory_without_traces(tmp_path: Path, run_import: Command) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "empty").mkdir()
    for name, content in FOREIGN.items():
        (tmp_path / "in" / name).write_bytes(content)
    for source, count in (("in", len(FOREIGN) + 1), ("nowhere.json", 1), ("empty", 1)):
        answer = run_import(source, "-o", "run")
        assert (answer.code, len(answer.sentences)) == (2, count)
        assert source in answer.err
    assert not (tmp_path / "run").exists()


def test_a_directory_with_other_things(tmp_path: Path, run_import: Command) -> None:
    ranks = tmp_path / "in" / "deep"
    ranks.mkdir(parents=True)
    (ranks / "rank0.json").write_bytes(trace(*training()))
    (ranks / "rank1.json.gz").write_bytes(gzip.compress(trace(op("a", 0, 10))))
    (ranks / ".hidden.json").write_bytes(trace(op("hidden", 0, 10)))
    (tmp_path / "in" / "picture.png").write_bytes(PNG)
    answer = run_import("in", "-o", "run", "--json")
    assert answer.code == 0
    calls = json.loads(answer.out)
    assert [item["name"] for item in calls["traces"]] == ["rank0.json", "rank1.json.gz"]
    assert [item["rank"] for item in calls["traces"]] == [0, 1]
    assert [Path(item["path"]).name for item in calls["refused"]] == ["picture.png"]
    assert "picture.png" in answer.err
    assert [item.rank for item in load_traces(open_run(tmp_path / "run"))] == [0, 1]


def test_what_was_lost_is_said(tmp_path: Path, run_import: Command) -> None:
    content = trace(*training())
    (tmp_path / "half.json").write_bytes(content[: len(content) // 2])
    answer = run_import("half.json", "-o", "run")
    assert answer.code == 0
    assert "half.json was only partly imported: the file is truncated" in answer.err
    assert f"Next: stepscope diagnose {tmp_path / 'run'}" in answer.out


@pytest.mark.parametrize("cores", [1, 2])
def test_several_files_are_as_one_at_a_time(
    tmp_path: Path, run_import: Command, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(importer, "available_processes", lambda: cores)
    for directory in ("a", "b", "c"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "trace.json").write_bytes(
            trace(*training(), op(directory, 7_500, 10))
        )
        assert run_import(f"{directory}/trace.json", "-o", f"run-{directory}").code == 0
    assert run_import("a", "b", "c", "-o", "run").code == 0
    together = load_traces(open_run(tmp_path / "run"))
    assert [item.name for item in together] == [f"{directory}/trace.json" for directory in "abc"]
    for directory, result in zip("abc", together, strict=True):
        (alone,) = load_traces(open_run(tmp_path / f"run-{directory}"))
        assert result.event_count == alone.event_count
        columns = ("id", "start_ns", "duration_ns", "parent")
        mine, second = (item.columns("operators", columns) for item in (result, alone))
        assert {n: v.tolist() for n, v in mine.items()} == {
            n: v.tolist() for n, v in second.items()
        }


# --- where it goes ---------------------------------------------------------------------------


def test_a_run_is_not_written_twice(tmp_path: Path, run_import: Command) -> None:
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    assert run_import("trace.json", "-o", "run").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    answer = run_import("trace.json", "-o", "run")
    assert (answer.code, len(answer.sentences)) == (2, 1)
    assert "already holds a run" in answer.err
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before


def test_other_peoples_files_are_never_touched(tmp_path: Path, run_import: Command) -> None:
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "thesis.tex").write_text("ten years")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("notes.txt", "trace.json"):
        for directory in ("results", "."):
            answer = run_import(name, "-o", directory)
            assert (answer.code, len(answer.sentences)) == (2, 1)
            assert "not empty" in answer.err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_an_empty_directory_may_take_the_run(tmp_path: Path, run_import: Command) -> None:
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    assert run_import("notes.txt", "-o", "run").code == 2
    assert list((tmp_path / "run").iterdir()) == []
    assert run_import("trace.json", "-o", "run").code == 0


def test_places_that_hold_no_run(tmp_path: Path, run_import: Command) -> None:
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    for directory in ("trace.json", "trace.json/run", "/proc/run"):
        answer = run_import("trace.json", "-o", directory)
        assert (answer.code, len(answer.sentences)) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


# --- URLs ------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Provide the URL of a directory with a trace."""
    directory = tmp_path / "served"
    directory.mkdir()
    (directory / "rank3.json").write_bytes(trace(*training()))
    handler = functools.partial(Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_url(tmp_path: Path, served: str, run_import: Command) -> None:
    answer = run_import(f"{served}/rank3.json?version=2", "-o", "run")
    assert answer.code == 0, answer.err
    (result,) = load_traces(open_run(tmp_path / "run"))
    assert (result.name, result.rank) == ("rank3.json", 3)


def test_a_directory_per_rank(tmp_path: Path, run_import: Command) -> None:
    for rank in (0, 3):
        path = tmp_path / "traces" / f"rank{rank}" / f"host{rank}.pt.trace.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(trace(*training()))
    hidden = tmp_path / "traces" / ".ipynb_checkpoints" / "old.json"
    hidden.parent.mkdir()
    hidden.write_bytes(trace(*training()))
    assert run_import("traces", "-o", "run").code == 0
    assert {result.rank for result in load_traces(open_run(tmp_path / "run"))} == {0, 3}


def test_a_pipe_can_be_read_only_once(tmp_path: Path, run_import: Command) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(trace(*training()),))
    writer.start()
    answer = run_import("pipe", "-o", "run")
    writer.join()
    assert answer.code == 0, answer.err
    (result,) = load_traces(open_run(tmp_path / "run"))
    assert result.name == "pipe"


def test_urls_that_cannot_be_fetched(tmp_path: Path, served: str, run_import: Command) -> None:
    port = served.rpartition(":")[2]
    for url in (
        f"{served}/nothing",
        "http://127.0.0.1:1/x",
        f"http://127.0.0.1:{port}/a b",
        "http://",
    ):
        answer = run_import(url, "-o", "run")
        assert (answer.code, len(answer.sentences)) == (2, 1)
        assert "Cannot download" in answer.err
        assert not (tmp_path / "run").exists()
