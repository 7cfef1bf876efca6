"""Summaries of runs for the list of jobs: made one by one behind everything else, kept on disk.

To the server a summary is bytes that a worker made and that a worker will read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope._version import __version__
from stepscope.server.catalog import FoundRun
from stepscope.server.workers import Refusal, Workers

SOONEST_S = 30.0
COST_SHARE = 0.05
"""Summaries of a run that grows may take this share of the time, and come no sooner than that."""
MOST_KEPT = 5000
"""Files on disk."""


class _Kept(NamedTuple):
    revision: int
    said: bytes | str
    """The summary, or why there is none."""
    next_s: float
    """When it may be made anew, on the monotonic clock."""


class _Finished(msgspec.Struct):
    """The one thing that the server reads in a summary."""

    finished: bool


class Summaries:
    """What is known of the verdicts of runs.

    Args:
        workers: who makes them.
        changed: called when there is a new one.
        directory: where those of finished runs are kept for the next server.
    """

    def __init__(self, workers: Workers, changed: Callable[[], None], directory: Path) -> None:
        self._workers = workers
        self._changed = changed
        self._directory = directory
        self._kept: dict[str, _Kept] = {}
        self._wanted: dict[str, tuple[FoundRun, int]] = {}
        self._working: asyncio.Task[None] | None = None
        self.count = 0
        """How many have been made: another number, another list of jobs."""

    def known(self) -> dict[str, bytes | str]:
        """By run, the latest summary or why there is none."""
        return {run_id: kept.said for run_id, kept in self._kept.items()}

    def want(self, found: Iterable[tuple[FoundRun, int]]) -> None:
        """These runs are listed, at these revisions."""
        self._wanted = {run.id: (run, revision) for run, revision in found}
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Make no more."""
        if self._working is not None:
            self._working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._working

    async def _work(self) -> None:
        while (due := self._due()) is not None:
            run, revision = due
            path = self._directory / _file_name(run, revision)
            said: bytes | str | None = await asyncio.to_thread(_read, path)
            began = time.monotonic()
            if said is None:
                said = await self._made(run, revision)
                if isinstance(said, bytes) and msgspec.json.decode(said, type=_Finished).finished:
                    await asyncio.to_thread(_write, path, said)
            pause = max(SOONEST_S, (time.monotonic() - began) / COST_SHARE)
            self._kept[run.id] = _Kept(revision, said, time.monotonic() + pause)
            self.count += 1
            self._changed()
        await self._workers.rest("background")

    async def _made(self, run: FoundRun, revision: int) -> bytes | str:
        try:
            answer = await self._workers.ask(
                "background", "summary", location=run.location, revision=revision
            )
        except Refusal as refusal:
            return str(refusal)
        return answer.body

    def _due(self) -> tuple[FoundRun, int] | None:
        """The run to look at next: the newest."""
        now = time.monotonic()
        due = [
            (run, revision)
            for run, revision in self._wanted.values()
            if (kept := self._kept.get(run.id)) is None
            or (kept.revision != revision and kept.next_s <= now)
        ]
        return max(due, key=lambda each: each[0].made_ns, default=None)


def _file_name(run: FoundRun, revision: int) -> str:
    """Another one for another version of stepscope: its verdict may be another."""
    key = f"{__version__}\0{run.location}\0{revision}"
    return f"summary-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> bytes | None:
    try:
        said = path.read_bytes()
        msgspec.json.decode(said, type=_Finished)
    except (OSError, msgspec.MsgspecError):
        return None
    return said


def _write(path: Path, said: bytes) -> None:
    """Keep a summary; where that is not possible it is made again the next time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = sorted(path.parent.glob("summary-*.json"), key=lambda each: each.stat().st_mtime)
        for old in kept[: max(0, len(kept) + 1 - MOST_KEPT)]:
            old.unlink(missing_ok=True)
        temporary.write_bytes(said)
        temporary.replace(path)
    except OSError:
        pass
