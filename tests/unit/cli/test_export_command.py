"""`stepscope export`: which recordings go into which files, and what it says."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepscope.cli import root
from stepscope.errors import NotARunError, UsageError
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run
from tests.support.kineto_files import trace, training


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a run with traces of two ranks, of the same name in different directories."""
    base = tmp_path_factory.mktemp("export")
    for rank in (0, 1):
        path = base / "traces" / str(rank) / "trace.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(trace(*training(), distributedInfo={"rank": rank}))
    call("import", str(base / "traces"), "-o", str(base / "run"))
    return base / "run"


def call(*arguments: str) -> None:
    root.main(list(arguments), standalone_mode=False)


def test_a_file_each(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    call("export", str(run), "--to", "chrome", "-o", str(tmp_path / "out"), "--json")
    payload = json.loads(capsys.readouterr().out)
    assert payload["format"] == "chrome"
    files = {Path(file["path"]).name: file for file in payload["files"]}
    assert set(files) == {"0-trace.json", "1-trace.json"}
    for name, file in files.items():
        path = tmp_path / "out" / name
        assert path.stat().st_size == file["text_bytes"]
        assert file["event_count"] == len(training())
        assert json.loads(path.read_text())["distributedInfo"] == {"rank": int(name[0])}


def test_one_rank(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("export", str(run), "--to", "chrome", "-o", str(tmp_path / "one.json"), "--rank", "1")
    assert json.loads((tmp_path / "one.json").read_text())["distributedInfo"] == {"rank": 1}
    assert "one.json: 1/trace.json, 15 events" in capsys.readouterr().out


def test_into_a_pipe(run: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_text)
        call("export", str(run), "--to", "chrome", "-o", str(pipe), "--rank", "1")
        assert json.loads(reading.result())["distributedInfo"] == {"rank": 1}
    assert pipe.is_fifo()


def test_a_link_is_followed(run: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    call("export", str(run), "--to", "chrome", "-o", str(link), "--rank", "1")
    assert link.is_symlink()
    assert json.loads(target.read_text())["distributedInfo"] == {"rank": 1}


def test_merged(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("export", str(run), "--to", "chrome", "-o", str(tmp_path / "all.json"), "--merge")
    assert f"2 traces, {2 * len(training())} events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-o", "all.json"], "Cannot write 2 traces to one file"),
        (["-o", "all.json.gz"], "pass a directory to -o, select one trace with --trace"),
        (["-o", ".", "--merge"], "is a directory"),
        (["-o", "out", "--rank", "7"], "There is no rank 7; the run has ranks 0, 1"),
        (["-o", "out", "--trace", "x"], "No trace is called x; available: 0/trace.json"),
    ],
)
def test_one_sentence(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=says):
        call("export", str(run), "--to", "chrome", *options)
    assert sorted(tmp_path.iterdir()) == before


def test_no_recording(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="nowhere"):
        call("export", str(tmp_path / "nowhere"), "--to", "chrome", "-o", str(tmp_path / "x"))
    info = RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id="empty",
        created_ns=0,
        command=[],
        working_directory="/",
        stepscope_version="0",
    )
    create_run(tmp_path / "empty", info)
    with pytest.raises(UsageError, match="has no trace"):
        call("export", str(tmp_path / "empty"), "--to", "chrome", "-o", str(tmp_path / "x"))
