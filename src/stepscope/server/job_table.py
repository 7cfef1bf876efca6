"""Rows of the list of jobs.

A row is made by a worker once, and again when its run or its summary has changed. The server keeps
the encoded rows, so that a client gets those that have changed since its last request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence

import msgspec

from stepscope.run.catalog import Catalog, CatalogRun, CatalogTrace, RunListing
from stepscope.server.live import Summaries
from stepscope.server.payloads import JobEntry
from stepscope.server.workers import QueueName, Workers, retrieve_exception

BATCH_RUNS = 500
"""Maximum number of rows that one task makes: a request that an interaction waits for runs between
two tasks."""
MAX_REMOVED = 10_000
RESPONSE_TIMEOUT_S = 1.8
"""Time after which the list is returned without the runs that have not been read yet; they follow
as a change."""


class _Job(msgspec.Struct):
    """Row of a run."""

    run: CatalogRun
    revision: int
    """Revision of the run of which the row was made."""
    summary: bytes | str | None
    """Computed summary of which it was made."""
    entry: JobEntry
    changed: int = 0
    """Revision of the table at which the row changed."""


class _JobsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`stepscope.views.Jobs` of encoded rows."""

    root: str
    revision: int
    is_partial: bool
    jobs: list[msgspec.Raw]
    removed: list[str]
    unread_count: int
    pending_count: int
    traces: msgspec.Raw
    why_not_import: str | None
    notes: list[str]


class JobTable:
    """Rows of all runs in a catalog.

    Args:
        root: the root of the catalog, as shown.
        catalog: the runs.
        workers: workers that make the rows.
        summaries: figures of runs that store none.
    """

    def __init__(self, root: str, catalog: Catalog, workers: Workers, summaries: Summaries) -> None:
        self._root = root
        self._catalog = catalog
        self._workers = workers
        self._summaries = summaries
        self.revision = secrets.randbits(48)
        """Increases with every change; another server begins elsewhere."""
        self._first_revision = self.revision
        self._jobs: dict[str, _Job] = {}
        self._removed: dict[str, int] = {}
        """Revisions of the table at which runs were removed, by run id."""
        self._listing = RunListing([], [])
        self._trace_rows = msgspec.Raw(b"[]")
        self._unread_count = 0
        self._is_incomplete = asyncio.Event()
        """Set while there are rows, and runs that are not read yet."""
        self._next: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until what has changed until now is read, or for a moment and some rows of many.

        Raises:
            Refusal: a worker has failed.
        """
        refresh = self.refresh()
        await asyncio.wait({refresh}, timeout=RESPONSE_TIMEOUT_S)
        first_rows = asyncio.ensure_future(self._is_incomplete.wait())
        await asyncio.wait({refresh, first_rows}, return_when=asyncio.FIRST_COMPLETED)
        first_rows.cancel()
        if refresh.done():
            refresh.result()

    def refresh(self) -> asyncio.Task[None]:
        """Read what has changed until now. The task raises the refusal of a worker."""
        if self._next is None:
            self._next = asyncio.create_task(self._refresh_in_turn())
            self._next.add_done_callback(retrieve_exception)
        return self._next

    async def close(self) -> None:
        """Stop reading."""
        if self._next is not None:
            self._next.cancel()

    def encode(self, since: int | None, why_not_import: str | None) -> bytes:
        """Encode the rows that have changed since a revision of the table; all of them where it is
        none of this table."""
        is_partial = since is not None and self._first_revision <= since <= self.revision
        start = since if since is not None and is_partial else 0
        jobs = [job for job in self._jobs.values() if job.changed > start]
        jobs.sort(key=lambda job: (-job.entry.created_ms, job.run.id))
        response = _JobsResponse(
            root=self._root,
            revision=self.revision,
            is_partial=is_partial,
            jobs=[job.entry.row for job in jobs],
            removed=[run_id for run_id, revision in self._removed.items() if revision > start]
            if is_partial
            else [],
            unread_count=self._unread_count,
            pending_count=sum(job.entry.is_pending for job in self._jobs.values()),
            traces=self._trace_rows,
            why_not_import=why_not_import,
            notes=self._listing.notes,
        )
        return msgspec.json.encode(response)

    async def _refresh_in_turn(self) -> None:
        async with self._lock:
            self._next = None  # a change from here on is of the next one
            await self._refresh()

    async def _refresh(self) -> None:
        former = self._listing
        self._listing, revisions = await asyncio.to_thread(self._read_catalog)
        if self._listing.notes != former.notes:
            self.revision += 1
        removed = self._jobs.keys() - revisions.keys()
        self._remove(removed)
        due = self._find_due(self._listing.runs, revisions)
        await self._make_rows(due, revisions)
        traces = self._listing.traces
        if traces != former.traces or (traces and (due or removed)):
            await self._make_trace_rows(traces)
        unstored = [job for job in self._jobs.values() if not job.entry.is_stored]
        self._summaries.request((job.run, job.revision) for job in unstored)

    def _read_catalog(self) -> tuple[RunListing, dict[str, int]]:
        listing = self._catalog.list_runs()
        return listing, self._catalog.revisions(listing.runs)

    def _remove(self, run_ids: set[str]) -> None:
        if not run_ids:
            return
        self.revision += 1
        for run_id in run_ids:
            del self._jobs[run_id]
            self._removed[run_id] = self.revision
        if len(self._removed) > MAX_REMOVED:  # clients get the whole list
            self._removed.clear()
            self._first_revision = self.revision

    def _find_due(self, runs: Sequence[CatalogRun], revisions: dict[str, int]) -> list[CatalogRun]:
        """Find the runs whose rows have to be made, the newest first."""
        jobs, summaries = self._jobs, self._summaries.by_run
        due = [
            run
            for run in runs
            if (revision := revisions.get(run.id)) is not None
            and (
                (job := jobs.get(run.id)) is None
                or job.entry.is_live
                or (job.revision, job.summary) != (revision, summaries.get(run.id))
            )
        ]
        return sorted(due, key=lambda run: -run.created_ns)

    async def _make_rows(self, due: Sequence[CatalogRun], revisions: dict[str, int]) -> None:
        pending = deque(due)

        async def make(queue: QueueName) -> None:
            while pending:
                batch = [pending.popleft() for _ in range(min(BATCH_RUNS, len(pending)))]
                contents = [self._summaries.by_run.get(run.id) for run in batch]
                result = await self._workers.run(
                    queue, "job_entries", listed=list(zip(batch, contents, strict=True))
                )
                entries = msgspec.json.decode(result.body, type=list[JobEntry | None])
                for run, summary, entry in zip(batch, contents, entries, strict=True):
                    if entry is None:
                        pending.append(run)
                    else:
                        self._take(_Job(run, revisions[run.id], summary, entry))
                self.revision += 1
                if self._unread_count:
                    self._is_incomplete.set()

        self._unread_count = sum(run.id not in self._jobs for run in due)
        is_shared = len(due) > BATCH_RUNS and not self._summaries.is_working
        queues: tuple[QueueName, ...] = ("quick", "background") if is_shared else ("quick",)
        try:
            for outcome in await asyncio.gather(*map(make, queues), return_exceptions=True):
                if outcome is not None:
                    raise outcome
        finally:
            self._unread_count = 0
            self._is_incomplete.clear()

    def _take(self, job: _Job) -> None:
        """Put a row into the table; it changes with the next revision, if it does."""
        former = self._jobs.get(job.run.id)
        if former is None:
            self._removed.pop(job.run.id, None)
            self._unread_count -= 1
        is_equal = former is not None and former.entry == job.entry
        job.changed = former.changed if former is not None and is_equal else self.revision + 1
        job.entry.row = job.entry.row.copy()  # of a message of many rows
        self._jobs[job.run.id] = job

    async def _make_trace_rows(self, traces: Sequence[CatalogTrace]) -> None:
        """Make the rows of the traces that are in no run."""
        imported = {source for job in self._jobs.values() for source in job.entry.sources}
        remaining = [trace for trace in traces if trace.source not in imported]
        body = b"[]"
        if remaining:
            body = (await self._workers.run("quick", "trace_rows", traces=remaining)).body
        if body != bytes(self._trace_rows):
            self._trace_rows = msgspec.Raw(body)
            self.revision += 1
