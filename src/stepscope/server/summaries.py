"""Summaries of runs for the list of jobs, computed one by one in the background and cached on disk.

To the server a summary is opaque bytes, which workers write and read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeGuard

import msgspec

from stepscope._version import __version__
from stepscope.run.catalog import CatalogRun
from stepscope.schema import MALFORMED_JSON
from stepscope.server.workers import Refusal, Workers

MIN_INTERVAL_S = 30.0
MAX_COST_SHARE = 0.05
"""Summaries of a growing run take at most this share of the time, and are at least the minimum
interval apart."""
MAX_FILES = 5000


class _CachedSummary(NamedTuple):
    revision: int
    content: bytes | str
    """The summary, or the sentence of its error."""
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
        self.count = 0
        """Number of computed summaries; a new one changes the list of jobs."""

    def by_run(self) -> dict[str, bytes | str]:
        """Latest summaries by run id, or the sentences of their errors."""
        return {run_id: summary.content for run_id, summary in self._cache.items()}

    def request(self, runs: Iterable[tuple[CatalogRun, int]]) -> None:
        """Request summaries of these runs at these revisions; replaces the earlier request."""
        self._requested = {run.id: (run, revision) for run, revision in runs}
        if self._working is None or self._working.done():
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
            interval_s = max(MIN_INTERVAL_S, (now_s - start_s) / MAX_COST_SHARE)
            self._cache[run.id] = _CachedSummary(revision, content, now_s + interval_s)
            self.count += 1
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
    """Name of the cache file, which depends on the version of stepscope, as verdicts do."""
    key = f"{__version__}\0{run.location}\0{revision}"
    return f"summary-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
        msgspec.json.decode(content, type=_Finished)
    except (OSError, *MALFORMED_JSON):
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
