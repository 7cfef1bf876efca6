"""Agreement of the launchers of one job on a run that they share, by put-if-absent.

launchers/<node>.json                   a launcher, whose node has this name in the run
incarnations/<number>.json              a start of the training processes
rank-claims/<incarnation>-<rank>.json   the process that is this rank
leases/<number>.json                    the node that evaluates rules and writes the verdict
stops/<number>.json                     a stop of the job on one node, for the others
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from stepscope.schema import (
    Incarnation,
    JobStatus,
    JobStop,
    LauncherInfo,
    Lease,
    RankClaim,
    RunInfo,
)
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

    def read_info(self) -> RunInfo | None:
        """Read `run.json`; None if it is missing or damaged."""
        return self._get(layout.RUN_KEY, RunInfo)

    def read_status(self, node: str) -> JobStatus | None:
        """Read the status of the job on a node; None before its monitor has written one."""
        return self._get(layout.status_key(node), JobStatus)

    # --- launchers -----------------------------------------------------------------------------

    def list_launchers(self) -> list[LauncherInfo]:
        """List the launchers in the order of their registration."""
        launchers = self._read_all(LAUNCHERS, LauncherInfo)
        return sorted(launchers, key=lambda launcher: (launcher.registered_ns, launcher.node))

    def register(self, host: str, make: Callable[[str], LauncherInfo]) -> LauncherInfo:
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

    def list_incarnations(self) -> list[Incarnation]:
        """List the incarnations by number."""
        incarnations = self._read_all(INCARNATIONS, Incarnation)
        return sorted(incarnations, key=lambda incarnation: incarnation.number)

    def open_incarnation(self, incarnation: Incarnation) -> Incarnation:
        """Open an incarnation; returns the one of that number, which another node may have
        opened before."""
        name = str(incarnation.number)
        if self._add(INCARNATIONS, name, incarnation):
            return incarnation
        return self._get(layout.document_key(INCARNATIONS, name), Incarnation) or incarnation

    def claim_rank(self, incarnation: int, rank: int, claim: RankClaim) -> RankClaim:
        """Claim a rank of an incarnation for a process; returns the claim that holds."""
        name = f"{incarnation}-{rank}"
        if self._add(RANK_CLAIMS, name, claim):
            return claim
        return self._get(layout.document_key(RANK_CLAIMS, name), RankClaim) or claim

    def find_latest_incarnation(self) -> int:
        """Find the number of the latest incarnation that a launcher or a process has begun."""
        launchers = (launcher.incarnation for launcher in self.list_launchers())
        return max([1, *launchers, *(one.number for one in self.list_incarnations())])

    # --- stops ---------------------------------------------------------------------------------

    def read_stops(self, first: int = 1) -> list[JobStop]:
        """Read the stops from a number on, counted from 1."""
        stops: list[JobStop] = []
        while (stop := self._get(_stop_key(first + len(stops)), JobStop)) is not None:
            stops.append(stop)
        return stops

    def add_stop(self, stop: JobStop) -> None:
        """Add a stop under the next free number."""
        number = 1
        while not self._add(STOPS, str(number), stop):
            number += 1

    # --- lease ---------------------------------------------------------------------------------

    def read_lease(self) -> Lease | None:
        """Read the valid lease; None before the first."""
        return max(self._read_all(LEASES, Lease), key=lambda lease: lease.number, default=None)

    def take_lease(self, number: int, node: str) -> bool:
        """Take the lease of a number for a node; False if another node has it."""
        lease = Lease(number=number, node=node, taken_ns=time.time_ns())
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
