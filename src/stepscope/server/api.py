"""The answers below /api: which question goes to which worker."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from stepscope._version import __version__
from stepscope.errors import NotARunError
from stepscope.server.catalog import FoundRun, RunGoneError, catalog_of, shown
from stepscope.server.compression import VARIES, payload
from stepscope.server.endpoints import ENDPOINTS, EVENTS
from stepscope.server.live import Feed, Feeds
from stepscope.server.payloads import CaptureWanted, StopWanted
from stepscope.server.requests import asked, json_body, named, while_wanted
from stepscope.server.settings import Settings, is_loopback
from stepscope.server.summaries import Summaries
from stepscope.server.workers import Queue, Workers, looked_at
from stepscope.store import cache_home

QUICK = "timeline"
"""Views whose names begin so are what a hand on the mouse waits for."""
MOST_TURNS = 100
"""In which something is read ahead."""
_JOBS = "jobs"
_LARGEST = (1 << 52) - 1
"""Of a revision: JavaScript's numbers hold it."""


class Api:
    """The answers of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog = catalog_of(settings.root)
        self._workers = Workers(settings.tasks, settings.limits)
        self._feeds = Feeds()
        self._summaries = Summaries(self._workers, lambda: self._feeds.hint(_JOBS), cache_home())
        self._revisions: dict[str, tuple[float, int]] = {}
        self._ahead_of: str | None = None
        self._ahead: set[asyncio.Task[None]] = set()

    @property
    def routes(self) -> list[Route]:
        """All of them."""
        described = [
            Route(each.path, getattr(self, each.handler), methods=[each.method])
            for each in ENDPOINTS
        ]
        return [*described, Route("/api/openapi.json", self.openapi, methods=["GET"])]

    async def start(self) -> None:
        """Begin; whoever asks first need not wait for a worker."""
        self._starting = asyncio.create_task(self._workers.start())

    def hang_up(self) -> None:
        """End all streams, which would never end by themselves."""
        self._feeds.close()

    async def close(self) -> None:
        """End everything."""
        self._starting.cancel()
        for reading in self._ahead:
            reading.cancel()
        await self._summaries.close()
        await self._workers.close()

    # --- what screens show -------------------------------------------------------------------

    async def jobs(self, request: Request) -> Response:
        """All runs below the served directory."""
        listing = await asyncio.to_thread(self._catalog.listing)
        known = await asyncio.to_thread(self._catalog.revisions, listing.runs)
        found = [(run, known[run.id]) for run in listing.runs if run.id in known]
        self._summaries.want(found)
        return await self._payload(
            request,
            "quick",
            "jobs",
            root=str(self._settings.root),
            found=found,
            summaries=self._summaries.known(),
            notes=listing.notes,
        )

    async def view(self, request: Request) -> Response:
        """One view of a run; nothing but 304 where the browser holds it already."""
        name, given = request.path_params["view"], asked(request)
        run_id = named(given, "run")
        location, revision = await self._run(run_id)
        tag = f'"{__version__}-{revision:x}"'
        quick = name.startswith(QUICK)
        # The timeline keeps its pieces itself; the browser would keep them a second time.
        kept = "no-store" if quick else "private, no-cache"
        # Weak: the same numbers, compressed or not.
        headers = {"etag": f"W/{tag}", "cache-control": kept} | VARIES
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        began = time.monotonic()
        answer = await self._payload(
            request,
            "quick" if quick else "views",
            "view",
            location=location,
            revision=revision,
            name=name,
            given=given,
        )
        self._feeds.note_cost(_feed_of(run_id), time.monotonic() - began)
        answer.headers.update(headers)
        return answer

    async def compare(self, request: Request) -> Response:
        """Two runs beside each other."""
        given = asked(request)
        base_location, base_revision = await self._run(named(given, "base"))
        location, revision = await self._run(named(given, "run"))
        return await self._payload(
            request,
            "views",
            "compare",
            base_location=base_location,
            base_revision=base_revision,
            location=location,
            revision=revision,
        )

    async def openapi(self, request: Request) -> Response:
        """What this API is, for machines."""
        return await self._payload(request, "views", "openapi")

    async def source(self, request: Request) -> Response:
        """Some lines of a source file."""
        given = asked(request)
        location, revision = await self._run(named(given, "run"))
        return await self._payload(
            request,
            "quick",
            "source",
            location=location,
            revision=revision,
            file=named(given, "file"),
            line=named(given, "line"),
            roots=[str(root) for root in self._settings.source_roots],
            local=self._is_local(request),
        )

    # --- changes -----------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Changes of one run."""
        run_id = named(asked(request), "run")
        await self._run(run_id)

        async def look() -> int:
            _, revision = await self._run(run_id)
            return revision

        return _stream(request, self._feeds.feed(_feed_of(run_id), look))

    async def jobs_events(self, request: Request) -> Response:
        """Changes of the list of jobs."""
        return _stream(request, self._feeds.feed(_JOBS, self._jobs_revision))

    async def _jobs_revision(self) -> int:
        def look() -> tuple[list[FoundRun], dict[str, int]]:
            runs = self._catalog.listing().runs
            return runs, self._catalog.revisions(runs)

        runs, known = await asyncio.to_thread(look)
        self._summaries.want((run, known[run.id]) for run in runs if run.id in known)
        return hash((frozenset(known.items()), self._summaries.count)) & _LARGEST

    # --- what may be done --------------------------------------------------------------------

    async def session(self, request: Request) -> Response:
        """What may be done with a run from here."""
        run_id = named(asked(request), "run")
        location, revision = await self._run(run_id)
        answer = await self._payload(
            request,
            "quick",
            "session",
            location=location,
            revision=revision,
            local=self._is_local(request),
        )
        self._read_ahead(run_id, location, revision)
        return answer

    def _read_ahead(self, run_id: str, location: str, revision: int) -> None:
        """Who opens a run is likely to look at its timeline next. What was read of one revision
        serves no other, and would push out what was read of the new one."""
        if self._ahead_of == location:
            return

        async def read() -> None:
            for turn in range(MOST_TURNS):  # whoever asks for something comes in between
                await self._workers.idle("views")  # what somebody waits for gets all the cores
                answer = await self._workers.ask(
                    "quick", "read_ahead", location=location, revision=revision, begun=turn > 0
                )
                done = answer.body == b"true" or self._ahead_of != location
                if done or await self._run(run_id) != (location, revision):
                    return

        self._ahead_of = location
        reading = asyncio.create_task(read())
        self._ahead.add(reading)
        reading.add_done_callback(self._ahead.discard)
        reading.add_done_callback(looked_at)

    async def capture(self, request: Request) -> Response:
        """Ask for a detailed window."""
        wanted = await json_body(request, CaptureWanted, self._settings.limits)
        location, revision = await self._run(wanted.run)
        return await self._payload(
            request, "quick", "capture", location=location, revision=revision, wanted=wanted
        )

    async def capture_progress(self, request: Request) -> Response:
        """How far a window is that was asked for."""
        given = asked(request)
        location, revision = await self._run(named(given, "run"))
        return await self._payload(
            request,
            "quick",
            "capture_progress",
            location=location,
            revision=revision,
            name=named(given, "request"),
        )

    async def stop(self, request: Request) -> Response:
        """Have the launcher stop the job."""
        wanted = await json_body(request, StopWanted, self._settings.limits)
        location, revision = await self._run(wanted.run)
        client = request.client.host if request.client is not None else "unknown"
        return await self._payload(
            request, "quick", "stop", location=location, revision=revision, client=client
        )

    # --- shared ------------------------------------------------------------------------------

    async def _payload(
        self, request: Request, queue: Queue, task: str, **arguments: Any
    ) -> Response:
        """What a worker makes of a question."""
        answer = await while_wanted(request, self._workers.ask(queue, task, **arguments))
        return await payload(request, answer.body)

    async def _run(self, run_id: str) -> tuple[str, int]:
        """Where a run lies, and its revision, which is at most a moment old."""
        location = await self._located(run_id)
        now = time.monotonic()
        believed_s = self._catalog.believed_s
        looked_s, revision = self._revisions.get(location, (-believed_s, 0))
        if now - looked_s >= believed_s:
            try:
                revision = await asyncio.to_thread(self._catalog.revision, location)
            except NotARunError:  # since a moment ago
                raise RunGoneError(f"The run {shown(run_id)} has disappeared.") from None
            self._revisions[location] = now, revision
        return location, revision

    async def _located(self, run_id: str) -> str:
        if isinstance(self._settings.root, Path):
            return self._catalog.locate(run_id)  # which takes less time than to find a thread
        return await asyncio.to_thread(self._catalog.locate, run_id)

    def _is_local(self, request: Request) -> bool:
        """Whether the browser runs on this machine."""
        client = request.client
        return self._settings.on_loopback and client is not None and is_loopback(client.host)


def _feed_of(run_id: str) -> str:
    return f"run {run_id}"


def _stream(request: Request, feed: Feed) -> Response:
    last = request.headers.get("last-event-id", "")
    seen = int(last) if last.isascii() and last.isdecimal() else None
    return StreamingResponse(
        feed.listen(seen),
        media_type=EVENTS,
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )
