"""`stepscope attach` to a real job: stacks, samples of its processes, a window, and its verdict."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import stepscope
from stepscope.access import OpenRun
from stepscope.diagnosis import describe_processes
from stepscope.monitor import snapshot
from tests.support.under_stepscope import STEPSCOPE, command_json
from tests.support.waiting import wait_until

JOB = Path(__file__).parent / "attach" / "running_job.py"
PY_SPY = shutil.which(
    "py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
)
if PY_SPY is None:
    pytest.skip("needs py-spy (requirements/test.txt)", allow_module_level=True)


@dataclass(frozen=True)
class Attached:
    """An attachment that has ended while its job ran on."""

    location: Path
    job_pid: int
    worker_pid: int
    code: int
    messages: str
    is_job_alive: bool
    capture: subprocess.CompletedProcess[str]
    steps_afterwards: int

    @property
    def run(self) -> OpenRun:
        """The run."""
        return stepscope.open(self.location)

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict of the run."""
        return command_json("diagnose", run=self.location)


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """Attach to a job that looks for a daemon, open a window, and detach with Ctrl-C."""
    directory = tmp_path_factory.mktemp("attach")
    location, output, messages = directory / "run", directory / "job.out", directory / "attach.err"
    polling = directory / "kineto.conf"
    polling.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    variables = {**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_CONFIG": str(polling)}
    sockets = directory / "k"
    if len(str(sockets)) < 60:  # of the 108 bytes of an address; otherwise the abstract one
        sockets.mkdir()
        variables["KINETO_IPC_SOCKET_DIR"] = str(sockets)
    with output.open("wb") as out, messages.open("wb") as err:
        job = subprocess.Popen([sys.executable, JOB], stdout=out, env=variables)
        try:
            wait_until(lambda: output.read_bytes().count(b"done") > 3, waiting_for="steps")
            (worker,) = psutil.Process(job.pid).children()
            attachment = subprocess.Popen(
                [*STEPSCOPE, "attach", str(job.pid), "--out", str(location)], stderr=err
            )
            wait_until((location / "nodes").is_dir, waiting_for="the monitor")
            capture = subprocess.run(
                [*STEPSCOPE, "capture", str(location), "--seconds", "0.5"],
                capture_output=True,
                text=True,
                check=False,
            )
            attachment.send_signal(signal.SIGINT)
            code = attachment.wait(60)
            before = output.read_bytes().count(b"done")
            wait_until(lambda: output.read_bytes().count(b"done") > before + 5)
            yield Attached(
                location=location,
                job_pid=job.pid,
                worker_pid=worker.pid,
                code=code,
                messages=messages.read_text(),
                is_job_alive=job.poll() is None,
                capture=capture,
                steps_afterwards=output.read_bytes().count(b"done") - before,
            )
        finally:
            job.kill()
            job.wait()


def test_the_job_goes_on(attached: Attached) -> None:
    assert attached.code == 0, attached.messages
    assert attached.is_job_alive
    assert attached.steps_afterwards > 5
    assert not Path(attached.run.info.options["spool"]).exists()


def test_it_says_what_it_cannot_see(attached: Attached) -> None:
    limit = "no steps, no phases and no times of batches were recorded"
    announcement = attached.messages.split("\n\n", 1)[0]
    assert limit in announcement
    assert f"process {attached.job_pid} and its children" in announcement
    notes = attached.verdict["notes"]
    assert any(limit in note for note in notes)
    assert any("detached while the job was running" in note for note in notes)


def test_processes_are_sampled(attached: Attached) -> None:
    roles = {process.pid: process.role for process in attached.run._run.processes}
    assert roles == {attached.job_pid: "main", attached.worker_pid: "dataloader_worker"}
    metrics = next(iter(attached.run._run.metrics.values()))
    for pid in roles:
        assert metrics.mean("process_memory_bytes", str(pid))
        assert metrics.mean("process_cpu_cores", str(pid)) is not None


def test_stacks_are_those_of_the_code(attached: Attached) -> None:
    rows = attached.run.sql("SELECT process, stack FROM stacks").rows()
    worker = [row["stack"] for row in rows if row["process"].startswith(f"{attached.worker_pid}-")]
    inside = [stack for stack in worker if f"augment|{JOB}|" in stack]
    assert len(inside) > 0.5 * len(worker) > 10
    assert all("worker.py|torch" in stack for stack in inside)


def test_the_verdict_is_what_stacks_carry(attached: Attached) -> None:
    verdict = attached.verdict
    assert verdict["suspect"] == "data_pipeline"
    assert verdict["cause"] == "slow_augmentation"
    assert verdict["headline"].startswith("Attached from outside: ")
    assert verdict["step_count"] == 0
    assert verdict["mean_step_ns"] is None


def test_the_cost_of_stacks_is_stated(attached: Attached) -> None:
    (note,) = [note for note in attached.verdict["notes"] if "by py-spy took" in note]
    count = attached.run.sql("SELECT count(*) AS n FROM stacks").rows()[0]["n"]
    assert note.startswith(f"{count:,} stack samples")


def test_a_window_is_opened_from_outside(attached: Attached) -> None:
    assert attached.capture.returncode == 0, attached.capture.stderr
    (trace,) = attached.run._run.traces
    assert 0.3 < (trace.end_ns - trace.start_ns) / 1e9 < 0.8
    names = attached.run.sql("SELECT DISTINCT name FROM operators").rows()
    assert "aten::addmm" in {row["name"] for row in names}


@pytest.mark.parametrize("has_py_spy", [True, False])
def test_once_says_where_a_job_hangs(
    tmp_path: Path, has_py_spy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import threading\ndef wait():\n    threading.Event().wait()\nwait()\n")
    with subprocess.Popen([sys.executable, script]) as job:
        try:
            kernel = Path(f"/proc/{job.pid}/wchan")
            wait_until(lambda: "futex" in kernel.read_text(), waiting_for="the wait")
            if not has_py_spy:
                monkeypatch.setattr(snapshot, "find_py_spy", lambda: None)
            snap = snapshot.take_snapshot(job.pid, window_s=0.2)
        finally:
            job.kill()
    states = describe_processes(snap.processes, snap.duration_ns, snap.moved, snap.notes)
    assert states is not None
    assert not states.has_moved
    if has_py_spy:
        assert states.headline.endswith(
            f"process {job.pid} waits for an event in wait (train.py:3)."
        )
        assert not states.notes
    else:
        assert f"process {job.pid} " in states.headline
        assert "waits for a lock" in states.headline
        assert states.notes == ["no stacks: py-spy is not installed (pip install py-spy)"]


def test_once_needs_a_process_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    done = subprocess.run(
        [*STEPSCOPE, "attach", str(ended.pid), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"No process {ended.pid} is running here." in done.stderr
