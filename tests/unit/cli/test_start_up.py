"""Start of commands: their imports, suggestions that can be pasted, companions."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from stepscope import comparison, cost, fleet, views
from stepscope.cli import COMMANDS
from stepscope.cli.job import launcher
from stepscope.cli.job.launcher import COMPANION_PERIOD_S, COMPANION_STARTS, Companion
from stepscope.cli.output import locate, suggest
from stepscope.cli.writers import WRITERS, load_writer, write_generic
from stepscope.cost import explain_missing_offer, load_price_table
from stepscope.schema import JobState
from stepscope.testing import RunBuilder
from tests.support.command import run_command
from tests.support.past_files import written_before

ROOT = Path(__file__).parents[3]
HEAVY = {"_duckdb", "numpy", "psutil", "rich", "msgspec", "stepscope.diagnosis.build_verdict"}


def list_imported(*commands: str) -> list[set[str]]:
    """List the modules that a process has imported after each `stepscope <command>`, or before the
    job of `run` would start."""
    code = f"""
import sys
import stepscope.cli
def start(launcher, command, environment):
    raise SystemExit
for command in {commands!r}:
    sys.argv = ["stepscope", *command.split()]
    if command.startswith("run "):
        from stepscope.cli.job.launcher import Launcher
        Launcher.run = start
    try:
        stepscope.cli.main()
    except SystemExit:
        print("imported", *sys.modules, file=sys.__stderr__)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    lines = ended.stderr.splitlines()
    return [set(line.split()[1:]) for line in lines if line.startswith("imported ")]


def test_help_imports_no_command_and_a_job_starts_before_its_end_is_prepared(
    tmp_path: Path,
) -> None:
    run = f"run --out {tmp_path / 'run'} --spool {tmp_path} -- {sys.executable}"
    version, general_help, views = list_imported("--version", "--help", "show --help")
    (job,) = list_imported(run)
    modules = {f"stepscope.cli.commands.{command.module}" for command in COMMANDS.values()}
    assert "stepscope.cli" in version
    assert not (HEAVY | modules) & (version | general_help)
    assert not {"_duckdb", "importlib.metadata"} & views, "the metadata of all packages"
    assert "stepscope.cli.commands.run" in job
    assert not {"_duckdb", "numpy", "rich", "stepscope.diagnosis.build_verdict"} & job


def draw_run(path: Path) -> RunBuilder:
    """Draw a run of a hundred steps."""
    run = RunBuilder(path)
    run.rank().draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100)
    return run


def test_a_view_imports_what_it_shows(tmp_path: Path) -> None:
    draw_run(tmp_path / "run").write()
    show = f"show {tmp_path / 'run'}"
    gpu_time, overview = list_imported(f"{show} gpu-time --json", show)
    assert {"stepscope.views.devices.gpu_time", "_duckdb"} <= gpu_time
    unused = {
        "store.bucket",
        "run.catalog",
        "exporters",
        "diagnosis",
        "analysis.input_pipeline.host_work",
    }
    assert (
        not (
            {"rich", "multiprocessing", "concurrent.futures", "duckdb"}
            | {f"stepscope.{module}" for module in unused}
        )
        & gpu_time
    )
    assert "stepscope.cli.writers.job" in overview
    unused = {"rules.registry", "rule_feed.feed", "diagnosis.traces", "comparison.payload"}
    unused |= {"views.dashboard", "cli.writers.usage"}
    assert not {f"stepscope.{module}" for module in unused} & overview


PAINTERS = {"numpy", "_duckdb", "rich", "stepscope.store.engine", "stepscope.diagnosis.verdict"}
"""Modules by which an answer is computed or laid out."""


def test_an_answer_is_computed_and_laid_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = draw_run(tmp_path / "run").status(JobState.COMPLETED).write()
    written_before(path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")  # readline of this process sets them for others
    commands = [["show", str(path), *words] for words in ([], ["gpu-time"], ["--json"])]
    commands += [["diagnose", str(path), *words] for words in ([], ["--json"])]
    first = [run_command(tmp_path, *command) for command in commands]
    imported = list_imported(*map(shlex.join, commands))
    assert [PAINTERS & modules for modules in imported] == [set()] * len(commands)
    again = [run_command(tmp_path, *command) for command in commands]
    assert [a.stdout for a in again] == [f.stdout for f in first]
    monkeypatch.setenv("STEPSCOPE_STORED_RESULTS", "0")
    assert [run_command(tmp_path, *c).stdout for c in commands] == [f.stdout for f in first]
    monkeypatch.delenv("STEPSCOPE_STORED_RESULTS")
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run_command(tmp_path, *commands[0]).stdout
    assert narrow != first[0].stdout
    assert max(map(len, narrow.splitlines())) <= 60
    (status,) = path.glob("nodes/*/status.json")
    status.write_bytes(status.read_bytes().replace(b"Completed", b"Failed"))
    assert "Failed" in run_command(tmp_path, *commands[0]).stdout


def test_a_stored_text_cannot_command_the_terminal(tmp_path: Path) -> None:
    """A run may come from somebody else."""
    path = written_before(draw_run(tmp_path / "run").status(JobState.COMPLETED).write())
    commands = ["show", str(path), "steps"]
    text = run_command(tmp_path, *commands).stdout
    file = path / "results" / "steps-text.json"
    stored = json.loads(file.read_bytes())
    assert stored["result"]["text"] == text
    for forged, printed in ((f"\x1b[1m{text}", f"\x1b[1m{text}"), (f"\x1b]2;x\a{text}", text)):
        stored["result"]["text"] = forged
        file.write_text(json.dumps(stored))
        assert run_command(tmp_path, *commands).stdout == printed


def test_a_copy_of_a_run_suggests_commands_on_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("LINES", "24")
    path = written_before(draw_run(tmp_path / "run").status(JobState.COMPLETED).write())
    first = run_command(tmp_path, "show", "run", "gpu-time").stdout
    copy = Path(shutil.copytree(path, tmp_path / "backup" / "run"))
    again = run_command(copy.parent, "show", "run", "gpu-time").stdout
    assert f"-o {path}`" in first
    assert again == first.replace(str(path), str(copy))


@pytest.mark.parametrize("name", WRITERS)
def test_each_writer_is_that_of_its_payload(name: str) -> None:
    payload = next(
        getattr(package, name)
        for package in (views, comparison, cost, fleet)
        if hasattr(package, name)
    )
    assert get_type_hints(load_writer(payload))["payload"] is payload


def test_a_payload_of_an_installed_view_has_no_writer_of_its_own() -> None:
    installed = type("Overview", (), {"__module__": "elsewhere.views"})
    assert load_writer(installed) is write_generic


def test_a_mistyped_name_is_answered_with_the_one_meant(tmp_path: Path) -> None:
    for words, suggestion in (
        ("diagnos run", "'diagnose'"),
        ("show run input-pipelin", "input-pipeline"),
        ("rules explain stepoutlir", "StepOutlier"),
    ):
        answer = run_command(tmp_path, *words.split())
        assert answer.returncode == 2
        assert f"Did you mean {suggestion}?" in answer.stderr
    table = load_price_table(None)
    assert "(Did you mean p4d.24xlarge?)" in explain_missing_offer("p4d.24xlarg", table)


def test_help_has_one_line_per_command(tmp_path: Path) -> None:
    lines = run_command(tmp_path, "--help").stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def write_script(directory: Path) -> Path:
    """Write the script that pip installs for the command."""
    directory.mkdir(parents=True)
    script = directory / "stepscope"
    script.write_text(f"#!{sys.executable}\nfrom stepscope.cli import main\n\nmain()\n")
    script.chmod(0o755)
    return script


def test_commands_after_a_job_can_be_pasted_elsewhere(tmp_path: Path) -> None:
    script = write_script(tmp_path / "my env" / "bin")
    job = subprocess.run(
        ["my env/bin/stepscope", "run", "--no-rules", "--out", "my run", "--", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in job.stderr.splitlines() if " diagnose " in line]
    commands = [line.removeprefix("all").strip() for line in lines]
    run = str(tmp_path / "my run")
    assert not (tmp_path / "my run" / "findings" / "rules.json").exists()  # without rules
    assert [shlex.split(c) for c in commands] == [[str(script), "diagnose", run, "--all"]]
    pasted = subprocess.run(
        ["sh", "-c", commands[-1]], cwd="/", capture_output=True, text=True, check=False
    )
    assert pasted.returncode == 0, pasted.stderr
    assert "No verdict" in pasted.stdout


def test_the_name_is_enough_where_path_has_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, hidden = write_script(tmp_path / "bin"), write_script(tmp_path / "hidden")
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert suggest("show", "a run", "steps") == "stepscope show 'a run' steps"
    monkeypatch.setattr(sys, "argv", [str(hidden)])
    assert suggest("ui") == f"{hidden} ui"


def test_a_module_is_started_again_by_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/stepscope/__main__.py"])
    assert suggest("doctor") == f"{sys.executable} -m stepscope doctor"


def test_locations_are_valid_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("run") == str(tmp_path / "run")
    assert locate("s3://bucket/run") == "s3://bucket/run"


class Clock:
    """Monotonic clock that the test sets."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def test_a_companion_that_dies_at_once_is_given_up_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(launcher, "time", clock)
    pids: list[int] = []

    def start(job_pid: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-S", "-c", ""])
        process.wait()
        pids.append(job_pid)
        return process

    companion = Companion(start)
    for _ in range(3 * COMPANION_STARTS):
        companion.keep(7)
    assert pids == [7] * COMPANION_STARTS
    clock.now_s += COMPANION_PERIOD_S - 1
    companion.keep(7)
    assert len(pids) == COMPANION_STARTS
    clock.now_s += 1
    for _ in range(3 * COMPANION_STARTS):
        companion.keep(7)
    assert len(pids) == 2 * COMPANION_STARTS


LAUNCH = """
import os, signal, sys, threading
from pathlib import Path
from stepscope.cli.job.launcher import Companion, Launcher
from tests.support.waiting import wait_until

ready, stopped = Path("ready"), Path("stopped")

def prepare():
    wait_until(ready.exists)
    os.kill(os.getpid(), signal.SIGTERM)
    wait_until(stopped.exists)

companion = Companion(lambda _: print(threading.active_count()), prepare)
job = "trap 'touch stopped; exit 5' TERM; touch ready; while :; do :; done"
print(Launcher(companions=[companion]).run(["sh", "-c", job], os.environ).exit_code)
"""


def test_a_signal_reaches_the_job_while_its_companion_is_prepared(tmp_path: Path) -> None:
    """Afterwards the launcher has one thread, so that it can fork."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", LAUNCH],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.split() == ["1", "5"]
