"""Launchers of real Slurm and Open MPI share one run; skipped by name where they are missing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended(
    "needs Slurm and Open MPI; test_shared_run.py has launchers that share a run"
)

STEPS = (sys.executable, str(Path(__file__).parent / "shared_run" / "steps.py"), "30")
SLURM_PROGRAMS = ("srun", "sinfo", "slurmctld", "slurmd", "munged")
SYSTEM_PROGRAMS = "/usr/sbin:/sbin"
TASKS = 2


def find_program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{SYSTEM_PROGRAMS}")


def record(tmp_path: Path, launcher: tuple[str, ...], **variables: str) -> tuple[Path, str]:
    """Start `stepscope run` as the tasks of a launcher; return the run, and its messages."""
    done = subprocess.run(
        [*launcher, *STEPSCOPE, "run", "--no-rules", "--window", "off", "--", *STEPS],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=JOB_TIMEOUT_S,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "stepscope-runs").iterdir()
    return run, done.stderr


def check_run(run: Path, messages: str, job: str) -> None:
    reader = open_run(run)
    assert reader.info.job == job
    statuses = reader.statuses()
    assert [status.state for status in statuses.values()] == [JobState.COMPLETED] * TASKS
    counts = {r.process.rank: len(r.steps) for r in Run(reader).all_ranks}
    assert counts == dict.fromkeys(range(TASKS), 30)
    assert messages.count(f"Joined the run {run} of the job {job}") == TASKS - 1
    assert reader.document("verdict")["step_count"] > 0


def test_tasks_of_mpirun_share_one_run(tmp_path: Path) -> None:
    if find_program("mpirun") is None:
        pytest.skip("Open MPI is not installed: mpirun (package openmpi-bin)")
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    run, messages = record(tmp_path, ("mpirun", "-n", str(TASKS), "--oversubscribe"), **as_root)
    job = open_run(run).info.job
    assert job is not None
    assert job.startswith("openmpi ")
    assert run.name == job.replace(" ", "-")
    check_run(run, messages, job)


def test_tasks_of_srun_share_one_run(tmp_path: Path, slurm: dict[str, str]) -> None:
    run, messages = record(tmp_path, ("srun", f"-n{TASKS}"), **slurm)
    assert run.name == "slurm-1.0"
    check_run(run, messages, "slurm 1.0")


def test_the_example_of_a_batch_script_records_one_run(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    script = Path(__file__).parents[2] / "examples" / "cluster" / "train.sbatch"
    one_node = ("--nodes=1", f"--ntasks-per-node={TASKS}", "--gpus-per-node=0", "--wait")
    done = subprocess.run(
        ["sbatch", *one_node, f"--output={tmp_path}/log", str(script), *STEPS],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=JOB_TIMEOUT_S,
        env=os.environ | slurm | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    messages = (tmp_path / "log").read_text()
    assert done.returncode == 0, done.stderr + messages
    check_run(tmp_path / "stepscope-runs" / "slurm-1", messages, "slurm 1.0")


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Slurm on this machine alone; yields the variables that its commands need."""
    missing = [name for name in SLURM_PROGRAMS if find_program(name) is None]
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)} (packages slurm-wlm, munge)")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    root = tmp_path_factory.mktemp("slurm")
    munge, socket_path = write_munge_key(root), root / "munge.socket"
    configuration = root / "slurm.conf"
    configuration.write_text(configure(root, socket_path))
    variables = {"SLURM_CONF": str(configuration)}
    daemons = [
        ("munged", "--foreground", "--force", f"--key-file={munge}", f"--socket={socket_path}",
         f"--pid-file={root}/munged.pid", f"--log-file={root}/munged.log",
         f"--seed-file={root}/munged.seed"),
        ("slurmctld", "-D"),
        ("slurmd", "-D"),
    ]  # fmt: skip
    processes = []
    try:
        for name, *arguments in daemons:
            command = [find_program(name) or name, *arguments]
            with (root / f"{name}.out").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, env={**os.environ, **variables}
                    )
                )
            if name == "munged":
                wait_until(socket_path.exists, waiting_for="the socket of munged")
        wait_until(lambda: is_idle(variables), timeout_s=120, waiting_for="a node of Slurm")
        yield variables
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def write_munge_key(root: Path) -> Path:
    root.chmod(0o755)
    key = root / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    return key


def configure(root: Path, socket_path: Path) -> str:
    host = socket.gethostname().partition(".")[0]
    return f"""
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={socket_path}
CredType=cred/munge
SlurmUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={TASKS} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def is_idle(variables: dict[str, str]) -> bool:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%t"],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    return done.stdout.strip() == "idle"


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port
