"""Request handlers below /api, which forward to the queues of the workers."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from stepscope import errors
from stepscope._version import __version__
from stepscope.run import cache_home
from stepscope.run.catalog import missing_run_error, open_catalog
from stepscope.server import payloads, requests
from stepscope.server.endpoints import BYTES, ENDPOINTS, EVENT_STREAM, HTML
from stepscope.server.imports import Imports
from stepscope.server.job_table import JobTable
from stepscope.server.live import Feed, Feeds, Summaries
from stepscope.server.settings import Settings, is_loopback
from stepscope.server.workers import QueueName, Refusal, Workers, retrieve_exception

INTERACTIVE_PREFIX = "timeline"
"""Prefix of the names of views that the page requests while the user drags or zooms."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Text format of Prometheus."""
MAX_METRIC_RUNS = 20
MAX_NUMBER_DIGITS = 9
MAX_REVISION_DIGITS = 16
MAX_READ_AHEAD_TASKS = 100
_JOBS = "jobs"


class Api:
    """Request handlers of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog = open_catalog(settings.root)
        self._workers = Workers(settings.tasks, settings.limits)
        self._feeds = Feeds()
        self._summaries = Summaries(self._workers, lambda: self._feeds.hint(_JOBS), cache_home())
        self._table = JobTable(str(settings.root), self._catalog, self._workers, self._summaries)
        self._imports = Imports(settings, lambda: self._feeds.hint(_JOBS))
        self._revisions: dict[str, tuple[float, int]] = {}
        self._openapi: bytes | None = None
        self._read_ahead_location: str | None = None
        self._read_ahead_tasks: set[asyncio.Task[None]] = set()

    @property
    def routes(self) -> list[Route]:
        """All routes."""
        endpoints = [
            Route(endpoint.path, getattr(self, endpoint.handler), methods=[endpoint.method])
            for endpoint in ENDPOINTS
        ]
        return [*endpoints, Route("/api/openapi.json", self.openapi, methods=["GET"])]

    async def start(self) -> None:
        """Start the workers in the background, so that the first request need not wait for one."""
        self._starting = asyncio.create_task(self._workers.start())

    def end_streams(self) -> None:
        """End all event streams, which have no end of their own."""
        self._feeds.close()

    async def close(self) -> None:
        """Stop all background tasks and workers."""
        self._starting.cancel()
        for task in self._read_ahead_tasks:
            task.cancel()
        await self._imports.close()
        await self._table.close()
        await self._summaries.close()
        await self._workers.close()

    # --- views -------------------------------------------------------------------------------

    async def jobs(self, request: Request) -> Response:
        """List the runs below the served directory or URL, or those that have changed."""
        since = requests.query_of(request).get("since", "")
        is_revision = since.isascii() and since.isdecimal() and len(since) <= MAX_REVISION_DIGITS
        await self._table.wait()
        body = await asyncio.to_thread(
            self._table.encode, int(since) if is_revision else None, self._imports.obstacle
        )
        return await requests.json_response(request, body)

    async def view(self, request: Request) -> Response:
        """Compute one view of a run; 304 if the browser has the current revision."""
        name, query = request.path_params["view"], requests.query_of(request)
        run_id = requests.take_parameter(query, "run")
        location, revision = await self._resolve(run_id)
        tag = f'"{__version__}-{revision:x}"'
        is_interactive = name.startswith(INTERACTIVE_PREFIX)
        # The timeline has a cache of its own; the browser would store the data a second time.
        caching = "no-store" if is_interactive else "private, no-cache"
        # A weak tag, because compressed and plain responses are equivalent.
        headers = {"etag": f"W/{tag}", "cache-control": caching} | requests.VARY
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        start_s = time.monotonic()
        response = await self._respond(
            request,
            "quick" if is_interactive else "views",
            "view",
            location=location,
            revision=revision,
            name=name,
            query=query,
        )
        self._feeds.note_cost(_feed_name(run_id), time.monotonic() - start_s)
        response.headers.update(headers)
        return response

    async def compare(self, request: Request) -> Response:
        """Compare two runs."""
        query = requests.query_of(request)
        base_location, base_revision = await self._resolve(requests.take_parameter(query, "base"))
        location, revision = await self._resolve(requests.take_parameter(query, "run"))
        return await self._respond(
            request,
            "views",
            "compare",
            base_location=base_location,
            base_revision=base_revision,
            location=location,
            revision=revision,
        )

    async def fleet(self, request: Request) -> Response:
        """Add up the runs below the served directory or URL."""
        query = requests.query_of(request)
        return await self._respond(request, "views", "fleet", root=self._settings.root, query=query)

    async def metrics(self, request: Request) -> Response:
        """Render the figures of the latest runs, or of one, for Prometheus."""
        query = requests.query_of(request)
        if "run" in query:
            listed = [await self._resolve(requests.take_parameter(query, "run"))]
        else:
            listing = await asyncio.to_thread(self._catalog.list_runs)
            latest = sorted(listing.runs, key=lambda run: -run.created_ns)[:MAX_METRIC_RUNS]
            listed = [await self._resolve(run.id) for run in latest]
        result = await requests.cancel_on_disconnect(
            request, self._workers.run("views", "metrics", listed=listed)
        )
        text = msgspec.json.decode(result.body, type=str)
        return Response(text, headers={"content-type": METRICS_TYPE})

    async def sql(self, request: Request) -> Response:
        """Run a query over the tables and views of a run, as `stepscope sql` does. Integers that
        JavaScript would round are text."""
        body = await requests.read_json(request, payloads.SqlRequest, self._settings.limits)
        location, revision = await self._resolve(body.run)
        return await self._respond(
            request, "views", "sql", location=location, revision=revision, query=body.query
        )

    async def report(self, request: Request) -> Response:
        """Write the report on a run, as a page to keep."""
        run_id = requests.take_parameter(requests.query_of(request), "run")
        location, revision = await self._resolve(run_id)
        result = await requests.cancel_on_disconnect(
            request, self._workers.run("views", "report", location=location, revision=revision)
        )
        return Response(
            msgspec.json.decode(result.body, type=str),
            media_type=HTML,
            headers=_download_headers(run_id, "-report.html"),
        )

    async def perfetto(self, request: Request) -> Response:
        """Write the timeline of a run as a file for ui.perfetto.dev."""
        return await self._respond_with_file(request, "export_perfetto", ".pftrace")

    async def sql_arrow(self, request: Request) -> Response:
        """Write the result of a query as an Arrow IPC file."""
        query = requests.take_parameter(requests.query_of(request), "query")
        return await self._respond_with_file(request, "sql_arrow", ".arrow", query=query)

    async def _respond_with_file(
        self, request: Request, task_name: str, suffix: str, **arguments: str
    ) -> Response:
        run_id = requests.take_parameter(requests.query_of(request), "run")
        location, revision = await self._resolve(run_id)
        directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="stepscope-export-")
        cleanup = BackgroundTask(shutil.rmtree, directory, ignore_errors=True)
        path = str(Path(directory) / f"run{suffix}")
        try:
            task = self._workers.run(
                "views", task_name, location=location, revision=revision, output=path, **arguments
            )
            await requests.cancel_on_disconnect(request, task)
        except BaseException:
            await cleanup()
            raise
        headers = _download_headers(run_id, suffix)
        return FileResponse(path, media_type=BYTES, headers=headers, background=cleanup)

    async def openapi(self, request: Request) -> Response:
        """Describe this API as an OpenAPI document."""
        if self._openapi is None:  # every page asks for it, and it does not change
            self._openapi = (await self._workers.run("views", "openapi")).body
        return await requests.json_response(request, self._openapi)

    async def source(self, request: Request) -> Response:
        """Read lines of a source file."""
        query = requests.query_of(request)
        return await self._respond_for_run(
            request,
            "source",
            requests.take_parameter(query, "run"),
            file=requests.take_parameter(query, "file"),
            line=requests.take_parameter(query, "line"),
            roots=[str(root) for root in self._settings.source_roots],
            local=self._is_local(request),
        )

    # --- changes -----------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Stream changes of one run as server-sent events."""
        run_id = requests.take_parameter(requests.query_of(request), "run")
        await self._resolve(run_id)

        async def read_revision() -> int:
            _, revision = await self._resolve(run_id)
            return revision

        return _stream(request, self._feeds.feed(_feed_name(run_id), read_revision))

    async def jobs_events(self, request: Request) -> Response:
        """Stream changes of the list of runs as server-sent events."""
        return _stream(request, self._feeds.feed(_JOBS, self._jobs_revision))

    async def _jobs_revision(self) -> int:
        with suppress(Refusal):  # a worker has died: the next one makes the rows
            await asyncio.shield(self._table.refresh())
        return self._table.revision

    # --- actions -----------------------------------------------------------------------------

    async def session(self, request: Request) -> Response:
        """List the actions that are available on a run from this client."""
        run_id = requests.take_parameter(requests.query_of(request), "run")
        location, revision = await self._resolve(run_id)
        response = await self._respond(
            request,
            "quick",
            "session",
            location=location,
            revision=revision,
            local=self._is_local(request),
        )
        self._read_ahead(run_id, location, revision)
        return response

    def _read_ahead(self, run_id: str, location: str, revision: int) -> None:
        """Load the timeline of an opened run, and store its views, which the user is likely to show
        next. Data of another revision would be useless, and would evict those of the new one."""
        if self._read_ahead_location == location:
            return

        async def read() -> None:
            reading: tuple[tuple[QueueName, str], ...] = (
                ("quick", "read_ahead"),
                ("background", "prepare"),
            )
            for queue, task in reading:
                for number in range(MAX_READ_AHEAD_TASKS):  # requests run between these tasks
                    await self._workers.wait_until_idle("views")  # leave all cores to requests
                    response = await self._workers.run(
                        queue, task, location=location, revision=revision, number=number
                    )
                    is_other = self._read_ahead_location != location
                    if is_other or await self._resolve(run_id) != (location, revision):
                        return
                    if response.body == b"true":
                        break

        self._read_ahead_location = location
        task = asyncio.create_task(read())
        self._read_ahead_tasks.add(task)
        task.add_done_callback(self._read_ahead_tasks.discard)
        task.add_done_callback(retrieve_exception)

    async def capture(self, request: Request) -> Response:
        """Request a detailed window."""
        body = await requests.read_json(request, payloads.CaptureRequest, self._settings.limits)
        return await self._respond_for_run(request, "capture", body.run, request=body)

    async def capture_progress(self, request: Request) -> Response:
        """Report the progress of a window request."""
        query = requests.query_of(request)
        run_id, name = (
            requests.take_parameter(query, "run"),
            requests.take_parameter(query, "request"),
        )
        return await self._respond_for_run(request, "capture_progress", run_id, name=name)

    async def configure(self, request: Request) -> Response:
        """Request a change of the configuration of a running job."""
        body = await requests.read_json(request, payloads.ConfigureRequest, self._settings.limits)
        return await self._respond_for_run(
            request, "configure", body.run, request=body, client=_client_host(request)
        )

    async def configure_progress(self, request: Request) -> Response:
        """Report the progress of a change of the configuration."""
        query = requests.query_of(request)
        run_id, text = (
            requests.take_parameter(query, "run"),
            requests.take_parameter(query, "number"),
        )
        if not (text.isascii() and text.isdecimal() and len(text) <= MAX_NUMBER_DIGITS):
            raise errors.UsageError(f"number={text!r} is not the number of a change.")
        return await self._respond_for_run(request, "configure_progress", run_id, number=int(text))

    async def tag(self, request: Request) -> Response:
        """Change the title, tags and notes of a run."""
        body = await requests.read_json(request, payloads.TagRequest, self._settings.limits)
        response = await self._respond_for_run(request, "tag", body.run, request=body)
        self._feeds.hint(_JOBS)
        return response

    async def name(self, request: Request) -> Response:
        """Name a run."""
        run_id = requests.take_parameter(requests.query_of(request), "run")
        return await self._respond_for_run(request, "name", run_id)

    async def notes(self, request: Request) -> Response:
        """List the notes and saved views of a run."""
        run_id = requests.take_parameter(requests.query_of(request), "run")
        return await self._respond_for_run(request, "notes", run_id)

    async def change_notes(self, request: Request) -> Response:
        """Add and remove notes and saved views of a run."""
        body = await requests.read_json(request, payloads.NotesRequest, self._settings.limits)
        return await self._respond_for_run(
            request, "change_notes", body.run, add=body.add, remove=body.remove
        )

    async def stop(self, request: Request) -> Response:
        """Request the launcher to stop the job."""
        body = await requests.read_json(request, payloads.StopJobRequest, self._settings.limits)
        return await self._respond_for_run(request, "stop", body.run, client=_client_host(request))

    async def import_traces(self, request: Request) -> Response:
        """Import traces below the served directory as one run."""
        body = await requests.read_json(request, payloads.ImportRequest, self._settings.limits)
        paths = await asyncio.to_thread(lambda: list(map(self._catalog.locate_trace, body.traces)))
        name = paths[0].name if len(paths) == 1 else paths[0].parent.name
        import_id = self._imports.prepare(name)
        self._imports.start(import_id, paths)
        return await self._report_import(request, import_id)

    async def upload(self, request: Request) -> Response:
        """Import a trace that the page sends."""
        import_id = self._imports.prepare(
            requests.take_parameter(requests.query_of(request), "name")
        )
        try:
            chunks = requests.read_chunks(request, self._settings.limits)
            path = await self._imports.receive(import_id, chunks)
        except BaseException:
            self._imports.abandon(import_id)
            raise
        self._imports.start(import_id, [path])
        return await self._report_import(request, import_id)

    async def import_progress(self, request: Request) -> Response:
        """Report the progress of an import."""
        return await self._report_import(
            request, requests.take_parameter(requests.query_of(request), "import")
        )

    async def _report_import(self, request: Request, import_id: str) -> Response:
        progress = self._imports.progress(import_id)
        return await requests.json_response(request, msgspec.json.encode(progress))

    # --- shared ------------------------------------------------------------------------------

    async def _respond(
        self, http: Request, queue: QueueName, task: str, **arguments: Any
    ) -> Response:
        """Respond to `http` with the result of a worker's task."""
        result = await requests.cancel_on_disconnect(
            http, self._workers.run(queue, task, **arguments)
        )
        return await requests.json_response(http, result.body)

    async def _respond_for_run(
        self, http: Request, task: str, run_id: str, **arguments: Any
    ) -> Response:
        """Run a quick task on the current revision of a run."""
        location, revision = await self._resolve(run_id)
        return await self._respond(
            http, "quick", task, location=location, revision=revision, **arguments
        )

    async def _resolve(self, run_id: str) -> tuple[str, int]:
        """Resolve a run to its location and its revision, which may come from the cache."""
        location = await self._locate(run_id)
        now_s = time.monotonic()
        ttl_s = self._catalog.revision_ttl_s
        read_s, revision = self._revisions.get(location, (-ttl_s, 0))
        if now_s - read_s >= ttl_s:
            try:
                revision = await asyncio.to_thread(self._catalog.revision, location)
            except errors.NotARunError:  # removed since the lookup
                raise missing_run_error(run_id, existed=True) from None
            self._revisions[location] = now_s, revision
        return location, revision

    async def _locate(self, run_id: str) -> str:
        if isinstance(self._settings.root, Path):
            return self._catalog.locate(run_id)  # takes less time than the switch to a thread
        return await asyncio.to_thread(self._catalog.locate, run_id)

    def _is_local(self, request: Request) -> bool:
        """Check whether the browser runs on this machine."""
        client = request.client
        return self._settings.on_loopback and client is not None and is_loopback(client.host)


def _client_host(request: Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _feed_name(run_id: str) -> str:
    return f"run {run_id}"


def _stream(request: Request, feed: Feed) -> Response:
    last_id = request.headers.get("last-event-id", "")
    revision = int(last_id) if last_id.isascii() and last_id.isdecimal() else None
    return StreamingResponse(
        feed.listen(revision),
        media_type=EVENT_STREAM,
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def _download_headers(run_id: str, suffix: str) -> dict[str, str]:
    """Return the headers of a file that the browser saves."""
    name = re.sub(r"[^\w.-]+", "-", run_id).strip("-.") or "run"
    return {
        "cache-control": "no-store",
        "content-disposition": f'attachment; filename="{name}{suffix}"',
    }
