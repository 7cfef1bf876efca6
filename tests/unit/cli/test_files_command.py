"""`stepscope export` and `stepscope report`: which files they write, and what they say."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openpyxl
import pytest

from stepscope.cli import root
from stepscope.errors import NotARunError, UsageError
from stepscope.rules.profiler import PROFILER_REPORT
from stepscope.store import create_run
from stepscope.testing import RunBuilder
from tests.support.command import run_command
from tests.support.kineto_files import trace, training
from tests.support.store_rows import INFO


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_a_file_each(traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    call("export", str(traced), "--to", "chrome", "-o", str(tmp_path / "out"), "--json")
    payload = json.loads(capsys.readouterr().out)
    assert payload["format"] == "chrome"
    files = {Path(file["path"]).name: file for file in payload["files"]}
    assert set(files) == {"0-trace.json", "1-trace.json"}
    for name, file in files.items():
        path = tmp_path / "out" / name
        assert path.stat().st_size == file["text_bytes"]
        assert file["event_count"] == len(training())
        assert json.loads(path.read_text())["distributedInfo"] == {"rank": int(name[0])}


def test_one_rank(traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("export", str(traced), "--to", "chrome", "-o", str(tmp_path / "one.json"), "--rank", "1")
    assert json.loads((tmp_path / "one.json").read_text())["distributedInfo"] == {"rank": 1}
    assert "one.json: 1/trace.json, 15 events" in capsys.readouterr().out


def test_into_a_pipe(traced: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_text)
        call("export", str(traced), "--to", "chrome", "-o", str(pipe), "--rank", "1")
        assert json.loads(reading.result())["distributedInfo"] == {"rank": 1}
    assert pipe.is_fifo()


def test_a_link_is_followed(traced: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    call("export", str(traced), "--to", "chrome", "-o", str(link), "--rank", "1")
    assert link.is_symlink()
    assert json.loads(target.read_text())["distributedInfo"] == {"rank": 1}


def test_merged(traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("export", str(traced), "--to", "chrome", "-o", str(tmp_path / "all.json"), "--merge")
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
    traced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=says):
        call("export", str(traced), "--to", "chrome", *options)
    assert sorted(tmp_path.iterdir()) == before


def test_no_recording(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="nowhere"):
        call("export", str(tmp_path / "nowhere"), "--to", "chrome", "-o", str(tmp_path / "x"))
    create_run(tmp_path / "empty", INFO)
    with pytest.raises(UsageError, match="has no trace"):
        call("export", str(tmp_path / "empty"), "--to", "chrome", "-o", str(tmp_path / "x"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = RunBuilder(tmp_path_factory.mktemp("runs") / "run", sampling_ms=1000)
    drawn.rank(0).draw("wait 600 | forward 120 | backward 200 | optimizer 80", 120)
    drawn.metric("cpu_busy_ratio", 0.5)
    return drawn.write()


def report(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command(cwd, "report", *map(str, arguments))


def test_every_form(run: Path, tmp_path: Path) -> None:
    for form, begins in ((".html", "<!doctype html>"), (".ipynb", "{"), (".json", "{")):
        done = report(tmp_path, run, "-o", f"report{form}")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"report{form}: the report on {run}\n"
        assert (tmp_path / f"report{form}").read_text().startswith(begins)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["report.html", "report.ipynb", "report.json"]


def test_workbook_has_the_findings_and_the_views(run: Path, tmp_path: Path) -> None:
    done = report(tmp_path, run, "-o", "report.xlsx", "--rule", "StepOutlier")
    assert done.returncode == 0, done.stderr
    book = openpyxl.load_workbook(tmp_path / "report.xlsx")
    rules = book["report rules"]
    names = {row[0] for row in rules.iter_rows(min_row=2, values_only=True)}
    assert names == {"StepOutlier", "OverallSystemUsage", "OverallFrameworkMetrics"}
    assert {"overview summary", "steps summary", "system nodes"} <= set(book.sheetnames)
    assert not any("timeline" in name or "heat" in name for name in book.sheetnames)


def test_json_has_debuggers_names(run: Path, tmp_path: Path) -> None:
    report(tmp_path, run, "-o", "report.json", "--rule", "StepOutlier")
    written = json.loads((tmp_path / "report.json").read_text())
    printed = json.loads(report(tmp_path, run, "--json", "--rule", "StepOutlier").stdout)
    assert written | {"made_ns": 0} == printed | {"made_ns": 0}
    assert set(written["rules"]) == {"StepOutlier", "OverallSystemUsage", "OverallFrameworkMetrics"}
    names = {"RuleTriggered", "Violations", "Datapoints", "RuleParameters", "Details"}
    assert names <= written["rules"]["StepOutlier"].keys()
    assert {"verdict", "summary"} <= written.keys()


@pytest.mark.seed("DBR-02", "DBR-03")
def test_a_directory_gets_the_files_of_debugger(run: Path, tmp_path: Path) -> None:
    """Page, notebook, and a file per rule with five keys, equal to those of the JSON report."""
    directory = tmp_path / "reports"
    for _ in range(2):  # into a new directory, and into one that exists
        done = report(tmp_path, run, "-o", "reports", "--rule", "ProfilerReport")
        assert done.returncode == 0, done.stderr
    report(tmp_path, run, "-o", "report.json", "--rule", "ProfilerReport")
    rules = json.loads((tmp_path / "report.json").read_text())["rules"]
    files = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert files == {"profiler-report.html", "profiler-report.ipynb"} | {
        f"profiler-reports/{rule}.json" for rule in PROFILER_REPORT
    }
    for rule in PROFILER_REPORT:
        written = json.loads((directory / "profiler-reports" / f"{rule}.json").read_text())
        assert list(written) == [
            *("RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters")
        ]
        reason = {"missing": rules[rule]["missing"]} if rules[rule]["missing"] else {}
        assert written.pop("Details") == rules[rule]["Details"] | reason
        assert written == {key: rules[rule][key] for key in written}
    notebook = (directory / "profiler-report.ipynb").read_text()
    assert f"RUN = {os.path.relpath(run, directory)!r}" in notebook
    assert all(json.loads(notebook)["cells"][index]["outputs"] for index in range(3, 10))
    assert str(tmp_path) not in notebook


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{run}"], "Pass a file for the report"),
        (["{run}", "-o", "report.pdf"], "report.pdf has no known format; use a name that ends in"),
        (["{run}", "-o", "file"], "file is not a directory"),
        (["{run}", "-o", "nowhere/report"], "nowhere is not a directory"),
        (["{run}", "-o", "nowhere/report.html"], "nowhere is not a directory"),
        (["{run}", "-o", "file.txt/report.html"], "file.txt is not a directory"),
        (["{run}", "-o", "/proc/report.html"], "/proc/"),
        (["nowhere", "-o", "report.html"], "nowhere does not exist"),
        (["{run}", "-o", "report.html", "--rule", "Nothing"], "Nothing"),
        (["{run}", "-o", "report.ipynb", "--set", "StepOutlier.x=1"], "no parameter 'x'"),
        (["{run}", "-o", "report.html", "--config", "none.toml"], "none.toml cannot be read"),
    ],
)
def test_one_sentence_about_a_report(
    run: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "file").write_text("")
    done = report(tmp_path, *(argument.format(run=run) for argument in arguments))
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.txt"]
