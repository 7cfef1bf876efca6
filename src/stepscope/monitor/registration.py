"""Registration of a launcher in the run of its job, and the lease of that run.

A launcher is a `stepscope run`, or a script that profiles itself. The first of a job creates the
run, the others join it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope import errors, job_environment, schema, spool, store
from stepscope.monitor.host import node_name
from stepscope.quantities import duration

CONFIRM_S = 6.0
"""Time in which a node that seems to be silent by a clock that may differ sends another heartbeat,
if it runs."""
POLL_S = 0.2


class Registration(NamedTuple):
    """A launcher, and the other launchers of the run, its neighbours.

    Of two that register at the same time, at least one is among the neighbours of the other.
    """

    launcher: schema.LauncherInfo
    neighbours: list[schema.LauncherInfo]

    @property
    def node(self) -> str:
        """Name of its node in the run."""
        return self.launcher.node


class Participant(msgspec.Struct, frozen=True):
    """A registered launcher with the status of its job; None before the first heartbeat."""

    launcher: schema.LauncherInfo
    status: schema.JobStatus | None

    @property
    def incarnation(self) -> int:
        """Latest incarnation with a process of it."""
        reached = 1 if self.status is None else self.status.incarnation
        return max(self.launcher.incarnation, reached)

    @property
    def is_known_here(self) -> bool:
        """True if this machine can tell whether the launcher runs."""
        is_final = self.status is not None and self.status.state.is_final
        return is_final or self.launcher.machine == spool.machine_id()

    def is_over(self) -> bool:
        """Return True if the launcher has ended, as far as this machine can tell. Of another
        machine, whose clock may differ, heartbeats tell."""
        if self.status is not None and self.status.state.is_final:
            return True
        if self.launcher.machine == spool.machine_id():
            return spool.process_start_ticks(self.launcher.pid) != self.launcher.start_ticks
        if self.status is not None:
            return self.status.is_silent(time.time_ns())
        return time.time_ns() - self.launcher.registered_ns > 1e9 * store.HEARTBEAT_TIMEOUT_S

    def has_completed(self) -> bool:
        """Return True if the job has ended on its node without an error."""
        return self.status is not None and self.status.state is schema.JobState.COMPLETED


def check_join(
    location: str | Path,
    identity: job_environment.JobIdentity | None,
    shown: str | Path | None = None,
) -> None:
    """Check that a launcher may join an existing run.

    Args:
        location: the run.
        identity: the job of the launcher.
        shown: location that the user has named, if it is another one.

    Raises:
        RunExistsError: the run is of another job, or its job has completed.
    """
    run = store.SharedRun(location)
    info = run.read_info()
    location = shown or location
    recorded = None if info is None else info.job
    if identity is None and recorded is None:
        many = (job_environment.read_ranks().world_size or 1) > 1
        hint = ", or name the job of its ranks with --job" if many else ""
        raise errors.RunExistsError(f"{location} already holds a run. Use a new directory{hint}.")
    if identity is None:
        raise errors.RunExistsError(
            f"{location} already holds a run of the job {recorded}, and this launcher belongs to "
            "no job of several launchers. Use a new directory, or name the job with --job."
        )
    if recorded is None:
        raise errors.RunExistsError(
            f"{location} already holds a run of a single launcher, and this launcher belongs to "
            f"the job {identity.text}. Use a new directory."
        )
    if recorded != identity.text:
        raise errors.RunExistsError(
            f"{location} already holds a run of the job {recorded}, and this launcher belongs to "
            f"the job {identity.text}. Use a new directory."
        )
    participants = read_participants(run)
    # The next job may have the same name where a person has chosen it.
    if not identity.is_unique and participants and all(p.has_completed() for p in participants):
        raise errors.RunExistsError(
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
    run = store.SharedRun(location)
    pid = os.getpid() if pid is None else pid
    host = node_name()
    rank = job_environment.read_ranks().rank
    slot = host if rank is None else f"{host} rank {rank}"
    participants = read_participants(run)
    incarnation = _choose_incarnation(run, participants, slot, sleep)
    launcher = run.register(
        host,
        lambda node: schema.LauncherInfo(
            node=node,
            host=host,
            slot=slot,
            incarnation=incarnation,
            registered_ns=time.time_ns(),
            machine=spool.machine_id(),
            pid=pid,
            start_ticks=spool.process_start_ticks(pid) or 0,
            parent=spool.process_parent(pid),
        ),
    )
    # Read after the registration: a launcher that registers meanwhile finds this one.
    return Registration(launcher, [n for n in run.list_launchers() if n.node != launcher.node])


def _choose_incarnation(
    run: store.SharedRun,
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
    run: store.SharedRun, participants: Sequence[Participant], sleep: Callable[[float], None]
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


def read_participants(run: store.SharedRun) -> list[Participant]:
    return [
        Participant(launcher, run.read_status(launcher.node)) for launcher in run.list_launchers()
    ]


MIN_CLOCK_DIFFERENCE_NS = 60_000_000_000
"""Difference of two clocks that is noted: far above the age of a new heartbeat."""


class LeaseKeeper:
    """Takes the lease for a node if no node has it, or its holder is silent.

    Silence is measured by the clock of this node alone, so that clocks that differ do no harm.

    Args:
        location: the run.
        node: this node, whose heartbeat keeps the lease.
        clock: monotonic time in seconds.
    """

    def __init__(
        self, location: str, node: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.note: str | None = None
        """A difference between the wall clocks of the holder and of this node, as a sentence."""
        self._heartbeat_by_node: dict[str, int | None] = {}
        self._run = store.SharedRun(location)
        self._node = node
        self._heartbeats = store.Heartbeats(clock)

    def poll(self) -> bool:
        """Take the lease if it is free; call with every heartbeat.

        Returns:
            True if this node holds it.

        Raises:
            OSError: the run cannot be read or written.
        """
        lease = self._run.read_lease()
        if lease is None:
            return self._run.take_lease(1, self._node)
        if lease.node == self._node:
            return True
        status = self._run.read_status(lease.node)
        # A job that has ended on the node of the holder sends no heartbeat any more, either.
        heartbeat_ns = None if status is None else status.heartbeat_ns
        self._compare_clocks(lease.node, heartbeat_ns)
        if self._heartbeats.observe(lease.node, heartbeat_ns) < store.HEARTBEAT_TIMEOUT_S:
            return False
        return self._run.take_lease(lease.number + 1, self._node)

    def _compare_clocks(self, holder: str, heartbeat_ns: int | None) -> None:
        """Note if the clock of a node differs: its latest heartbeat is at most seconds old if it is
        a new one."""
        is_first = holder not in self._heartbeat_by_node
        earlier_ns = self._heartbeat_by_node.get(holder)
        self._heartbeat_by_node[holder] = heartbeat_ns
        if is_first or heartbeat_ns is None or heartbeat_ns == earlier_ns:
            return
        ahead_ns = heartbeat_ns - time.time_ns()
        self.note = None
        if abs(ahead_ns) >= MIN_CLOCK_DIFFERENCE_NS:
            direction = "ahead of" if ahead_ns > 0 else "behind"
            self.note = (
                f"the clock of {holder} is {duration(abs(ahead_ns))} {direction} that of "
                f"{self._node}: times of the two nodes cannot be compared"
            )
