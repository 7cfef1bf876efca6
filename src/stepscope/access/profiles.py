"""Python functions by time: a table, and a page with the tree of calls; a run as HTML."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from stepscope import (
    analysis,
    diagnosis,
    exporters,
    intervals,
    output_files,
    quantities,
    schema,
    views,
)
from stepscope.quantities import count_of, duration
from stepscope.run import (
    Frame,
    ProfiledFunction,
    ProfileSelection,
    Rank,
    Run,
    frame_of,
    process_names,
    read_python_profiles,
)

ORDERS = ("own", "total", "calls", "primitive_calls")
_TYPES: dict[str, type] = {
    "rank": str,
    "process": str,
    "function": str,
    "file": str,
    "library": str,
    "own_ratio": float,
    "total_ratio": float,
    "own_ns": int,
    "total_ns": int,
    "own_count": int,
    "total_count": int,
    "profiler": str,
    "calls": int,
    "primitive_calls": int,
}
_SUMS = ("own_ns", "total_ns", "own_count", "total_count", "calls", "primitive_calls")
_KEY = ("profiler", "function", "file", "library")
_OWN_PROFILER = "stepscope"


class ProfileQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selection and form of a profile; see `OpenRun.python_profile`."""

    ranks: Sequence[Rank]
    selection: ProfileSelection
    rank: int | None
    workers: bool
    phase: str | None
    steps: tuple[int, int] | None
    merged: bool
    order: str
    top: int


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Profile of one process by one profiler."""

    rows: list[dict[str, Any]]
    weight: int
    """Sum of which the ratios are shares."""


class PythonProfile(Frame):
    """Frame of Python functions, which a notebook shows as a page with the tree of calls."""

    def __init__(self, run: Run, query: ProfileQuery) -> None:
        super().__init__(lambda: frame_of(self._rows, _TYPES).columns)
        self._run = run
        self._query = query

    def html(self) -> str:
        """Return an HTML page: the functions by time, and of stack samples the tree of calls."""
        return exporters.render_python_profile(self._tables, page=True)

    def write_html(self, path: str | Path) -> Path:
        """Write the page to a file, and return its path.

        Raises:
            OSError: the file cannot be written.
        """
        with output_files.atomic_write(Path(path)) as file:
            file.write(self.html().encode())
        return Path(path)

    def _repr_html_(self) -> str:
        return exporters.render_python_profile(self._tables, page=False)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        query = self._query
        parts = [*_profile_samples(self._run, query), *_list_imported(self._run, query)]
        if query.merged:
            parts = _merge(parts)
        rows: list[dict[str, Any]] = []
        for part in parts:
            ordered = sorted(part.rows, key=lambda row: _sort_key(row, query.order))
            rows += ordered[: query.top] if query.top else ordered
        return rows

    @cached_property
    def _tables(self) -> list[exporters.FunctionTable]:
        """Functions by process and profiler, with the trees of stack samples."""
        trees: dict[tuple[str | None, str], list[analysis.StackNode]] = {}
        for process, rank, mask in _select_processes(self._run, self._query):
            key = (None if self._query.merged else process.process, _OWN_PROFILER)
            title = process_names(self._run)[process.process] if self._query.workers else rank.name
            tree = analysis.build_stack_tree(self._run.stack_samples(process), mask)
            tree.function = title
            trees.setdefault(key, []).append(tree)
        groups: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        for row in self._rows:
            groups.setdefault((row["process"], row["profiler"]), []).append(row)
        return [
            exporters.FunctionTable(
                title="All processes" if self._query.merged else str(rows[0]["rank"]),
                profiler=profiler,
                rows=rows,
                trees=trees.get((process, profiler), []),
            )
            for (process, profiler), rows in groups.items()
        ]


def _sort_key(row: dict[str, Any], order: str) -> tuple[Any, ...]:
    column = {"own": "own_ratio", "total": "total_ratio"}.get(order, order)
    value = row[column]
    return (value is None, -(value or 0), -row["own_ratio"], -row["total_ratio"], row["function"])


def _select_processes(
    run: Run, query: ProfileQuery
) -> Iterator[tuple[schema.ProcessInfo, Rank, intervals.Mask]]:
    """Yield the sampled processes with the mask of their selected samples."""
    if query.selection.borders is not None:
        return  # samples are taken at any moment
    for rank in query.ranks:
        during = query.selection.find_times(rank)
        for process in run.workers_of(rank.process) if query.workers else [rank.process]:
            samples = run.stack_samples(process)
            mask = analysis.select_samples(
                samples,
                rank.spans,
                rank.steps,
                phase=query.phase,
                within=query.steps,
                during=during,
            )
            if mask.any():
                yield process, rank, mask


def _profile_samples(run: Run, query: ProfileQuery) -> Iterator[_Part]:
    """Yield the profiles from stack samples."""
    for process, rank, mask in _select_processes(run, query):
        profile = analysis.profile_functions(run.stack_samples(process), mask)
        weight = max(1, profile.weight)
        is_timed = bool(process.facts_of(schema.StackSamplerFact))
        rows = [
            {
                "rank": rank.name,
                "process": process.process,
                "function": function.function,
                "file": function.file,
                "library": function.library,
                "own_ratio": function.own_weight / weight,
                "total_ratio": function.total_weight / weight,
                "own_ns": function.own_weight if is_timed else None,
                "total_ns": function.total_weight if is_timed else None,
                "own_count": function.own_count,
                "total_count": function.total_count,
                "profiler": _OWN_PROFILER,
                "calls": None,
                "primitive_calls": None,
            }
            for function in profile.functions
        ]
        yield _Part(rows=rows, weight=weight)


def _list_imported(run: Run, query: ProfileQuery) -> Iterator[_Part]:
    """Yield imported profiles; they are of whole processes, workers and phases apart."""
    if query.phase is not None or query.workers:
        return
    for rank in query.ranks:
        within = None if query.steps is None else _find_extent(rank, query.steps)
        yield from _sum_imported(run, rank.process, query.selection, within)
    if query.steps is None and query.rank is None:
        training = {rank.process.process for rank in query.ranks}
        for process in run.processes:
            if process.process not in training:
                yield from _sum_imported(run, process, query.selection, None)


def _find_extent(rank: Rank, steps: tuple[int, int]) -> intervals.Intervals:
    """Find when some steps of a rank ran."""
    selected = (rank.steps.number >= steps[0]) & (rank.steps.number < steps[1])
    return intervals.Intervals(rank.steps.start[selected], rank.steps.end[selected])


def _sum_imported(
    run: Run,
    process: schema.ProcessInfo,
    selection: ProfileSelection,
    within: intervals.Intervals | None,
) -> Iterator[_Part]:
    """Yield the sums of the imported profiles of a process by profiler."""
    by_profiler: dict[str, list[ProfiledFunction]] = {}
    for function in read_python_profiles(run.reader, process, selection, within):
        by_profiler.setdefault(function.profiler, []).append(function)
    for functions in by_profiler.values():
        weight = max(1, functions[0].profile_own_ns)
        rows = [
            {
                "rank": process_names(run)[process.process],
                "process": process.process,
                "function": function.function,
                "file": function.file,
                "library": function.library,
                "own_ratio": function.own_ns / weight,
                "total_ratio": function.total_ns / weight,
                "own_ns": function.own_ns,
                "total_ns": function.total_ns,
                "own_count": None,
                "total_count": None,
                "profiler": function.profiler,
                "calls": function.calls,
                "primitive_calls": function.primitive_calls,
            }
            for function in functions
        ]
        yield _Part(rows=rows, weight=weight)


def _merge(parts: Iterable[_Part]) -> list[_Part]:
    """Sum the profiles of all processes by profiler and function; a figure that one of them lacks
    is missing."""
    weights: dict[str, int] = {}
    merged: dict[tuple[str, ...], dict[str, Any]] = {}
    for part in parts:
        for row in part.rows:
            key = tuple(row[name] for name in _KEY)
            shares = {name: row[f"{name}_ratio"] * part.weight for name in ("own", "total")}
            if key not in merged:
                merged[key] = {**row, "rank": None, "process": None, **shares}
                continue
            into = merged[key]
            for name in _SUMS:
                values = (into[name], row[name])
                into[name] = None if None in values else sum(values)
            for name, share in shares.items():
                into[name] += share
        for profiler in {row["profiler"] for row in part.rows}:
            weights[profiler] = weights.get(profiler, 0) + part.weight
    rows_by_profiler: dict[str, list[dict[str, Any]]] = {}
    for row in merged.values():
        weight = weights[row["profiler"]]
        row["own_ratio"], row["total_ratio"] = row.pop("own") / weight, row.pop("total") / weight
        rows_by_profiler.setdefault(row["profiler"], []).append(row)
    return [
        _Part(rows=rows, weight=weights[profiler]) for profiler, rows in rows_by_profiler.items()
    ]


def render_overview(overview: views.Overview, name: str) -> str:
    """Render the job, its state, its figures and the verdict.

    Args:
        overview: the view of that name.
        name: name of the run.
    """
    facts = [", ".join(sorted({str(node.state) for node in overview.nodes}))]
    if overview.started_ns is not None:
        facts.append(f"started {quantities.utc_time(overview.started_ns)}")
    facts.append(f"took {duration(overview.duration_ns)}")
    if overview.rank_count:
        facts.append(count_of(overview.rank_count, "rank"))
    if overview.step_ns is not None:
        facts.append(
            f"{count_of(overview.step_ns.count, 'step')} of {duration(overview.step_ns.mean)}"
        )
    for name, ratio in (("GPU", overview.gpu_busy_ratio), ("CPU", overview.cpu_busy_ratio)):
        if ratio is not None:
            facts.append(f"{name} busy {quantities.percent(ratio)}")
    line = " · ".join(escape(fact) for fact in facts if fact)
    return (
        f"<div><strong>{escape(name)}</strong> "
        f"<code>{escape(shlex.join(overview.command))}</code>"
        f"{diagnosis.render_dim(line)}</div>{overview.verdict._repr_html_()}"
    )
