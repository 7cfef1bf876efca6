"""Answers to agents as JSON of limited size; an agent reads the docstrings of the tools."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stepscope import errors, queries, views
from stepscope.run import Run, open_run, reopen_run
from stepscope.run.catalog import open_catalog, resolve_root

MAX_ANSWER_BYTES = 60_000
LIST_LIMITS = (200, 50, 20, 10, 5, 2)
"""Items to which the lists of an answer are cut until it fits."""
MAX_TEXT_LENGTH = 2000
MAX_RUNS = 200
MAX_OPEN_RUNS = 4
QUERY_LIMITS = queries.QueryLimits(max_rows=200, timeout_s=20)


class Answers:
    """Tools over the run at a location, or over the runs below it; nothing else is opened.

    Args:
        location: directory or URL.
    """

    def __init__(self, location: str) -> None:
        self._catalog = open_catalog(resolve_root(location))
        self._opened: dict[str, tuple[int, Run]] = {}
        self._lock = threading.Lock()  # a run is read by one thread at a time

    @property
    def tools(self) -> list[Callable[..., str]]:
        """All tools."""
        return [
            self.list_runs, self.diagnose, self.list_views, self.show_view, self.compare,
            self.check_rules, self.search_timeline, self.sql, self.explain,
        ]  # fmt: skip

    def list_runs(self) -> str:
        """List the runs, with status, duration and ranks. Other tools take their `id` as `run`."""
        with self._lock:
            listing = self._catalog.list_runs()
            newest = sorted(listing.runs, key=lambda run: -run.created_ns)[:MAX_RUNS]
            rows = [views.make_job_row(open_run(run.location).reader, run.id) for run in newest]
            return encode({"runs": msgspec.to_builtins(rows), "notes": listing.notes})

    def diagnose(self, run: str) -> str:
        """Say why a run is slow: its bottleneck, cause and evidence, and fixes with what each would
        save, such as more DataLoader workers."""
        return self._answer(run, "verdict", {})

    def list_views(self) -> str:
        """List the views for `show_view`, with their options."""
        listed = [
            {
                "view": name,
                "shows": (view.load().__doc__ or "").partition("\n")[0],
                "options": list(view.uses),
                "required": list(view.needs),
                "by": list(view.by),
            }
            for name, view in views.VIEWS.items()
        ]
        return encode({"views": listed})

    def show_view(self, run: str, view: str, options: dict[str, str] | None = None) -> str:
        """Show a view of a run. Among them: overview, steps, input-pipeline, ranks (the late rank,
        its function and line), kernels (time and Tensor Cores), operators, gpu-time, idle, memory,
        system, distributed, job-time, critical-path, what-if. Options are texts, such as
        {"top": "50", "rank": "0"}."""
        if view not in views.VIEWS:
            similar = errors.name_similar(view, views.VIEWS)
            raise errors.UsageError(f"There is no view {view!r}.{similar} See list_views.")
        return self._answer(run, view, options or {})

    def compare(self, base: str, run: str) -> str:
        """Say what changed from one run to another: step time by part and call, noise, settings."""
        return self._answer(run, "compare", {"base": base})

    def check_rules(self, run: str) -> str:
        """Evaluate all rules on a run; lists those that fired, with their sentences."""
        return self._answer(run, "rules", {})

    def search_timeline(self, run: str, text: str, top: int = 20) -> str:
        """Find events of a run by a part of their name: counts, times and the first matches."""
        return self._answer(run, "timeline-search", {"name": text, "top": str(top)})

    def sql(self, run: str, query: str) -> str:
        """Run a SELECT in DuckDB's SQL over the tables of a run (SHOW TABLES, DESCRIBE kernels),
        and over the tables of its views, such as views.kernels. At most 200 rows and 20 s."""
        with self._lock:
            result = queries.query_rows(self._open(run), query, QUERY_LIMITS)
            at = queries.make_id("sql", {"query": query})
            return encode({"at": at, **msgspec.to_builtins(result)})

    def explain(self, run: str, at: str) -> str:
        """Show what an id of an answer (`at`, also with /FIELD) names: its value, unit, meaning,
        denominator, the command that prints it and the tables behind it. Ids of lists that were
        cut, such as kernels/traces/0/kernels/57, show more of them."""
        with self._lock:
            return encode(msgspec.to_builtins(queries.find_origin(self._open(run), at, self._open)))

    def _answer(self, run: str, source: str, options: Mapping[str, str]) -> str:
        with self._lock:
            payload = queries.make_payload(self._open(run), source, options, self._open)
            return encode(queries.with_ids(payload, queries.make_id(source, options)))

    def _open(self, run_id: str) -> Run:
        """Open a run by its id, at its current revision."""
        location = self._catalog.locate(run_id)
        revision = self._catalog.revision(location)
        former, run = self._opened.pop(location, (None, None))
        if run is None:
            run = open_run(location)
        elif former != revision:
            run = reopen_run(run)
        self._opened[location] = revision, run
        while len(self._opened) > MAX_OPEN_RUNS:
            self._opened.pop(next(iter(self._opened)))
        return run


def encode(answer: dict[str, Any]) -> str:
    """Encode an answer, with its lists cut until it fits; NaN becomes null.

    Raises:
        UsageError: it does not fit.
    """
    for limit in LIST_LIMITS:
        notes: set[str] = set()
        encoded = msgspec.json.encode({**_cut(answer, limit, notes), "cut": sorted(notes)})
        if len(encoded) <= MAX_ANSWER_BYTES:
            return encoded.decode()
    raise errors.UsageError(
        "The answer is too large for an agent. Ask for a part of it by its id with explain, or use "
        "sql."
    )


def _cut(value: Any, limit: int, notes: set[str]) -> Any:
    """Cut lists and texts; each list that was cut is noted."""
    if isinstance(value, dict):
        return {key: _cut_field(key, item, limit, notes) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, limit, notes) for item in value[:limit]]
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        return f"{value[:MAX_TEXT_LENGTH]}…"
    return value


def _cut_field(key: str, value: Any, limit: int, notes: set[str]) -> Any:
    if key == queries.ROW_ID:  # a part of an id names nothing
        return value
    if isinstance(value, list) and len(value) > limit:
        notes.add(f"{key}: {limit} of {len(value)}")
    return _cut(value, limit, notes)
