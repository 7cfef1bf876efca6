"""Tasks of a worker: functions of the open runs that return a payload.

Locations come from the catalog, which names nothing outside the served directory; the other
arguments come from a browser.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from stepscope import comparison, errors, exporters, fleet, queries, timeline, views
from stepscope._version import __version__
from stepscope.report import render_html
from stepscope.run import (
    Engine,
    RunLabels,
    RunNotes,
    open_run,
    read_notes,
    results_of,
    run_name,
    size_of,
    stores_results,
    update_labels,
    update_notes,
)
from stepscope.run.catalog import CatalogRun, CatalogTrace, map_runs
from stepscope.server import payloads
from stepscope.server.capture import (
    capture,
    capture_obstacle,
    capture_progress,
    configure,
    configure_obstacle,
    configure_progress,
    stop,
    stop_obstacle,
)
from stepscope.server.openapi import openapi
from stepscope.server.source import source
from stepscope.server.worker import OpenRuns, Task
from stepscope.views.profiling_report import choose_report_rules, make_report

ROWS_TIMEOUT_S = 2.0
"""Time after which a task returns the rows that it has made: the network may be slow."""
READ_AHEAD_S = 0.05
"""Duration of one read-ahead task, and so the longest delay of a request that arrives meanwhile."""


def view(
    runs: OpenRuns, *, location: str, revision: int, name: str, query: Mapping[str, str]
) -> msgspec.Struct:
    """Compute one view of a run, as `stepscope show` does."""
    requested = views.VIEWS.get(name)
    if requested is None:
        raise FileNotFoundError(f"There is no view {name!r}. Views: {', '.join(views.VIEWS)}.")
    return requested(runs.open(location, revision), requested.parse_options(name, query))


def job_entries(
    _runs: OpenRuns, *, listed: list[tuple[CatalogRun, bytes | str | None]]
) -> list[payloads.JobEntry | None]:
    """Make rows of the list of jobs; None for those that take too long.

    Args:
        listed: the runs, each with the result of `summary`, the sentence of its error, or None.
    """
    end_s = time.monotonic() + ROWS_TIMEOUT_S

    def make(run: CatalogRun, summary: bytes | str | None) -> payloads.JobEntry | None:
        return None if time.monotonic() >= end_s else _make_entry(run, summary)

    return map_runs(make, listed)


def _make_entry(run: CatalogRun, summary: bytes | str | None) -> payloads.JobEntry:
    stored = None
    try:
        reader = open_run(run.location).reader
        sources = reader.info.sources
        stored = views.read_stored_job(run.location)
        figures = stored
        if stored is None and isinstance(summary, bytes):
            figures = msgspec.json.decode(summary, type=views.JobSummary)
        row = views.make_job_row(reader, run.id, figures)
        if stored is None and isinstance(summary, str):
            row = msgspec.structs.replace(row, problem=summary)
    except (errors.StepscopeError, OSError) as error:
        row, sources = views.make_unopened_row(run.id, str(error)), []
    return payloads.JobEntry(
        row=msgspec.Raw(msgspec.json.encode(row)),
        created_ms=row.created_ms,
        is_live=row.status in {"InProgress", "Stopping"} and not row.monitor_lost,
        is_pending=row.verdict is None and row.problem is None,
        is_stored=stored is not None,
        sources=sources,
    )


def trace_rows(_runs: OpenRuns, *, traces: list[CatalogTrace]) -> list[views.TraceRow]:
    """Make the rows of traces that are in no run, newest first."""
    rows = [views.make_trace_row(trace.id, trace.source) for trace in traces]
    return sorted(rows, key=lambda row: (-row.changed_ms, row.id))


def read_ahead(runs: OpenRuns, *, location: str, revision: int, number: int) -> bool:
    """Load data of the timeline before a client requests them, first those of its start. Returns
    True when all are loaded."""
    run = runs.open(location, revision)
    if number:
        return timeline.get_timelines(run).read_ahead(READ_AHEAD_S)
    views.VIEWS["timeline"](run, views.DEFAULTS)
    return False


PREPARED_VIEWS = ("overview", "insights", "steps", "step-series", "memory")
"""Views that a client requests first, or whose first request takes long, which come first."""


def prepare(runs: OpenRuns, *, location: str, revision: int, number: int) -> bool:
    """Store a view of an opened run before a client requests it, where results are stored, and at
    last the summary with the verdict. Returns True after that."""
    run = runs.open(location, revision)
    if number < len(PREPARED_VIEWS) and stores_results(run):
        views.VIEWS[PREPARED_VIEWS[number]](run)
        return False
    if results_of(run, uses_findings=False) is not None:
        views.summarize_job(run, size_of(location))
    return True


def summary(runs: OpenRuns, *, location: str, revision: int) -> views.JobSummary:
    """Summarize a run: its verdict and other figures from its tables."""
    return views.summarize_job(runs.open(location, revision), size_of(location))


def compare(
    runs: OpenRuns, *, base_location: str, base_revision: int, location: str, revision: int
) -> msgspec.Struct:
    """Compare two runs, as `stepscope compare` does."""
    base = runs.open(base_location, base_revision)
    return comparison.compare_runs([base], [runs.open(location, revision)])


QUERY_LIMITS = queries.QueryLimits(timeout_s=10)
_MAX_EXACT = 2**53


def sql(runs: OpenRuns, *, location: str, revision: int, query: str) -> queries.QueryResult:
    """Run a query, as `stepscope sql` does; integers that JavaScript would round become text."""
    result = queries.query_rows(runs.open(location, revision), query, QUERY_LIMITS)
    rows = [
        [str(cell) if isinstance(cell, int) and abs(cell) > _MAX_EXACT else cell for cell in row]
        for row in result.rows
    ]
    return msgspec.structs.replace(result, rows=rows)


MAX_SUMMARISED = 8
"""Runs without a summary that one request for the fleet summarises."""


def add_up_fleet(_runs: OpenRuns, *, root: Path | str, query: Mapping[str, str]) -> fleet.Fleet:
    """Add up the runs below the root, as `stepscope fleet` does."""
    selection = fleet.select_runs(query.get("since"), query.get("until"), query.get("tag"))
    by = fleet.parse_grouping(query.get("by", fleet.GROUPINGS[0]))
    reading = fleet.read_fleet(root, selection, engine=Engine(), max_summarised=MAX_SUMMARISED)
    return fleet.report_fleet(str(root), reading, selection, by)


def sql_arrow(
    runs: OpenRuns, *, location: str, revision: int, query: str, output: str
) -> list[str]:
    """Write the result of a query as an Arrow file, as `stepscope sql RUN QUERY --arrow FILE`
    does."""
    return queries.write_arrow(
        runs.open(location, revision), query, queries.QueryLimits(), Path(output)
    )


def export_perfetto(runs: OpenRuns, *, location: str, revision: int, output: str) -> bool:
    """Write a run as a file of Perfetto, as `stepscope export RUN --to perfetto -o FILE` does."""
    run = runs.open(location, revision)
    exporters.export(run, "perfetto", output, exporters.ExportOptions())
    return True


def report(runs: OpenRuns, *, location: str, revision: int) -> str:
    """Write the report on a run as an HTML page, as `stepscope report` does."""
    return render_html(make_report(runs.open(location, revision), choose_report_rules()))


def metrics(runs: OpenRuns, *, listed: list[tuple[str, int]]) -> str:
    """Render the summaries of runs for Prometheus; those that cannot be read are left out, and
    copies of others, whose samples would be the same series.

    Args:
        listed: locations and revisions of the runs.
    """
    summaries: dict[str, comparison.RunSummary] = {}
    for location, revision in listed:
        with suppress(errors.StepscopeError, OSError):
            run = runs.open(location, revision)
            if run.reader.info.run_id not in summaries:
                summaries[run.reader.info.run_id] = comparison.get_summary(run)
    return exporters.render_metrics(summaries.values()).decode()


def session(runs: OpenRuns, *, location: str, revision: int, local: bool) -> payloads.RunSession:
    """List the actions that are available on a run."""
    run = runs.open(location, revision)
    no_capture, no_stop = capture_obstacle(run), stop_obstacle(run)
    no_change = configure_obstacle(run)
    return payloads.RunSession(
        location=location,
        version=__version__,
        local=local,
        can_capture=no_capture is None,
        why_not_capture=no_capture,
        can_configure=no_change is None,
        why_not_configure=no_change,
        can_stop=no_stop is None,
        why_not_stop=no_stop,
    )


def tag(
    _runs: OpenRuns, *, location: str, revision: int, request: payloads.TagRequest
) -> RunLabels:
    """Change the labels of a run, as `stepscope tag` does.

    Raises:
        UsageError: a label is too long, or the run cannot be written.
    """
    del revision  # labels do not depend on it
    with _changing():
        return update_labels(location, title=request.title, tags=request.tags, notes=request.notes)


def name(runs: OpenRuns, *, location: str, revision: int) -> payloads.RunName:
    """Name a run, with its verdict where it is stored."""
    run_id = runs.open(location, revision).reader.info.run_id
    stored = views.read_stored_job(location)
    verdict = None if stored is None else stored.verdict
    return payloads.RunName(
        name=run_name(location, run_id),
        headline=None if verdict is None else views.describe_verdict(verdict),
        advice=None if verdict is None else views.describe_saving(verdict),
    )


def notes(_runs: OpenRuns, *, location: str, revision: int) -> RunNotes:
    """Read the notes and saved views of a run."""
    del revision  # they are read as they are now
    return read_notes(location)


def change_notes(
    _runs: OpenRuns, *, location: str, revision: int, add: RunNotes, remove: RunNotes
) -> RunNotes:
    """Change the notes and saved views of a run.

    Raises:
        UsageError: a note is too long, or the run cannot be written.
    """
    del revision
    with _changing():
        return update_notes(location, add=add, remove=remove)


@contextmanager
def _changing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.UsageError(f"The run cannot be changed: {error.strerror or error}.") from None


TASKS: dict[str, Task] = {
    "view": view,
    "metrics": metrics,
    "read_ahead": read_ahead,
    "prepare": prepare,
    "job_entries": job_entries,
    "trace_rows": trace_rows,
    "summary": summary,
    "compare": compare,
    "sql": sql,
    "sql_arrow": sql_arrow,
    "fleet": add_up_fleet,
    "report": report,
    "export_perfetto": export_perfetto,
    "session": session,
    "source": source,
    "capture": capture,
    "capture_progress": capture_progress,
    "configure": configure,
    "configure_progress": configure_progress,
    "notes": notes,
    "change_notes": change_notes,
    "name": name,
    "stop": stop,
    "tag": tag,
    "openapi": openapi,
}
"""All tasks by name."""
