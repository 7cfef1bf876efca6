"""Default locations of a run and its spool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepscope.monitor import Handshake

RUNS_DIRECTORY = "stepscope-runs"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a scratch file


def new_run_id(command: Sequence[str]) -> str:
    """Make a name that sorts by time and contains the script: 20261120-142044-train."""
    script = next((word for word in command[1:] if word.endswith(".py")), command[0])
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(script).stem)[:40] or "job"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{stem}"


def run_locations(run_id: str) -> Iterator[Path]:
    """Yield candidate locations of a run: the working directory first, then the temporary one."""
    for attempt in ("", *(f"-{n}" for n in range(2, 100))):
        yield Path.cwd() / RUNS_DIRECTORY / f"{run_id}{attempt}"
    for temporary in temporary_directories():
        yield temporary / RUNS_DIRECTORY / f"{run_id}-{os.getpid()}"


def temporary_directories() -> Iterator[Path]:
    """Yield the temporary directory if one is writable."""
    try:
        yield Path(tempfile.gettempdir())
    except FileNotFoundError:
        return


def make_spool(
    requested: str | None, run_id: str, limit_bytes: int
) -> tuple[Path | None, list[str]]:
    """Make the directory of the span logs; return it and the problems found.

    Memory is preferred to disk: a store into a mapped page of a busy disk can wait for it. The
    shared-memory file system is left alone where it is small, as in most containers, because
    DataLoader workers pass their batches through it.
    """
    problems = []
    for base in _spool_bases(requested, limit_bytes):
        path = base / f"stepscope-{os.getuid()}-{run_id}-{os.getpid()}"
        try:
            base.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            Handshake(path).reserve()
        except OSError as error:
            problems.append(f"cannot create the spool in {base}: {error.strerror or error}")
            continue
        return path, problems
    return None, problems


def _spool_bases(requested: str | None, limit_bytes: int) -> Iterator[Path]:
    if requested is not None:
        yield Path(requested).absolute()  # the job may change its directory
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free >= 4 * limit_bytes:
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
