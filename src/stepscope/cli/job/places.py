"""Default locations of a run and its spool."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stepscope import errors, job_environment, monitor, schema, store
from stepscope.capture.kineto_daemon import make_directory
from stepscope.cli.job.staging import Staging, state_home
from stepscope.cli.startup import working_directory
from stepscope.spool import (
    SHARED_MEMORY_FACTOR,
    ScheduledWindows,
    reserve_censuses,
    reserve_refusals,
    write_recording_end,
    write_schedules,
)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a scratch file


def new_run_id(command: Sequence[str], identity: job_environment.JobIdentity | None = None) -> str:
    """Make a name that sorts by time and contains the script: 20261120-142044-train. That of a job
    of several launchers follows from its identity, so that all use the same: slurm-4711.0."""
    if identity is not None:
        return identity.run_name
    script = next((word for word in command[1:] if word.endswith(".py")), command[0])
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(script).stem)[:40] or "job"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{stem}"


class RunDirectory(NamedTuple):
    """Directory of a run."""

    path: Path
    is_joined: bool
    """True if another launcher of the job has created it."""


def make_run(
    out: str | None,
    info: schema.RunInfo,
    problems: list[str],
    *,
    spool: Path | None,
    staging: Staging | None = None,
    is_shared: bool = False,
    identity: job_environment.JobIdentity | None = None,
) -> RunDirectory | None:
    """Create the run directory: the one of --out, else in the first directory that can be written.
    If another launcher of the same job has created it, join that run.

    Args:
        out: the directory of --out.
        info: description of the run; the name of a default directory gets a number if it is taken.
        problems: receives sentences about the directories that cannot be used.
        spool: the spool of the run, which is removed if there is no run.
        staging: the staging directory of a run for an object store, which --out names.
        is_shared: let the umask decide who may read the directory; else only its owner may.
        identity: the job, if it has several launchers.

    Returns:
        None if there is no such directory.

    Raises:
        UsageError: the one of --out cannot be created.
        RunExistsError: it holds a run of another job.
    """
    location = None
    shown = None if staging is None else staging.url
    maker = _RunMaker(info, is_shared=is_shared, identity=identity, shown=shown)
    try:
        if staging is not None:
            location = _create_staged_run(staging, maker)
        elif out is None:
            location = _create_default_run(maker, problems)
        else:
            location = _create_requested_run(out, maker)
    finally:
        if location is None and spool is not None:
            monitor.remove_spool(spool)
    return None if location is None else RunDirectory(location, maker.has_joined)


class _RunMaker:
    """Creates the run of a job, or joins the one that another launcher of the job has created."""

    def __init__(
        self,
        info: schema.RunInfo,
        *,
        is_shared: bool,
        identity: job_environment.JobIdentity | None,
        shown: str | None,
    ) -> None:
        self._shown = shown
        self.run_id = info.run_id
        self.has_joined = False
        self._info = info
        self._is_shared = is_shared
        self._identity = identity

    def make(self, location: str | Path) -> None:
        """Create a run.

        Raises:
            RunExistsError: the directory holds a run of another job.
            UsageError: a file is in the way.
            OSError: the directory cannot be written.
        """
        try:
            store.create_run(location, self._info, is_shared=self._is_shared)
        except errors.RunExistsError:
            monitor.check_join(location, self._identity, self._shown)
            self.has_joined = True


def _create_requested_run(out: str, maker: _RunMaker) -> Path:
    _check_out(out)
    try:
        maker.make(out)
    except OSError as error:
        raise errors.UsageError(
            f"Cannot create the run directory {out}: {error.strerror}. Pass another one to --out."
        ) from None
    return Path(out).absolute()


def _create_staged_run(staging: Staging, maker: _RunMaker) -> Path:
    try:
        staging.prepare()
        maker.make(staging.directory)
    except OSError as error:
        raise errors.UsageError(
            f"Cannot create the staging directory {staging.directory}: {error.strerror}. Pass "
            "another one to --staging."
        ) from None
    return staging.directory


def _create_default_run(maker: _RunMaker, problems: list[str]) -> Path | None:
    obstacles: list[str] = []
    for directory in run_directories(obstacles):
        try:
            location = _create_new(directory, maker)
        except OSError as error:
            obstacles.append(f"cannot create a run in {directory}: {error.strerror}")
            remove_if_empty(directory)
            continue
        if obstacles:
            problems.append(f"{'; '.join(obstacles)}. The run is in {location}.")
        return location
    problems.extend(obstacles)
    return None


def _create_new(directory: Path, maker: _RunMaker) -> Path:
    name, number = maker.run_id, 1
    while True:
        try:
            maker.make(directory / name)
        except errors.RunExistsError:
            number += 1
            name = f"{maker.run_id}-{number}"
        else:
            return directory / name


def _check_out(out: str) -> None:
    """Check that a directory can become a run.

    Raises:
        UsageError: it contains other files.
    """
    path = Path(out)
    # Another launcher of the job may be writing run.json, under a hidden name at first.
    is_empty = not path.is_dir() or all(p.name.startswith(".run.json.") for p in path.iterdir())
    if not is_empty and not (path / "run.json").exists():
        raise errors.UsageError(f"The directory {out} is not empty; pass a new one to --out.")


def remove_if_empty(directory: Path) -> None:
    """Remove a directory unless it contains anything."""
    try:
        directory.rmdir()
    except OSError:
        pass


def run_directories(problems: list[str]) -> Iterator[Path]:
    """Create and yield directories for runs: in the working directory, else of this user alone.

    Args:
        problems: receives a sentence about each directory that cannot be used.
    """
    for directory, make in (
        (working_directory() / job_environment.RUNS_DIRECTORY, _make_in_working_directory),
        (private_runs_directory(), _make_private),
    ):
        try:
            yield make(directory)
        except OSError as error:
            problems.append(f"cannot create a run in {directory}: {error.strerror}")
    for temporary in temporary_directories():
        yield Path(tempfile.mkdtemp(prefix="stepscope-runs-", dir=temporary))


def private_runs_directory() -> Path:
    """Return the directory of runs that have none in the working directory."""
    return state_home() / "runs"


def _make_in_working_directory(directory: Path) -> Path:
    """Create a directory, unless another user has done so in a place where everyone can, like /tmp:
    its owner could redirect the files of a run by links.

    Raises:
        OSError: as above, or it cannot be created.
    """
    directory.mkdir(exist_ok=True)
    is_open = directory.parent.stat().st_mode & stat.S_IWOTH
    if is_open and directory.lstat().st_uid not in {0, os.geteuid()}:
        raise PermissionError(errno.EPERM, "another user has created it")
    return directory


def _make_private(directory: Path) -> Path:
    """Create a directory that no other user can replace; return its path without links.

    Raises:
        OSError: it cannot be created, or a directory above it is not safe.
    """
    directory = directory.resolve()
    _check_owners(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owners(directory)  # again: another user may have created a part of the path meanwhile
    return directory


def _check_owners(directory: Path) -> None:
    """Check the parts of a path without links that exist.

    Raises:
        PermissionError: another user owns a part, or everyone can replace what it contains.
    """
    for part in (directory, *directory.parents):
        try:
            status = part.lstat()
        except FileNotFoundError:
            continue
        if status.st_uid not in {0, os.geteuid()}:
            raise PermissionError(errno.EPERM, f"{part} belongs to another user")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(errno.EPERM, f"everyone can write to {part}")


def temporary_directories() -> Iterator[Path]:
    """Yield the temporary directory if one is writable."""
    try:
        yield Path(tempfile.gettempdir())
    except FileNotFoundError:
        return


def make_spool(
    requested: str | None,
    run_id: str,
    limit_bytes: int,
    prepare: Callable[[Path], None] = lambda spool: None,
) -> tuple[Path | None, list[str]]:
    """Make the directory of the span logs; return it and the problems found.

    Memory is preferred to disk: a store into a mapped page of a busy disk can wait for it. The
    shared-memory file system is left alone where it is small, as in most containers, because
    DataLoader workers pass their batches through it.

    Args:
        requested: directory that contains it; None for a default one.
        run_id: name of the run.
        limit_bytes: size limit of the span logs.
        prepare: writes what the job needs into a spool; the next one is tried where it cannot.
    """
    problems = []
    for base in spool_bases(requested, limit_bytes):
        path = base / f"stepscope-{os.getuid()}-{run_id}-{os.getpid()}"
        try:
            base.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)  # it may be the spool of another job
            try:
                monitor.Handshake(path).reserve()
                reserve_refusals(str(path))
                reserve_censuses(str(path))
                prepare(path)
            except OSError:
                monitor.remove_spool(path)
                raise
        except OSError as error:
            problems.append(f"cannot create the spool in {base}: {error.strerror or error}")
            continue
        return path, problems
    return None, problems


def prepare_spool(spool: Path, windows: monitor.WindowSettings, duration_s: float | None) -> None:
    """Write into a new spool what the processes of the job read there.

    Args:
        duration_s: time for which they are recorded; None for no limit.

    Raises:
        OSError: the spool cannot be written.
    """
    kineto = make_directory() if windows.enabled else None
    if kineto is not None:
        try:
            (spool / monitor.KINETO_LINK).symlink_to(kineto)
        except OSError:
            shutil.rmtree(kineto, ignore_errors=True)
            raise
    by_steps = [s for s in windows.schedules if s.first_step is not None]
    if by_steps:
        write_schedules(str(spool), map(ScheduledWindows.copy, by_steps))
    if duration_s is not None:
        write_recording_end(str(spool), time.monotonic_ns() + round(1e9 * duration_s))


def spool_bases(requested: str | None, limit_bytes: int) -> Iterator[Path]:
    """Yield directories for a spool, the preferred one first."""
    if requested is not None:
        yield Path(requested).absolute()  # the job may change its directory
    if (
        SHARED_MEMORY.is_dir()
        and shutil.disk_usage(SHARED_MEMORY).free >= SHARED_MEMORY_FACTOR * limit_bytes
    ):
        yield SHARED_MEMORY
    yield from temporary_directories()


def git_revision() -> str | None:
    """Return the commit of the working directory, None outside git.

    It ends in '-dirty' if there are uncommitted changes.
    """
    try:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, timeout=5, check=True
    )
    return done.stdout.strip()
