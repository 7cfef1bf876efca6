"""Server-sent events about changes of runs, and summaries for the list of jobs.

One task per feed with listeners, which ends with the last listener.

Summaries of runs for the list of jobs, computed one by one in the background and cached on disk. To
the server a summary is opaque bytes, which workers write and read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeGuard

import msgspec

from stepscope import errors, schema
from stepscope.run import RESULTS_MAKER
from stepscope.run.catalog import CatalogRun
from stepscope.server.workers import Refusal, Workers

MIN_INTERVAL_S = 1.0
"""Minimum time between two change events."""
MAX_INTERVAL_S = 300.0
INTERVAL_PER_COST = 10.0
"""Minimum interval as a multiple of the time that a payload takes to compute: an open page costs a
job on the same machine about a tenth of a core, however long the run is."""
INTERVAL_PER_POLL = 10.0
"""Minimum interval as a multiple of the time that reading the revision takes."""
COST_DECAY = 0.9
"""Decay of the recorded cost with each further payload."""
KEEP_ALIVE_S = 15.0
_REMOVED = "gone"

ReadRevision = Callable[[], Awaitable[int]]
"""Function that reads the current revision."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    """Event of a feed."""

    kind: str
    revision: int

    def encode(self) -> bytes:
        """Encode the event for the stream."""
        data = msgspec.json.encode({"revision": self.revision}).decode()
        return f"id: {self.revision}\nevent: {self.kind}\ndata: {data}\n\n".encode()


class Feed:
    """Changes of one object.

    Args:
        read_revision: reads its revision; raises NotARunError once it is removed.
    """

    def __init__(self, read_revision: ReadRevision) -> None:
        self._read_revision = read_revision
        self._listeners: set[asyncio.Queue[ServerSentEvent | None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._closed = False
        self.cost_s = 0.0
        """Recent maximum time to compute one of its payloads."""

    def hint(self) -> None:
        """Read the revision soon: there is a change."""
        self._hint.set()

    async def listen(self, last_revision: int | None = None) -> AsyncIterator[bytes]:
        """Stream events to one listener, starting with `open` and the current revision.

        Args:
            last_revision: the last revision that a returning listener has received; `change`
                follows at once if the current one differs.
        """
        queue: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue(maxsize=8)
        self._listeners.add(queue)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            revision = await self._read_revision()
            yield ServerSentEvent("open", revision).encode()
            if last_revision not in {None, revision}:
                yield ServerSentEvent("change", revision).encode()
            while not self._closed:
                try:
                    event = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b":\n\n"
                    continue
                if event is None:
                    return
                yield event.encode()
        except errors.NotARunError:
            yield ServerSentEvent(_REMOVED, last_revision or 0).encode()
        finally:
            self._listeners.discard(queue)
            if not self._listeners and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._publish(None)

    async def _watch(self) -> None:
        previous: int | None = None
        while True:
            self._hint.clear()
            start_s = time.monotonic()
            try:
                revision = await self._read_revision()
            except errors.NotARunError:
                self._publish(ServerSentEvent(_REMOVED, previous or 0))
                return
            except (errors.StepscopeError, OSError):
                revision = previous or 0
            if revision != previous:
                if previous is not None:
                    self._publish(ServerSentEvent("change", revision))
                previous = revision
            poll_s = time.monotonic() - start_s
            interval_s = max(
                MIN_INTERVAL_S, INTERVAL_PER_POLL * poll_s, INTERVAL_PER_COST * self.cost_s
            )
            await asyncio.sleep(MIN_INTERVAL_S)
            try:
                await asyncio.wait_for(
                    self._hint.wait(), min(interval_s, MAX_INTERVAL_S) - MIN_INTERVAL_S
                )
            except TimeoutError:
                pass

    def _publish(self, event: ServerSentEvent | None) -> None:
        for queue in self._listeners:
            if queue.full():  # a slow reader needs only the latest events
                queue.get_nowait()
            queue.put_nowait(event)


class Feeds:
    """Feeds by name."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def feed(self, name: str, read_revision: ReadRevision) -> Feed:
        """Get or create the feed of this name."""
        return self._feeds.setdefault(name, Feed(read_revision))

    def hint(self, name: str) -> None:
        """See `Feed.hint`."""
        if name in self._feeds:
            self._feeds[name].hint()

    def note_cost(self, name: str, seconds: float) -> None:
        """Record the time that a payload of this feed took to compute."""
        if name in self._feeds:
            feed = self._feeds[name]
            feed.cost_s = max(seconds, COST_DECAY * feed.cost_s)

    def close(self) -> None:
        """End all streams of all feeds."""
        for feed in self._feeds.values():
            feed.close()


MIN_SUMMARY_INTERVAL_S = 30.0
MAX_COST_SHARE = 0.05
"""Summaries of a growing run take at most this share of the time, and are at least the minimum
interval apart."""
MAX_FILES = 5000


class _CachedSummary(NamedTuple):
    revision: int
    next_s: float
    """Earliest time of the next summary, on the monotonic clock."""


class _Finished(msgspec.Struct):
    """The only field of a summary that the server reads."""

    finished: bool


class Summaries:
    """Cache of the summaries of runs.

    Args:
        workers: workers that compute them.
        on_change: called when there is a new one.
        directory: cache directory for those of finished runs.
    """

    def __init__(self, workers: Workers, on_change: Callable[[], None], directory: Path) -> None:
        self._workers = workers
        self._on_change = on_change
        self._directory = directory
        self._cache: dict[str, _CachedSummary] = {}
        self._requested: dict[str, tuple[CatalogRun, int]] = {}
        self._working: asyncio.Task[None] | None = None
        self.by_run: dict[str, bytes | str] = {}
        """Latest summaries by run id, or the sentences of their errors."""

    @property
    def is_working(self) -> bool:
        """True while summaries are computed."""
        return self._working is not None and not self._working.done()

    def request(self, runs: Iterable[tuple[CatalogRun, int]]) -> None:
        """Request summaries of these runs at these revisions; replaces the earlier request."""
        self._requested = {run.id: (run, revision) for run, revision in runs}
        for run_id in self.by_run.keys() - self._requested.keys():
            del self.by_run[run_id], self._cache[run_id]
        if not self.is_working:
            self._working = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop computing."""
        if self._working is not None:
            self._working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._working

    async def _work(self) -> None:
        while (due := self._next_due()) is not None:
            run, revision = due
            path = self._directory / _file_name(run, revision)
            content: bytes | str | None = await asyncio.to_thread(_read, path)
            start_s = time.monotonic()
            if content is None:
                content = await self._compute(run, revision)
                if _is_of_finished_run(content):
                    await asyncio.to_thread(_write, path, content)
            now_s = time.monotonic()
            interval_s = max(MIN_SUMMARY_INTERVAL_S, (now_s - start_s) / MAX_COST_SHARE)
            self._cache[run.id] = _CachedSummary(revision, now_s + interval_s)
            self.by_run[run.id] = content
            self._on_change()
        await self._workers.release_memory("background")

    async def _compute(self, run: CatalogRun, revision: int) -> bytes | str:
        try:
            result = await self._workers.run(
                "background", "summary", location=run.location, revision=revision
            )
        except Refusal as refusal:
            return str(refusal)
        return result.body

    def _next_due(self) -> tuple[CatalogRun, int] | None:
        """Find the newest run whose summary is due."""
        now_s = time.monotonic()
        due = [
            (run, revision)
            for run, revision in self._requested.values()
            if (summary := self._cache.get(run.id)) is None
            or (summary.revision != revision and summary.next_s <= now_s)
        ]
        return max(due, key=lambda item: item[0].created_ns, default=None)


def _is_of_finished_run(content: bytes | str) -> TypeGuard[bytes]:
    return isinstance(content, bytes) and msgspec.json.decode(content, type=_Finished).finished


def _file_name(run: CatalogRun, revision: int) -> str:
    """Name of the cache file, which depends on the software that makes verdicts."""
    key = f"{RESULTS_MAKER}\0{run.location}\0{revision}"
    return f"summary-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
        msgspec.json.decode(content, type=_Finished)
    except (OSError, *schema.MALFORMED_JSON):
        return None
    return content


def _write(path: Path, content: bytes) -> None:
    """Write a summary to the cache; without a writable cache it is computed again next time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files = sorted(path.parent.glob("summary-*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) + 1 - MAX_FILES)]:
            file.unlink(missing_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        pass
