"""Agreement of the launchers of one job on a run that they share, and age of heartbeats.

launchers/<node>.json                   a launcher, whose node has this name in the run
incarnations/<number>.json              a start of the training processes
rank-claims/<incarnation>-<rank>.json   the process that is this rank
leases/<number>.json                    the node that evaluates rules and writes the verdict
stops/<number>.json                     a stop of the job on one node, for the others

The age of a heartbeat is by the clock of the observer, or of the file system: the clocks of nodes
may differ by years.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from stepscope import schema
from stepscope.store import layout
from stepscope.store.documents import Document, RunDocuments, encode_document

LAUNCHERS = "launchers"
INCARNATIONS = "incarnations"
RANK_CLAIMS = "rank-claims"
LEASES = "leases"
STOPS = "stops"


class SharedRun(RunDocuments):
    """Run that several launchers write. Reads only small documents; imports no database.

    Failures of the environment (a full disk, an unreachable directory) raise OSError.
    """

    def read_info(self) -> schema.RunInfo | None:
        """Read `run.json`; None if it is missing or damaged."""
        return self._get(layout.RUN_KEY, schema.RunInfo)

    def read_status(self, node: str) -> schema.JobStatus | None:
        """Read the status of the job on a node; None before its monitor has written one."""
        return self._get(layout.status_key(node), schema.JobStatus)

    # --- launchers -----------------------------------------------------------------------------

    def list_launchers(self) -> list[schema.LauncherInfo]:
        """List the launchers in the order of their registration."""
        launchers = self._read_all(LAUNCHERS, schema.LauncherInfo)
        return sorted(launchers, key=lambda launcher: (launcher.registered_ns, launcher.node))

    def register(
        self, host: str, make: Callable[[str], schema.LauncherInfo]
    ) -> schema.LauncherInfo:
        """Register a launcher under the first free node name of its host.

        Args:
            host: name of the machine.
            make: makes the document for a node name.
        """
        number, node = 1, host
        while True:
            launcher = make(node)
            if self._add(LAUNCHERS, node, launcher):
                return launcher
            number += 1
            node = f"{host}~{number}"

    # --- incarnations --------------------------------------------------------------------------

    def list_incarnations(self) -> list[schema.Incarnation]:
        """List the incarnations by number."""
        incarnations = self._read_all(INCARNATIONS, schema.Incarnation)
        return sorted(incarnations, key=lambda incarnation: incarnation.number)

    def open_incarnation(self, incarnation: schema.Incarnation) -> schema.Incarnation:
        """Open an incarnation; returns the one of that number, which another node may have
        opened before."""
        name = str(incarnation.number)
        if self._add(INCARNATIONS, name, incarnation):
            return incarnation
        return self._get(layout.document_key(INCARNATIONS, name), schema.Incarnation) or incarnation

    def claim_rank(self, incarnation: int, rank: int, claim: schema.RankClaim) -> schema.RankClaim:
        """Claim a rank of an incarnation for a process; returns the claim that holds."""
        name = f"{incarnation}-{rank}"
        if self._add(RANK_CLAIMS, name, claim):
            return claim
        return self._get(layout.document_key(RANK_CLAIMS, name), schema.RankClaim) or claim

    def find_latest_incarnation(self) -> int:
        """Find the number of the latest incarnation that a launcher or a process has begun."""
        launchers = (launcher.incarnation for launcher in self.list_launchers())
        return max([1, *launchers, *(one.number for one in self.list_incarnations())])

    # --- stops ---------------------------------------------------------------------------------

    def read_stops(self, first: int = 1) -> list[schema.JobStop]:
        """Read the stops from a number on, counted from 1."""
        stops: list[schema.JobStop] = []
        while (stop := self._get(_stop_key(first + len(stops)), schema.JobStop)) is not None:
            stops.append(stop)
        return stops

    def add_stop(self, stop: schema.JobStop) -> None:
        """Add a stop under the next free number."""
        number = 1
        while not self._add(STOPS, str(number), stop):
            number += 1

    # --- lease ---------------------------------------------------------------------------------

    def read_lease(self) -> schema.Lease | None:
        """Read the valid lease; None before the first."""
        return max(
            self._read_all(LEASES, schema.Lease), key=lambda lease: lease.number, default=None
        )

    def take_lease(self, number: int, node: str) -> bool:
        """Take the lease of a number for a node; False if another node has it."""
        lease = schema.Lease(number=number, node=node, taken_ns=time.time_ns())
        return self._add(LEASES, str(number), lease)

    def _add(self, kind: str, name: str, document: msgspec.Struct) -> bool:
        key = layout.document_key(kind, name)
        return self._store.put_if_absent(key, encode_document(document))

    def _read_all(self, kind: str, document: type[Document]) -> list[Document]:
        self._store.refresh()
        documents = (self._get(key, document) for key in self._store.list(f"{kind}/"))
        return [one for one in documents if one is not None]


def _stop_key(number: int) -> str:
    return layout.document_key(STOPS, str(number))


HEARTBEAT_TIMEOUT_S = 60.0
"""Time without a heartbeat after which another node takes over the work of a monitor."""


COPY_TOLERANCE_NS = 2_000_000_000


def correct_heartbeat(
    status: schema.JobStatus, *, written_ns: int, run_written_ns: int, now_ns: int
) -> schema.JobStatus:
    """Choose the time of a heartbeat, where the clock of the node differs from that of the file
    system: the later one of those that are not in the future. If both are, it is the latter.

    In a copy of a run the times of its files tell nothing: they are all those of the copy, while in
    the original as much time lies between the files as the job has taken.

    Args:
        status: status of a node.
        written_ns: time at which its file was written, by the file system.
        run_written_ns: the same of `run.json`, the first file of the run.
        now_ns: time of the observer, epoch nanoseconds.
    """
    if status.state.is_final or status.elapsed_ns is None:
        return status
    is_copy = written_ns - run_written_ns < status.elapsed_ns - COPY_TOLERANCE_NS
    if is_copy or abs(written_ns - status.heartbeat_ns) <= schema.SILENT_NS:
        return status
    times = (status.heartbeat_ns, written_ns)
    heartbeat_ns = max((t for t in times if t <= now_ns + schema.SILENT_NS), default=written_ns)
    return msgspec.structs.replace(status, heartbeat_ns=heartbeat_ns)


class Heartbeats:
    """Observer of the heartbeats of nodes.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: dict[str, tuple[int | None, float]] = {}

    def observe(self, node: str, heartbeat_ns: int | None) -> float:
        """Note the latest heartbeat of a node, None before the first.

        Returns:
            Seconds since it changed, or since the first observation.
        """
        now_s = self._clock()
        earlier_ns, since_s = self._latest.get(node, (None, now_s))
        if node not in self._latest or earlier_ns != heartbeat_ns:
            since_s = now_s
            self._latest[node] = heartbeat_ns, now_s
        return now_s - since_s
