"""Run of one job, as its launcher sees it: its command, its place, who shares it, and its end.

Sharing of one run by the launchers of a job: who joins, as which node, who writes the verdict. A
job of several launchers has an identity that is the same on all of its nodes
(`stepscope.job_environment`). The first launcher creates the run, the others join it. Each has a
node of its own in the run. The node that holds the lease evaluates rules and writes the verdict.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stepscope import comparison, errors, job_environment, monitor, schema, store
from stepscope.cli.job.launcher import stop_is_pending
from stepscope.cli.job.places import RunDirectory, remove_if_empty
from stepscope.cli.job.staging import Staging, finish_upload, remove_staging
from stepscope.cli.output import locate, print_rows, say, suggest
from stepscope.cli.startup import one_thread_in_numpy, working_directory

if TYPE_CHECKING:
    from stepscope.monitor import UploadEnd
    from stepscope.run import Run


class JobRun(msgspec.Struct, frozen=True):
    """Run of a job."""

    location: Path
    """Directory into which this machine records."""
    staging: Staging | None = None
    """Set if that is uploaded to an object store."""
    launcher: schema.LauncherInfo | None = None
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
        cls,
        directory: RunDirectory,
        staging: Staging | None,
        identity: job_environment.JobIdentity | None,
    ) -> JobRun:
        """Register this launcher, if the job has several.

        Raises:
            OSError: the run cannot be written.
        """
        if identity is None:
            return cls(directory.path, staging)
        registration = monitor.register_launcher(directory.path)
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
        (self.location / store.RUN_KEY).unlink(missing_ok=True)
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
            say(f"The other nodes of the job are unknown: {errors.explain_os_error(error)}.")
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


def check_command(command: Sequence[str]) -> None:
    """Find mistakes before the run directory is created.

    Raises:
        UsageError: the command or the script cannot be found.
    """
    program = command[0]
    if shutil.which(program) is None:
        script = Path(program)
        if script.suffix == ".py" and script.is_file():
            python = "python" if shutil.which("python") else "python3"
            raise errors.UsageError(
                f"{program} is not executable. Run it with: stepscope run -- {python} {program}"
            )
        if program == "python" and shutil.which("python3"):
            suggestion = shlex.join(["python3", *command[1:]])
            raise errors.UsageError(
                f"python: command not found. python3 is available: stepscope run -- {suggestion}"
            )
        raise errors.UsageError(f"Command {program!r} not found; check its spelling and PATH.")
    if Path(program).name.startswith("python"):
        script_name = next((word for word in command[1:] if not word.startswith("-")), None)
        direct = len(command) > 1 and command[1] == script_name
        if direct and script_name and not Path(script_name).exists():
            raise errors.UsageError(
                f"The script {script_name} does not exist in {working_directory()}."
            )


OTHERS_TIMEOUT_S = store.HEARTBEAT_TIMEOUT_S + 10.0
"""Time for which the holder of the lease waits for other nodes: longer than they wait for it."""
LOST_AFTER_S = 15.0
"""Time without a heartbeat, of which there is one every five seconds, after which the launcher does
not wait for a node."""
SILENT_AFTER_S = 6.0
"""The same for a node that seems to have been silent before."""
NOTICE_AFTER_S = 3.0
POLL_S = 0.2


def find_identity(job: str | None, command: Sequence[str]) -> job_environment.JobIdentity | None:
    """Identify the job of a launcher.

    Args:
        job: the value of --job.
        command: the command of the job.

    Returns:
        None for a job of one launcher.

    Raises:
        UsageError: the value of --job is empty.
    """
    if job is None:
        return job_environment.identify_job(os.environ, command)
    if not job.strip():
        raise errors.UsageError("--job needs a name that is the same on all nodes of the job.")
    return job_environment.JobIdentity("", job.strip(), False)


def describe_registration(
    directory: RunDirectory, job: str, registration: monitor.Registration, shown: str | Path
) -> list[str]:
    """Say in sentences what a user may not expect of a launcher.

    Args:
        directory: directory of the run.
        job: the job.
        registration: the launcher.
        shown: location of the run for the user.
    """
    launcher, neighbours = registration
    sentences = []
    if directory.is_joined:
        restart = "" if launcher.incarnation == 1 else f", incarnation {launcher.incarnation}"
        sentences = [f"Joined the run {shown} of the job {job} as node {launcher.node}{restart}."]
    run = store.SharedRun(directory.path)
    twins = [
        neighbour
        for neighbour in neighbours
        if neighbour.host == launcher.host
        and not monitor.Participant(neighbour, run.read_status(neighbour.node)).is_over()
    ]
    same_slot = [neighbour for neighbour in twins if neighbour.slot == launcher.slot]
    if same_slot:
        sentences.append(
            f"Another launcher of this job runs as {launcher.slot} (process {same_slot[0].pid}): "
            f"both record, as nodes {same_slot[0].node} and {launcher.node}. If they are different "
            "machines, set STEPSCOPE_NODE on each; if not, end one of them."
        )
    elif twins:
        sentences.append(
            f"{launcher.host} has {len(twins) + 1} launchers of this job, each of which samples "
            "the machine. Start one per machine, for example of torchrun, to save that."
        )
    return sentences


def await_turn(
    location: str | Path,
    node: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until it is clear which launcher writes the verdict, after the job has ended here.

    The holder of the lease waits for the other nodes. The others leave as soon as the holder shows
    a sign of life; they take the lease if it shows none.

    Returns:
        True if this launcher writes the verdict.
    """
    run, heartbeats = store.SharedRun(location), store.Heartbeats(clock)
    start_s, is_announced, first_heartbeat = clock(), False, None
    while not stop_is_pending():
        lease = run.read_lease()
        if lease is None:
            if not run.take_lease(1, node):  # an object store may list it late
                sleep(POLL_S)
            continue
        if lease.node == node:
            _await_others(run, node, heartbeats, clock=clock, sleep=sleep)
            return True
        status = run.read_status(lease.node)
        heartbeat = None if status is None else status.heartbeat_ns
        if status is not None and status.state.is_final:
            return False
        silence_s = heartbeats.observe(lease.node, heartbeat)
        if first_heartbeat not in {None, heartbeat}:
            return False
        first_heartbeat = heartbeat
        if silence_s >= store.HEARTBEAT_TIMEOUT_S:
            run.take_lease(lease.number + 1, node)
        elif clock() - start_s > 2 * NOTICE_AFTER_S and not is_announced:
            say(
                f"Waiting for a heartbeat of node {lease.node}, which writes the verdict; after "
                f"{store.HEARTBEAT_TIMEOUT_S:.0f} s this node does."
            )
            is_announced = True
        sleep(POLL_S)
    return False


def _await_others(
    run: store.SharedRun,
    node: str,
    heartbeats: store.Heartbeats,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Wait until all nodes have ended or are lost, up to a time limit."""
    start_s, is_announced = clock(), False
    while not stop_is_pending():
        running = [
            participant.launcher.node
            for participant in monitor.read_participants(run)
            if participant.launcher.node != node and _is_awaited(participant, heartbeats)
        ]
        waited_s = clock() - start_s
        if not running:
            return
        if waited_s > OTHERS_TIMEOUT_S:
            say(
                f"The job still runs on node {', '.join(running)}: the verdict is of the records "
                "so far, and another one follows at its end."
            )
            return
        if waited_s > NOTICE_AFTER_S and not is_announced:
            say(f"Waiting for the last records of node {', '.join(running)}.")
            is_announced = True
        sleep(POLL_S)


def _is_awaited(participant: monitor.Participant, heartbeats: store.Heartbeats) -> bool:
    status = participant.status
    if status is not None and status.state.is_final:
        return False
    heartbeat = None if status is None else status.heartbeat_ns
    silence_s = heartbeats.observe(participant.launcher.node, heartbeat)
    seems_silent = status is not None and status.is_silent(time.time_ns())
    return silence_s < (SILENT_AFTER_S if seems_silent else LOST_AFTER_S)


def _find_last_run(run: Run, location: str | Path) -> str | None:
    """Set a run beside the last one of its command; None where that is impossible."""
    if store.is_remote(location):
        return None
    try:
        last = comparison.find_last_run(run, Path(location))
        return None if last is None else comparison.describe_last_run(run, last)
    except Exception:  # noqa: BLE001 - the verdict comes first
        return None


def import_verdict() -> None:
    """Import what `conclude` needs."""
    with one_thread_in_numpy():
        from stepscope.cli.writers.verdict_screen import print_job_verdict  # noqa: F401
        from stepscope.diagnosis import diagnose  # noqa: F401
        from stepscope.views import summarize_job  # noqa: F401


def conclude(location: str | Path, *, as_json: bool, shown: str | Path | None = None) -> None:
    """Diagnose the run of a job that has ended, store the verdict and print it.

    Args:
        location: the run.
        as_json: print the verdict as JSON.
        shown: location of the run for the user, if it is another one.
    """
    shown = shown or location
    try:
        with one_thread_in_numpy():
            from stepscope import comparison, views
            from stepscope.cli.writers.verdict_screen import print_job_verdict
            from stepscope.rule_feed import make_verdict
            from stepscope.run import Run, size_of
            from stepscope.store import RunWriter, open_run

        run = Run(open_run(location))
        verdict = make_verdict(run)
        # Stored first: the terminal may be closed or full.
        try:
            RunWriter(location, monitor.node_name()).put_document("findings", "verdict", verdict)
        except OSError as error:
            say(f"The verdict is not stored in the run: {errors.explain_os_error(error)}.")
        if as_json:
            print_rows(verdict, "verdict")
        else:
            print_job_verdict(verdict, shown, _find_last_run(run, location))
        with suppress(Exception):  # the list of jobs, or of the fleet, summarizes it again
            views.summarize_job(run, size_of(location))
            comparison.get_summary(run)
    except Exception as error:  # noqa: BLE001 - the job's exit status comes first
        explain_no_verdict(error, shown)


def explain_no_verdict(error: Exception, shown: str | Path) -> None:
    """Print why there is no verdict at the end of a job, and how to get it."""
    again = suggest("diagnose", locate(shown))
    reason = errors.explain_os_error(error).removesuffix(".")
    say(f"The verdict is not available: {reason}. Try: {again}")
