"""Recording into an object store: the staging directory on this machine, and the end of its upload.

The library for object stores is imported by the monitor, and here only after the job has ended.
What only a run in an object store needs is imported where it is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stepscope import errors, job_environment, store
from stepscope.cli.job.launcher import stop_is_pending
from stepscope.cli.output import say, suggest

if TYPE_CHECKING:
    from stepscope.monitor import UploadEnd

staging_option = click.option(
    "--staging",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Local directory in which runs for an object store are recorded until they are uploaded. "
    "Default: ~/.local/state/stepscope/uploads.",
)


class Staging(msgspec.Struct, frozen=True):
    """Directory in which the run for a URL is recorded on this machine."""

    url: str
    directory: Path
    base: Path | None
    """Value of --staging; None for the default."""
    is_unique: bool = True
    """True if no other job can have the identity of this one."""

    def prepare(self) -> None:
        """Create the directory.

        Raises:
            OSError: it cannot be written.
        """
        from stepscope.store import UploadTarget, create_journal

        store.make_private_directory(self.directory)
        create_journal(self.directory, UploadTarget(url=self.url, is_unique=self.is_unique))

    @property
    def recovery(self) -> str:
        """Command that finishes the upload."""
        option = () if self.base is None else ("--staging", str(self.base.absolute()))
        return suggest("recover", *option, self.url)


def find_staging(url: str, base: Path | None) -> Staging:
    """Return the staging directory of a URL on this machine, which may not exist.

    Args:
        url: URL of a run.
        base: directory of staging directories; None for the default one.

    Raises:
        UsageError: it is not the URL of a bucket.
    """
    from stepscope.store import BucketLocation

    url = BucketLocation.parse(url).url
    name = hashlib.sha256(url.encode()).hexdigest()[:32]
    return Staging(url, (base or state_home() / "uploads").absolute() / name, base)


def plan_staging(
    out: str | None, base: Path | None, identity: job_environment.JobIdentity | None
) -> Staging | None:
    """Plan the recording of a job whose run is in an object store; None if it is a directory.

    Args:
        out: value of --out.
        base: value of --staging.
        identity: the job, if it has several launchers.

    Raises:
        UsageError: the URL is none of a bucket, or the library for object stores is missing.
        RunExistsError: the recording of an earlier job for this URL is not uploaded completely.
    """
    if out is None or not store.is_remote(out):
        return None
    staging = find_staging(out, base)
    if importlib.util.find_spec("obstore") is None:
        raise errors.UsageError(
            f"--out {out} needs obstore, which is not installed: pip install 'stepscope[remote]'."
        )
    if identity is None and (staging.directory / store.RUN_KEY).exists():
        raise errors.RunExistsError(
            f"{staging.url} is being recorded on this machine, or the upload of its recording was "
            f"interrupted. Use a new URL, or finish the upload with: {staging.recovery}"
        )
    unique = identity is None or identity.is_unique
    return Staging(staging.url, staging.directory, base, unique)


def find_staged(run: str, base: Path | None) -> Staging | None:
    """Return the staging directory that a URL, or its own path, names; None if there is none.

    Raises:
        UsageError: the URL is none of a bucket.
    """
    from stepscope.store import read_target

    if not store.is_remote(run):
        target = read_target(Path(run))
        return None if target is None else Staging(target.url, Path(run).absolute(), base)
    staging = find_staging(run, base)
    return None if read_target(staging.directory) is None else staging


def finish_upload(staging: Staging) -> UploadEnd:
    """Upload what is left of a recording that has ended, and say what is missing then."""
    from stepscope.monitor import BUSY, UploadEnd, Uploader

    try:
        uploader = Uploader(staging.directory)
        end = uploader.finish(
            should_stop=stop_is_pending,
            on_wait=lambda remaining: say(f"Uploading {remaining} to {staging.url}."),
        )
    except OSError as error:
        reason = errors.explain_os_error(error)
        end = UploadEnd(
            url=staging.url, complete=False, remaining_count=0, remaining_bytes=0, reason=reason
        )
    if not end.complete and end.reason != BUSY:
        say(explain_incomplete(staging, end))
    return end


def explain_incomplete(staging: Staging, end: UploadEnd) -> str:
    """Say what is not in the store, why, and how to finish the upload."""
    if end.is_refused:
        return (
            f"The run is not in the object store: {end.reason}. The recording is in "
            f"{staging.directory}, which is a complete run: move it, or copy it to another URL."
        )
    return (
        f"The run in {staging.url} is not complete: {end.remaining} are not uploaded, because "
        f"{end.reason}. The recording is in {staging.directory}. Finish the upload with: "
        f"{staging.recovery}"
    )


def remove_staging(staging: Staging) -> None:
    """Remove the staging directory of a job that did not start."""
    shutil.rmtree(staging.directory, ignore_errors=True)


def state_home() -> Path:
    """Return stepscope's directory for the state of programs, by the XDG base directory
    specification."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    state = base if base.is_absolute() else Path("~/.local/state").expanduser().absolute()
    return state / "stepscope"
