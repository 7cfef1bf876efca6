"""Incarnations of a job: a restart of its training processes begins the next one.

torchrun restarts the ranks of all nodes when one fails (`--max-restarts`) or a node joins, and a
launcher may be started again. No variable of the processes counts that for the whole job:
`TORCHELASTIC_RESTART_COUNT` is of one node, and membership changes do not increase it. So the
monitors count: each process claims its rank in an incarnation, and a rank that is taken by another
process begins the next incarnation. In a run of one launcher the claims stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from stepscope import schema, spool, store
from stepscope.monitor.process_logs import ProcessLogs

START_SPREAD_NS = 2_000_000_000
"""Time between the starts of the ranks of one incarnation on different nodes, by their clocks."""


class _Claims(Protocol):
    def list_incarnations(self) -> list[schema.Incarnation]: ...
    def open_incarnation(self, incarnation: schema.Incarnation) -> schema.Incarnation: ...
    def claim_rank(
        self, incarnation: int, rank: int, claim: schema.RankClaim
    ) -> schema.RankClaim: ...


class _LocalClaims:
    """Claims in a run of one launcher."""

    def __init__(self) -> None:
        self._incarnations: dict[int, schema.Incarnation] = {}
        self._claims: dict[tuple[int, int], schema.RankClaim] = {}

    def list_incarnations(self) -> list[schema.Incarnation]:
        return list(self._incarnations.values())

    def open_incarnation(self, incarnation: schema.Incarnation) -> schema.Incarnation:
        return self._incarnations.setdefault(incarnation.number, incarnation)

    def claim_rank(self, incarnation: int, rank: int, claim: schema.RankClaim) -> schema.RankClaim:
        return self._claims.setdefault((incarnation, rank), claim)


class _Member(msgspec.Struct, frozen=True):
    """A process of this node with its rank and incarnation."""

    process: ProcessLogs
    rank: int | None
    incarnation: int


class IncarnationCounter:
    """Assigns the processes of one node to incarnations.

    Args:
        location: the run.
        node: the node.
        launcher: its launcher in a run of several; None in a run of one.
        stored: processes that an earlier monitor of the node has assigned.
    """

    def __init__(
        self,
        location: str,
        node: schema.NodeInfo,
        launcher: schema.LauncherInfo | None,
        stored: Iterable[schema.ProcessInfo],
    ) -> None:
        self._node = node
        self._first = 1 if launcher is None else launcher.incarnation
        self._claims: _Claims = _LocalClaims() if launcher is None else store.SharedRun(location)
        self._stored = {p.process: p.incarnation for p in stored if p.node == node.node}
        self._members: dict[str, _Member] = {}
        self._twins: dict[str, tuple[ProcessLogs, ProcessLogs]] = {}

    @property
    def latest(self) -> int:
        """Latest incarnation with a process on this node."""
        members = (member.incarnation for member in self._members.values())
        return max([self._first, *self._stored.values(), *members])

    @property
    def notes(self) -> list[str]:
        """Ranks that two running processes of this node claim, one sentence each."""
        return [
            f"rank {self._members[later.name].rank} is recorded twice on {self._node.node}: by "
            f"process {earlier.pid} and by process {later.pid}, which run at the same time"
            for earlier, later in self._twins.values()
        ]

    def assign(self, processes: Iterable[ProcessLogs]) -> None:
        """Assign the processes that are new, in the order of their start. One that has recorded
        nothing but its stacks has none yet, as its rank may not be known.

        Raises:
            OSError: the run cannot be written; the next call continues.
        """
        new = [
            process
            for process in processes
            if process.name not in self._members
            and process.description
            and process.description.get("role") != spool.PROGRAM
        ]
        for process in sorted(new, key=_start_order):
            rank = process.description.get("rank")
            self._members[process.name] = _Member(process, rank, self._find(process, rank))

    def of(self, process: ProcessLogs) -> int:
        """Return the incarnation of a process; the latest for one that has told nothing yet."""
        member = self._members.get(process.name)
        return self.latest if member is None else member.incarnation

    def _find(self, process: ProcessLogs, rank: int | None) -> int:
        relative = self._find_relative(process, rank)
        if relative is not None:
            return relative.incarnation
        if rank is None:
            return self._first
        return self._claim(process, rank)

    def _find_relative(self, process: ProcessLogs, rank: int | None) -> _Member | None:
        """Find a process of this node that started this one, or was replaced by it (exec): they
        share their rank."""
        pids = {process.pid, process.description.get("parent_pid")}
        relatives = [
            member
            for member in self._members.values()
            if member.rank == rank
            and member.process.pid in pids
            and _start_order(member.process) < _start_order(process)
            and (member.process.pid != process.pid or member.process.key[1] == process.key[1])
        ]
        return max(relatives, key=lambda member: _start_order(member.process), default=None)

    def _claim(self, process: ProcessLogs, rank: int) -> int:
        """Claim a rank in the first incarnation that can be the one of the process."""
        world_size = process.description.get("world_size")
        started_ns = _started_ns(process) + self._node.epoch_offset_ns
        claim = schema.RankClaim(node=self._node.node, process=process.name)
        number = self._stored.get(process.name) or self._estimate(process, started_ns)
        while True:
            opened = self._claims.open_incarnation(
                schema.Incarnation(
                    number=number,
                    world_size=world_size,
                    started_ns=started_ns,
                    node=self._node.node,
                )
            )
            if opened.world_size == world_size:
                holder = self._claims.claim_rank(number, rank, claim)
                if holder.process == process.name:
                    return number
                twin = self._members.get(holder.process)
                if twin is not None and twin.process.is_alive() and process.is_alive():
                    self._twins[process.name] = twin.process, process
                    return number
            number += 1

    def _estimate(self, process: ProcessLogs, started_ns: int) -> int:
        """Return the lowest incarnation that a process can be of: the latest that had begun when it
        started, and none before those of earlier processes of this node. Of these, the ranks of one
        incarnation start together, so that one which has ended long before was of another."""
        numbers = [
            incarnation.number
            for incarnation in self._claims.list_incarnations()
            if incarnation.started_ns <= started_ns + START_SPREAD_NS
        ]
        latest_start_ns = started_ns - self._node.epoch_offset_ns - START_SPREAD_NS
        earlier = [
            member.incarnation
            + (_started_ns(member.process) < latest_start_ns and not member.process.is_alive())
            for member in self._members.values()
            if member.rank is not None and _start_order(member.process) < _start_order(process)
        ]
        return max([self._first, *numbers, *earlier])


def _started_ns(process: ProcessLogs) -> int:
    """Return the monotonic time at which a process began to record."""
    started_ns: int = process.description.get("started_monotonic_ns", 0)
    return started_ns


def _start_order(process: ProcessLogs) -> tuple[int, ...]:
    pid, ticks, serial = process.key
    return ticks, pid, serial
