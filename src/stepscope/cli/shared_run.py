"""Sharing of one run by the launchers of a job: who joins, as which node, who writes the verdict.

A job of several launchers has an identity that is the same on all of its nodes
(`stepscope.job_environment`). The first launcher creates the run, the others join it. Each has a
node of its own in the run. The node that holds the lease evaluates rules and writes the verdict.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stepscope.cli.launcher import stop_is_pending
from stepscope.cli.output import say
from stepscope.errors import RunExistsError, UsageError
from stepscope.job_environment import JobIdentity, identify_job, read_ranks
from stepscope.monitor import node_name
from stepscope.schema import JobState, JobStatus, LauncherInfo
from stepscope.spool import process_start_ticks
from stepscope.store import HEARTBEAT_TIMEOUT_S, Heartbeats, SharedRun

OTHERS_TIMEOUT_S = HEARTBEAT_TIMEOUT_S + 10.0
"""Time for which the holder of the lease waits for other nodes: longer than they wait for it."""
LOST_AFTER_S = 15.0
"""Time without a heartbeat, of which there is one every five seconds, after which the launcher does
not wait for a node."""
SILENT_AFTER_S = 6.0
"""The same for a node that seems to have been silent before."""
CONFIRM_S = 6.0
"""Time in which a node that seems to be silent by a clock that may differ sends another heartbeat,
if it runs."""
NOTICE_AFTER_S = 3.0
POLL_S = 0.2


class Registration(NamedTuple):
    """A launcher, and the launchers of the run that had registered before it."""

    launcher: LauncherInfo
    earlier: list[LauncherInfo]

    @property
    def node(self) -> str:
        """Name of its node in the run."""
        return self.launcher.node


@dataclass(frozen=True, slots=True)
class _Participant:
    """A registered launcher with the status of its job; None before the first heartbeat."""

    launcher: LauncherInfo
    status: JobStatus | None

    @property
    def incarnation(self) -> int:
        """Latest incarnation with a process of it."""
        reached = 1 if self.status is None else self.status.incarnation
        return max(self.launcher.incarnation, reached)

    @property
    def is_known_here(self) -> bool:
        """True if this machine can tell whether the launcher runs."""
        is_final = self.status is not None and self.status.state.is_final
        return is_final or self.launcher.machine == _machine()

    def is_over(self) -> bool:
        """Return True if the launcher has ended, as far as this machine can tell. Of another
        machine, whose clock may differ, heartbeats tell."""
        if self.status is not None and self.status.state.is_final:
            return True
        if self.launcher.machine == _machine():
            return process_start_ticks(self.launcher.pid) != self.launcher.start_ticks
        if self.status is not None:
            return self.status.is_silent(time.time_ns())
        return time.time_ns() - self.launcher.registered_ns > 1e9 * HEARTBEAT_TIMEOUT_S

    def has_completed(self) -> bool:
        """Return True if the job has ended on its node without an error."""
        return self.status is not None and self.status.state is JobState.COMPLETED


def find_identity(job: str | None, command: Sequence[str]) -> JobIdentity | None:
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
        return identify_job(os.environ, command)
    if not job.strip():
        raise UsageError("--job needs a name that is the same on all nodes of the job.")
    return JobIdentity("", job.strip(), False)


def check_join(
    location: str | Path, identity: JobIdentity | None, shown: str | Path | None = None
) -> None:
    """Check that a launcher may join an existing run.

    Args:
        location: the run.
        identity: the job of the launcher.
        shown: location that the user has named, if it is another one.

    Raises:
        RunExistsError: the run is of another job, or its job has completed.
    """
    run = SharedRun(location)
    info = run.read_info()
    location = shown or location
    recorded = None if info is None else info.job
    if identity is None and recorded is None:
        many = (read_ranks().world_size or 1) > 1
        hint = ", or name the job of its ranks with --job" if many else ""
        raise RunExistsError(f"{location} already holds a run. Use a new directory{hint}.")
    if identity is None:
        raise RunExistsError(
            f"{location} already holds a run of the job {recorded}, and this launcher belongs to "
            "no job of several launchers. Use a new directory, or name the job with --job."
        )
    if recorded is None:
        raise RunExistsError(
            f"{location} already holds a run of a single launcher, and this launcher belongs to "
            f"the job {identity.text}. Use a new directory."
        )
    if recorded != identity.text:
        raise RunExistsError(
            f"{location} already holds a run of the job {recorded}, and this launcher belongs to "
            f"the job {identity.text}. Use a new directory."
        )
    participants = _read_participants(run)
    # The next job may have the same name where a person has chosen it.
    if not identity.is_unique and participants and all(p.has_completed() for p in participants):
        raise RunExistsError(
            f"{location} already holds a run of the job {recorded}, which has completed. "
            "Use a new directory."
        )


def register_launcher(location: Path, sleep: Callable[[float], None] = time.sleep) -> Registration:
    """Register this process as a launcher of the job of a run.

    Args:
        location: the run.
        sleep: waits for a number of seconds.

    Raises:
        OSError: the run cannot be written.
    """
    run = SharedRun(location)
    host = node_name()
    rank = read_ranks().rank
    slot = host if rank is None else f"{host} rank {rank}"
    participants = _read_participants(run)
    incarnation = _choose_incarnation(run, participants, slot, sleep)
    launcher = run.register(
        host,
        lambda node: LauncherInfo(
            node=node,
            host=host,
            slot=slot,
            incarnation=incarnation,
            registered_ns=time.time_ns(),
            machine=_machine(),
            pid=os.getpid(),
            start_ticks=process_start_ticks() or 0,
        ),
    )
    return Registration(launcher, [participant.launcher for participant in participants])


def describe_registration(
    location: Path, job: str, registration: Registration, shown: str | Path
) -> list[str]:
    """Say in sentences what the others do not expect; empty for the first launcher of a job.

    Args:
        location: the run.
        job: the job.
        registration: the launcher.
        shown: location of the run for the user.
    """
    launcher, earlier = registration
    if not earlier:
        return []
    restart = "" if launcher.incarnation == 1 else f", incarnation {launcher.incarnation}"
    sentences = [f"Joined the run {shown} of the job {job} as node {launcher.node}{restart}."]
    run = SharedRun(location)
    twins = [
        neighbour
        for neighbour in earlier
        if neighbour.host == launcher.host
        and not _Participant(neighbour, run.read_status(neighbour.node)).is_over()
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


def _choose_incarnation(
    run: SharedRun,
    participants: Sequence[_Participant],
    slot: str,
    sleep: Callable[[float], None],
) -> int:
    """Choose the lowest incarnation of the processes of a new launcher.

    A launcher that is started again begins the next one, unless another node has begun it.
    """
    numbers = [incarnation.number for incarnation in run.list_incarnations()]
    latest = max([1, *numbers, *(p.launcher.incarnation for p in participants)])
    same_slot = [p for p in participants if p.launcher.slot == slot]
    if same_slot:
        previous = same_slot[-1]
        return max(latest, previous.incarnation + 1) if previous.is_over() else latest
    is_restart = (
        bool(participants)
        and all(participant.is_over() for participant in participants)
        and not all(participant.has_completed() for participant in participants)
        and not _is_one_alive(run, participants, sleep)
    )
    return latest + is_restart


def _is_one_alive(
    run: SharedRun, participants: Sequence[_Participant], sleep: Callable[[float], None]
) -> bool:
    """Wait for another heartbeat of a node that seems to be silent by the clock of this one."""
    heartbeats = {
        participant.launcher.node: participant.status and participant.status.heartbeat_ns
        for participant in participants
        if not participant.is_known_here
    }
    for _ in range(round(CONFIRM_S / POLL_S) if heartbeats else 0):
        sleep(POLL_S)
        for node, heartbeat_ns in heartbeats.items():
            status = run.read_status(node)
            if status is not None and status.heartbeat_ns != heartbeat_ns:
                return True
    return False


def _read_participants(run: SharedRun) -> list[_Participant]:
    return [
        _Participant(launcher, run.read_status(launcher.node)) for launcher in run.list_launchers()
    ]


def _machine() -> str:
    """Identify this machine since its last start, and the space of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"unknown/{os.getpid()}"


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
    run, heartbeats = SharedRun(location), Heartbeats(clock)
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
        if silence_s >= HEARTBEAT_TIMEOUT_S:
            run.take_lease(lease.number + 1, node)
        elif clock() - start_s > 2 * NOTICE_AFTER_S and not is_announced:
            say(
                f"Waiting for a heartbeat of node {lease.node}, which writes the verdict; after "
                f"{HEARTBEAT_TIMEOUT_S:.0f} s this node does."
            )
            is_announced = True
        sleep(POLL_S)
    return False


def _await_others(
    run: SharedRun,
    node: str,
    heartbeats: Heartbeats,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Wait until all nodes have ended or are lost, up to a time limit."""
    start_s, is_announced = clock(), False
    while not stop_is_pending():
        running = [
            participant.launcher.node
            for participant in _read_participants(run)
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


def _is_awaited(participant: _Participant, heartbeats: Heartbeats) -> bool:
    status = participant.status
    if status is not None and status.state.is_final:
        return False
    heartbeat = None if status is None else status.heartbeat_ns
    silence_s = heartbeats.observe(participant.launcher.node, heartbeat)
    seems_silent = status is not None and status.is_silent(time.time_ns())
    return silence_s < (SILENT_AFTER_S if seems_silent else LOST_AFTER_S)
