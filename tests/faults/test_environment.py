"""A machine that refuses: training goes on, and the run or the terminal says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.job_control import STEPSCOPE, Job, steps_command, wait_for

Start = Callable[..., Job]
COUNT = 60
ROOT = os.geteuid() == 0


def run_job(tmp_path: Path, *options: str, prefix: tuple[str, ...] = (), **kwargs: object):
    command = [*prefix, *STEPSCOPE, "run", *options, "--", *steps_command("--count", str(COUNT))]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=tmp_path, **kwargs
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_the_spool_cannot_be_where_it_was_asked_for(tmp_path: Path) -> None:
    """It goes somewhere else, and that is said."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run_job(tmp_path, "--out", "run", "--spool", str(blocked / "spool"))
    assert done.returncode == 0
    assert done.stdout.count("done ") == COUNT
    assert "the spool cannot be at" in done.stderr
    assert len(open_run(tmp_path / "run").table("spans", condition="kind = 'step'")["seq"]) == COUNT


def test_a_full_spool_never_stops_the_job(start: Start, small_disk: Path) -> None:
    """Records are dropped and counted; those before are kept."""
    run = small_disk.parent / "run"
    done = subprocess.run(
        [
            *STEPSCOPE,
            "run",
            "--out",
            str(run),
            "--spool",
            str(small_disk / "spool"),
            "--spool-limit",
            "64MiB",
            "--",
            sys.executable,
            "-c",
            FLOOD,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "flood is over" in done.stdout
    names = open_run(run).table("spans", ["name"])["name"]
    assert (names == "flood").sum() > 1000
    dropped = sum(p.dropped_count for p in open_run(run).processes())
    assert dropped > 0
    assert (names == "flood").sum() + dropped >= 200_000
    diagnosis = subprocess.run(
        [*STEPSCOPE, "diagnose", str(run)], capture_output=True, text=True, check=True
    )
    assert "dropped because the spool was full" in " ".join(diagnosis.stdout.split())


FLOOD = """
import stepscope
for _ in range(200_000):
    with stepscope.annotate("flood"): pass
print("flood is over")
"""


def test_a_full_run_directory_keeps_everything_in_the_spool(small_disk: Path) -> None:
    """The job ends as it would; what could not be stored is brought in once there is room."""
    run = small_disk / "run"
    filler = small_disk / "filler"
    job = Job(run, small_disk.parent / "spool", *steps_command("--count", "1500"))
    try:
        job.wait_done(50)
        wait_for(lambda: list((run / "nodes").glob("*/status.json")), what="a status")
        fill(filler)
        assert job.wait() == 0
        assert job.done == 1500
        said = " ".join(job.errors.read_text().split())
        assert "stepscope recover" in said
        assert "No space left" in said
        filler.unlink()
        done = subprocess.run(
            [*STEPSCOPE, "recover", str(run), "--json"], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["complete"]
        steps = open_run(run).table("spans", ["value"], condition="kind = 'step'")["value"]
        assert sorted(steps.tolist()) == list(range(1500))
        (status,) = open_run(run).statuses().values()
        assert status.state is JobState.COMPLETED
    finally:
        job.end()


def fill(filler: Path) -> None:
    """Write until the file system is full."""

    def write_on() -> None:
        with filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    with pytest.raises(OSError, match="No space"):
        write_on()


def test_nowhere_to_write_at_all(tmp_path: Path) -> None:
    """No run, no spool: the job runs all the same and one sentence says what is missing."""
    if not ROOT or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    script = (
        "mount -t tmpfs -o ro tmpfs /dev/shm && mount --bind /tmp /tmp && "
        "mount -o remount,bind,ro /tmp && mount -t tmpfs -o ro tmpfs /var/tmp && "
        f"cd {tmp_path} && exec {' '.join(STEPSCOPE)} run -- "
        f"{' '.join(steps_command('--count', str(COUNT)))}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    if done.returncode and done.stderr.startswith(("unshare", "mount")):
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done ") == COUNT
    assert "nothing is recorded" in done.stderr
    assert "Read-only file system" in done.stderr


def test_without_shared_memory(tmp_path: Path) -> None:
    """The spool is in the temporary directory then."""
    if not ROOT or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    run = tmp_path / "run"
    script = (
        "mount -t tmpfs -o size=64k tmpfs /dev/shm && "
        f"exec {' '.join(STEPSCOPE)} run --out {run} -- "
        f"{' '.join(steps_command('--count', str(COUNT)))}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert len(open_run(run).table("spans", condition="kind = 'step'")["seq"]) == COUNT
    (node,) = open_run(run).nodes().values()
    assert Path("/dev/shm") not in Path(node.spool).parents  # noqa: S108


def test_the_default_run_directory_falls_back(tmp_path: Path) -> None:
    if not ROOT or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && "
        f"cd {tmp_path} && exec {' '.join(STEPSCOPE)} run -- true"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "no run can be made at" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("run ")]
    place = Path(line.split()[1])
    assert open_run(place).info.command == ["true"]
    shutil.rmtree(place)


def test_without_a_gpu_driver_the_run_says_so(start: Start) -> None:
    job = start(*steps_command("--count", "20"))
    assert job.wait() == 0
    (node,) = open_run(job.run).nodes().values()
    if not node.gpus:
        assert "NVIDIA driver" in node.metrics_missing["gpu"]


def test_pythonpath_is_ignored(start: Start) -> None:
    """`python -I` shuts the bootstrap out: the job runs, and the verdict says what it saw."""
    job = start(sys.executable, "-I", "-c", "print('done 0')")
    assert job.wait() == 0
    assert job.done == 1
    done = subprocess.run(
        [*STEPSCOPE, "diagnose", str(job.run)], capture_output=True, text=True, check=True
    )
    assert "no process of the job recorded anything" in " ".join(done.stdout.split())


def test_a_daemon_goes_on_being_recorded(tmp_path: Path) -> None:
    """The command ends, its daemon trains on, and the run has both."""
    pytest.importorskip("torch")
    script = Path(__file__).parents[1] / "e2e" / "scripts" / "daemonise.py"
    out = tmp_path / "daemon.txt"
    run = tmp_path / "run"
    done = subprocess.run(
        [
            *STEPSCOPE,
            "run",
            "--out",
            str(run),
            "--",
            sys.executable,
            str(script),
            "--out",
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    wait_for(out.exists, limit_s=60, what="the daemon's end")

    def ended() -> bool:
        (status,) = open_run(run).statuses().values()
        return status.state.final

    wait_for(ended, limit_s=60, what="the monitor's end")
    answer = subprocess.run(
        [*STEPSCOPE, "show", str(run), "steps", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    (rank,) = json.loads(answer.stdout)["ranks"]
    assert rank["step_count"] == 20


def test_secrets_on_the_command_line_are_masked(start: Start) -> None:
    secret = "hf_" + "a1B2" * 8
    job = start("sh", "-c", "true", "--api-key", "k3y", f"--token={secret}", secret)
    assert job.wait() == 0
    for path in job.run.rglob("*.json"):
        text = path.read_text()
        assert "k3y" not in text
        assert secret not in text
    assert open_run(job.run).info.command[:3] == ["sh", "-c", "true"]
