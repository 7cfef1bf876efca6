"""Runs of jobs in a directory that cannot be written: they go where no other user can interfere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.store import open_run
from tests.support.job_control import STEPSCOPE

VICTIM, MALLORY = 65533, 65532
CREATE_AS_VICTIM = f"""
import json, os
from pathlib import Path
from stepscope.cli.job.places import make_run
from stepscope.schema import SCHEMA_VERSION, RunInfo

info = RunInfo(
    schema_version=SCHEMA_VERSION, run_id="train", created_ns=0, command=["true"],
    working_directory="/", stepscope_version="0",
)
problems = []
os.setresgid({VICTIM}, {VICTIM}, {VICTIM})
os.setresuid({VICTIM}, {VICTIM}, {VICTIM})
print(json.dumps([str(make_run(None, info, problems, spool=None).path), problems]))
"""
in_detail = pytest.mark.extended(
    "another job; test_a_planted_directory_in_the_temporary_directory_is_not_used has the promise"
)


@pytest.fixture
def base() -> Iterator[Path]:
    """Provide a directory that other users can enter, with `shared`, which is like /tmp."""
    if os.geteuid() != 0:
        pytest.skip("needs to act as two users")
    package = Path(stepscope.__file__)
    if not all(parent.stat().st_mode & 0o005 == 0o005 for parent in package.parents):
        pytest.skip(f"other users cannot read {package.parent}")
    directory = Path(tempfile.mkdtemp(prefix="test-users-"))
    directory.chmod(0o755)
    (directory / "shared").mkdir()
    (directory / "shared").chmod(0o1777)
    yield directory
    shutil.rmtree(directory)


def plant(directory: Path) -> None:
    """Create a directory as the other user, into which everyone can write."""
    directory.mkdir()
    directory.chmod(0o777)
    os.chown(directory, MALLORY, MALLORY)


def create_as_victim(working_directory: Path, **environment: Path) -> tuple[Path, list[str]]:
    """Create a run in the default place as a user without rights; its location and messages."""
    done = subprocess.run(
        [sys.executable, "-c", CREATE_AS_VICTIM],
        cwd=working_directory,
        env=os.environ | {name: str(path) for name, path in environment.items()},
        capture_output=True,
        text=True,
        check=True,
    )
    location, problems = json.loads(done.stdout)
    return Path(location), problems


def assert_safe(location: Path) -> None:
    """Check that only root and the victim can replace any part of the path of a run."""
    assert open_run(location).info.run_id == "train"
    for part in (location, *location.parents):
        status = part.lstat()
        assert not part.is_symlink()
        assert status.st_uid in {0, VICTIM}, part
        assert not status.st_mode & 0o002 or status.st_mode & 0o1000, part


def test_a_planted_directory_in_the_temporary_directory_is_not_used(base: Path) -> None:
    shared = base / "shared"
    plant(shared / "stepscope-runs")
    location, problems = create_as_victim(base, HOME=base / "none", TMPDIR=shared)
    assert_safe(location)
    assert location.parent.parent == shared
    assert location.parent.stat().st_mode & 0o777 == 0o700
    assert problems == [
        f"cannot create a run in {base}/stepscope-runs: Permission denied; cannot create a run in "
        f"{base}/none/.local/state/stepscope/runs: Permission denied. The run is in {location}."
    ]


@in_detail
def test_a_planted_directory_in_the_working_directory_is_not_used(base: Path) -> None:
    shared, state = base / "shared", base / "state"
    plant(shared / "stepscope-runs")
    state.mkdir()
    os.chown(state, VICTIM, VICTIM)
    location, (problem,) = create_as_victim(shared, XDG_STATE_HOME=state)
    assert_safe(location)
    assert location == state / "stepscope/runs/train"
    assert "another user has created it" in problem


@in_detail
def test_a_planted_directory_for_state_is_not_used(base: Path) -> None:
    """In containers, the home directory can be /tmp."""
    shared = base / "shared"
    plant(shared / ".local")
    location, (problem,) = create_as_victim(base, HOME=shared, TMPDIR=shared, XDG_STATE_HOME=Path())
    assert_safe(location)
    assert f"{shared}/.local belongs to another user" in problem


@in_detail
def test_without_any_place_for_a_run_no_spool_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs to make a mount namespace")
    script = (
        "mount -t tmpfs tmpfs /dev/shm && mount --bind /tmp /tmp && "
        "mount -o remount,bind,ro /tmp && mount -t tmpfs -o ro tmpfs /var/tmp && "
        f"cd {tmp_path} && XDG_STATE_HOME={tmp_path} {' '.join(STEPSCOPE)} run -- echo job; "
        "ls -A /dev/shm"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    if done.stderr.startswith(("unshare", "mount")):
        pytest.skip(f"mount namespaces are not allowed here: {done.stderr.strip()}")
    assert done.stdout == "job\n"
    assert "The job is not recorded" in done.stderr
