"""Sharing of one run by the launchers of a job: who joins, as which node, who writes the verdict.

A job of several launchers has an identity that is the same on all of its nodes
(`stepscope.job_environment`). The first launcher creates the run, the others join it. Each has a
node of its own in the run. The node that holds the lease evaluates rules and writes the verdict.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stepscope.cli.launcher import stop_is_pending
from stepscope.cli.output import say
from stepscope.cli.places import RunDirectory
from stepscope.errors import UsageError
from stepscope.job_environment import JobIdentity, identify_job
from stepscope.monitor import Participant, Registration, read_participants
from stepscope.store import HEARTBEAT_TIMEOUT_S, Heartbeats, SharedRun

OTHERS_TIMEOUT_S = HEARTBEAT_TIMEOUT_S + 10.0
"""Time for which the holder of the lease waits for other nodes: longer than they wait for it."""
LOST_AFTER_S = 15.0
"""Time without a heartbeat, of which there is one every five seconds, after which the launcher does
not wait for a node."""
SILENT_AFTER_S = 6.0
"""The same for a node that seems to have been silent before."""
NOTICE_AFTER_S = 3.0
POLL_S = 0.2


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


def describe_registration(
    directory: RunDirectory, job: str, registration: Registration, shown: str | Path
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
    run = SharedRun(directory.path)
    twins = [
        neighbour
        for neighbour in neighbours
        if neighbour.host == launcher.host
        and not Participant(neighbour, run.read_status(neighbour.node)).is_over()
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
            for participant in read_participants(run)
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


def _is_awaited(participant: Participant, heartbeats: Heartbeats) -> bool:
    status = participant.status
    if status is not None and status.state.is_final:
        return False
    heartbeat = None if status is None else status.heartbeat_ns
    silence_s = heartbeats.observe(participant.launcher.node, heartbeat)
    seems_silent = status is not None and status.is_silent(time.time_ns())
    return silence_s < (SILENT_AFTER_S if seems_silent else LOST_AFTER_S)
