"""Run of one job, as its launcher sees it: where it is recorded, and where its user finds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.output import say
from stepscope.cli.places import RunDirectory, remove_if_empty
from stepscope.cli.shared_run import await_turn, describe_registration
from stepscope.cli.staging import Staging, finish_upload, remove_staging
from stepscope.cli.suggestion import locate, suggest
from stepscope.errors import explain_os_error
from stepscope.job_environment import JobIdentity
from stepscope.monitor import register_launcher
from stepscope.schema import LauncherInfo
from stepscope.store import RUN_KEY

if TYPE_CHECKING:
    from stepscope.monitor import UploadEnd


@dataclass(frozen=True, slots=True)
class JobRun:
    """Run of a job."""

    location: Path
    """Directory into which this machine records."""
    staging: Staging | None = None
    """Set if that is uploaded to an object store."""
    launcher: LauncherInfo | None = None
    """This launcher, in a run of several."""

    @property
    def name(self) -> str | Path:
        """Location of the run for its user."""
        return self.location if self.staging is None else self.staging.url

    @property
    def node(self) -> str | None:
        """Node of this launcher in a run of several; None in a run of one."""
        return None if self.launcher is None else self.launcher.node

    @classmethod
    def register(
        cls, directory: RunDirectory, staging: Staging | None, identity: JobIdentity | None
    ) -> JobRun:
        """Register this launcher, if the job has several.

        Raises:
            OSError: the run cannot be written.
        """
        if identity is None:
            return cls(directory.path, staging)
        registration = register_launcher(directory.path)
        run = cls(directory.path, staging, registration.launcher)
        for sentence in describe_registration(directory, identity.text, registration, run.name):
            say(sentence)
        return run

    def remove_unstarted(self) -> None:
        """Remove the files of a job that could not be started."""
        if self.launcher is not None:  # others may have joined the run
            return
        if self.staging is not None:
            remove_staging(self.staging)
        (self.location / RUN_KEY).unlink(missing_ok=True)
        remove_if_empty(self.location)

    def upload_records(self, complete: bool | None) -> UploadEnd | None:
        """Upload the records of this machine before the verdict, if that is of the records of
        several machines; None if it is not.

        Args:
            complete: True if the recording of this machine is complete.
        """
        if self.staging is None or self.launcher is None or not complete:
            return None
        return finish_upload(self.staging)

    def find_records(self, end: UploadEnd | None) -> str | Path:
        """Return the location whose records the verdict is of.

        Args:
            end: result of `upload_records`.
        """
        return self.location if end is None or not end.is_visible else end.url

    def has_turn(self, complete: bool | None, location: str | Path, *, quiet: bool) -> bool:
        """Return True if this launcher writes the verdict, as the only one of the job, or the one
        with the lease.

        Args:
            complete: as above; None if records are missing.
            location: run in which the launchers agree on it.
            quiet: do not say that another one does.
        """
        if self.launcher is None or complete is None:
            return True
        try:
            if await_turn(location, self.launcher.node):
                return True
        except Exception as error:  # noqa: BLE001 - the job's exit status comes first
            say(f"The other nodes of the job are unknown: {explain_os_error(error)}.")
            return True
        if not quiet:
            diagnose = suggest("diagnose", locate(self.name))
            say(f"Another node writes the verdict of this job. It will be in the run: {diagnose}")
        return False

    def conclude(
        self, complete: bool | None, end: UploadEnd | None, *, is_read: bool = False
    ) -> None:
        """Upload the rest of a run for an object store, unless its monitor still does, and remove
        what is uploaded.

        Args:
            complete: as above.
            end: result of `upload_records`, after which this machine has nothing to add.
            is_read: another process still reads the recording, and may add findings: it stays.
        """
        if self.staging is None or not complete:
            return
        if end is None:
            end = finish_upload(self.staging)
        if end.complete and is_read:
            say(
                f"The recording stays in {self.staging.directory} while rules are evaluated. "
                f"Upload their findings, and remove it, with: {self.staging.recovery}"
            )
        elif end.complete:
            from stepscope.monitor import discard_staging

            discard_staging(self.staging.directory)
