"""What can be asked of a worker: each a function of the open runs that returns a payload.

Where runs lie comes from the catalog, which names none outside the served directory; what is asked
comes from a browser.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from stepscope._version import __version__
from stepscope.comparison import comparison
from stepscope.errors import StepscopeError
from stepscope.server.capture import capture, capture_progress, why_no_capture
from stepscope.server.catalog import FoundRun
from stepscope.server.open_runs import OpenRuns
from stepscope.server.openapi import openapi
from stepscope.server.payloads import Session
from stepscope.server.source import source
from stepscope.server.stopping import stop, why_no_stop
from stepscope.server.worker import Task
from stepscope.store import in_parallel, is_remote, open_run, size_of
from stepscope.timeline import timelines_of
from stepscope.views import VIEWS
from stepscope.views.jobs import (
    JobRow,
    Jobs,
    JobSummary,
    job_row,
    jobs_of,
    summarize,
    unopened_row,
)
from stepscope.views.options import DEFAULTS

ROWS_S = 30.0
"""The list of jobs is answered after that time, without the runs that were not read by then."""
AHEAD_S = 0.05
"""Longer nobody should wait for what he asked for meanwhile, but for one step."""


def view(
    runs: OpenRuns, *, location: str, revision: int, name: str, given: Mapping[str, str]
) -> msgspec.Struct:
    """One view of a run, as `stepscope show` makes it."""
    chosen = VIEWS.get(name)
    if chosen is None:
        raise FileNotFoundError(f"There is no view {name!r}; there are {', '.join(VIEWS)}.")
    return chosen(runs.open(location, revision), chosen.options_from_text(name, given))


def jobs(
    runs: OpenRuns,
    *,
    root: str,
    found: list[tuple[FoundRun, int]],
    summaries: Mapping[str, bytes | str],
    notes: list[str],
) -> Jobs:
    """The list of jobs.

    Args:
        found: the runs, each with its revision.
        summaries: by run what `summary` has made of it, or why it could not.
    """

    def row(each: tuple[FoundRun, int]) -> JobRow | None:
        return _row(runs, *each, summaries.get(each[0].id)) if time.monotonic() < end_s else None

    end_s = time.monotonic() + ROWS_S
    if any(is_remote(run.location) for run, _ in found):
        rows = in_parallel(row, found)  # they wait for the network, not for a core
    else:
        rows = [row(each) for each in found]
    late = rows.count(None)
    if late:
        notes = [*notes, f"{late} runs have yet to be read; they will be here when you look again."]
    return jobs_of(root, [each for each in rows if each is not None], notes)


def _row(runs: OpenRuns, run: FoundRun, revision: int, said: bytes | str | None) -> JobRow:
    """The row of a run: the one that was made before, where nothing in it can have changed."""
    known, row = runs.rows.get(run.id, (None, None))
    if row is None or known != (revision, said) or row.status in {"InProgress", "Stopping"}:
        row = _new_row(run, said)
        runs.rows[run.id] = (revision, said), row
    return row


def _new_row(run: FoundRun, said: bytes | str | None) -> JobRow:
    try:
        found = msgspec.json.decode(said, type=JobSummary) if isinstance(said, bytes) else None
        row = job_row(open_run(run.location), run.id, found)
    except (StepscopeError, OSError) as error:
        return unopened_row(run.id, str(error))
    return msgspec.structs.replace(row, problem=said) if isinstance(said, str) else row


def read_ahead(runs: OpenRuns, *, location: str, revision: int, begun: bool) -> bool:
    """Have at hand what the timeline of a run needs, before anybody looks at it: first what it
    begins with. True where there is nothing more to do."""
    run = runs.open(location, revision)
    if begun:
        return timelines_of(run).read_ahead(AHEAD_S)
    VIEWS["timeline"](run, DEFAULTS)
    return False


def summary(runs: OpenRuns, *, location: str, revision: int) -> JobSummary:
    """The verdict and what else takes a look into the tables."""
    return summarize(runs.open(location, revision), size_of(location))


def compare(
    runs: OpenRuns, *, base_location: str, base_revision: int, location: str, revision: int
) -> msgspec.Struct:
    """Two runs beside each other, as `stepscope compare` has them."""
    base = runs.open(base_location, base_revision)
    return comparison([base], [runs.open(location, revision)])


def session(runs: OpenRuns, *, location: str, revision: int, local: bool) -> Session:
    """What may be done with a run from here."""
    reader = runs.open(location, revision).reader
    no_capture, no_stop = why_no_capture(reader), why_no_stop(reader)
    return Session(
        version=__version__,
        local=local,
        can_capture=no_capture is None,
        why_not_capture=no_capture,
        can_stop=no_stop is None,
        why_not_stop=no_stop,
    )


TASKS: dict[str, Task] = {
    "view": view,
    "read_ahead": read_ahead,
    "jobs": jobs,
    "summary": summary,
    "compare": compare,
    "session": session,
    "source": source,
    "capture": capture,
    "capture_progress": capture_progress,
    "stop": stop,
    "openapi": openapi,
}
"""Every task by name."""
