"""Registration of a launcher in the run of its job: whether it may join, as which node, and in
which incarnation of the job.

A launcher is a `stepscope run`, or a script that profiles itself. The first of a job creates the
run, the others join it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import RunExistsError
from stepscope.job_environment import JobIdentity, read_ranks
from stepscope.monitor.host import node_name
from stepscope.schema import JobState, JobStatus, LauncherInfo
from stepscope.spool import machine_id, process_parent, process_start_ticks
from stepscope.store import HEARTBEAT_TIMEOUT_S, SharedRun

CONFIRM_S = 6.0
"""Time in which a node that seems to be silent by a clock that may differ sends another heartbeat,
if it runs."""
POLL_S = 0.2


class Registration(NamedTuple):
    """A launcher, and the other launchers of the run, its neighbours.

    Of two that register at the same time, at least one is among the neighbours of the other.
    """

    launcher: LauncherInfo
    neighbours: list[LauncherInfo]

    @property
    def node(self) -> str:
        """Name of its node in the run."""
        return self.launcher.node


@dataclass(frozen=True, slots=True)
class Participant:
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
        return is_final or self.launcher.machine == machine_id()

    def is_over(self) -> bool:
        """Return True if the launcher has ended, as far as this machine can tell. Of another
        machine, whose clock may differ, heartbeats tell."""
        if self.status is not None and self.status.state.is_final:
            return True
        if self.launcher.machine == machine_id():
            return process_start_ticks(self.launcher.pid) != self.launcher.start_ticks
        if self.status is not None:
            return self.status.is_silent(time.time_ns())
        return time.time_ns() - self.launcher.registered_ns > 1e9 * HEARTBEAT_TIMEOUT_S

    def has_completed(self) -> bool:
        """Return True if the job has ended on its node without an error."""
        return self.status is not None and self.status.state is JobState.COMPLETED


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
    participants = read_participants(run)
    # The next job may have the same name where a person has chosen it.
    if not identity.is_unique and participants and all(p.has_completed() for p in participants):
        raise RunExistsError(
            f"{location} already holds a run of the job {recorded}, which has completed. "
            "Use a new directory."
        )


def register_launcher(
    location: Path, pid: int | None = None, *, sleep: Callable[[float], None] = time.sleep
) -> Registration:
    """Register a process as a launcher of the job of a run.

    Args:
        location: the run.
        pid: the process; None for this one.
        sleep: waits for a number of seconds.

    Raises:
        OSError: the run cannot be written.
    """
    run = SharedRun(location)
    pid = os.getpid() if pid is None else pid
    host = node_name()
    rank = read_ranks().rank
    slot = host if rank is None else f"{host} rank {rank}"
    participants = read_participants(run)
    incarnation = _choose_incarnation(run, participants, slot, sleep)
    launcher = run.register(
        host,
        lambda node: LauncherInfo(
            node=node,
            host=host,
            slot=slot,
            incarnation=incarnation,
            registered_ns=time.time_ns(),
            machine=machine_id(),
            pid=pid,
            start_ticks=process_start_ticks(pid) or 0,
            parent=process_parent(pid),
        ),
    )
    # Read after the registration: a launcher that registers meanwhile finds this one.
    return Registration(launcher, [n for n in run.list_launchers() if n.node != launcher.node])


def _choose_incarnation(
    run: SharedRun,
    participants: Sequence[Participant],
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
    run: SharedRun, participants: Sequence[Participant], sleep: Callable[[float], None]
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


def read_participants(run: SharedRun) -> list[Participant]:
    return [
        Participant(launcher, run.read_status(launcher.node)) for launcher in run.list_launchers()
    ]
