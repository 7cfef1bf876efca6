"""Figures of the runs below a directory or URL, from the summaries that are stored with them.

A run that has ended and has none is summarised, and its summary stored, up to a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import msgspec

from stepscope import errors, store
from stepscope.comparison import get_summary, read_stored_summary
from stepscope.fleet.payload import FleetSelection, SkippedRun, SkipReason
from stepscope.fleet.run_figures import UNKNOWN, FleetRun, RunFigures
from stepscope.run import Engine, LocalEngine, has_ended, is_lost, open_run
from stepscope.run.catalog import CatalogRun, open_catalog

MAX_SUMMARISED = 200
"""Runs that are summarised at once; one takes some tenths of a second."""
PART_RUNS = 250
"""Runs of which one task reads the stored summaries."""


class FleetReading(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a fleet, and those that are in no sum."""

    runs: list[FleetRun]
    skipped: list[SkippedRun]
    summarised_count: int
    tags: list[str]
    """Tags of the runs of the selected time."""
    notes: list[str]


class _Skip(msgspec.Struct, frozen=True):
    """Reason for which a run has no figures."""

    state: SkipReason
    reason: str


def read_fleet(
    root: Path | str,
    selection: FleetSelection,
    *,
    engine: Engine | None = None,
    max_summarised: int = MAX_SUMMARISED,
) -> FleetReading:
    """Read the runs below a root.

    Args:
        root: a root from `resolve_root`.
        selection: runs that count.
        engine: where runs are read; None for this process, and for processes on this machine where
            runs have to be summarised.
        max_summarised: maximum number of runs to summarise, the newest ones.

    Raises:
        StepscopeError: the engine has failed.
        OSError: the bucket cannot be reached.
    """
    listing = open_catalog(root).list_runs()
    runs = sorted(listing.runs, key=lambda run: (-run.created_ns, run.id))
    parts = [runs[first : first + PART_RUNS] for first in range(0, len(runs), PART_RUNS)]
    stored = (engine or Engine()).apply(_read_part, parts)
    outcomes: dict[str, RunFigures | _Skip] = {
        run.id: figures
        for part, figures_of_part in zip(parts, stored, strict=True)
        for run, figures in zip(part, figures_of_part, strict=True)
        if figures is not None
    }
    summarised_count = 0
    pending = []
    for run in runs:
        if run.id not in outcomes:
            state = _examine(run, selection)
            if isinstance(state, _Skip):
                outcomes[run.id] = state
            elif state:
                pending.append(run)
    with closing(LocalEngine()) as local:
        results = (engine or local).apply(_summarise, pending[:max_summarised])
    for run, result in zip(pending[:max_summarised], results, strict=True):
        outcomes[run.id] = result
        summarised_count += isinstance(result, RunFigures)
    for run in pending[max_summarised:]:
        outcomes[run.id] = _Skip("not summarised", f"more than {max_summarised} had no summary")
    read = [
        (run, figures)
        for run in runs
        if isinstance(figures := outcomes.get(run.id), RunFigures)
        and selection.includes(figures.created_ns)
    ]
    return FleetReading(
        runs=[
            FleetRun(
                id=run.id,
                name=figures.labels.title or store.directory_name(run.location, run.id),
                user=_find_user(run.location),
                figures=figures,
            )
            for run, figures in read
            if selection.tag is None or selection.tag in figures.labels.tags
        ],
        skipped=[
            SkippedRun(id=run.id, state=skip.state, reason=skip.reason)
            for run in runs
            if isinstance(skip := outcomes.get(run.id), _Skip)
        ],
        summarised_count=summarised_count,
        tags=sorted({tag for _, figures in read for tag in figures.labels.tags}),
        notes=list(listing.notes),
    )


def _read_part(runs: Sequence[CatalogRun]) -> list[RunFigures | None]:
    """Read the figures of some runs from their stored summaries; None where there is none."""
    if any(store.is_remote(run.location) for run in runs):
        return store.map_parallel(_read_stored, runs)
    return [_read_stored(run) for run in runs]


def _read_stored(run: CatalogRun) -> RunFigures | None:
    summary, is_current = read_stored_summary(run.location)
    if summary is None:
        return None
    try:
        labels = store.read_labels(run.location)
        return RunFigures.from_summary(summary, labels, is_current=is_current)
    except (KeyError, ValueError):  # of an earlier form
        return None


def _examine(run: CatalogRun, selection: FleetSelection) -> _Skip | bool:
    """Return True for a run to summarise, False for one that is not selected, or the reason for
    which it has no summary."""
    try:
        reader = store.open_run(run.location)
        if not selection.includes(reader.info.created_ns):
            return False
        tag = selection.tag
        if tag is not None and tag not in store.read_labels(run.location).tags:
            return False
        statuses = reader.statuses().values()
    except (errors.StepscopeError, OSError) as error:
        return _Skip("damaged", str(error))
    if has_ended(statuses):
        return True
    if any(is_lost(status) for status in statuses):
        return _Skip("lost", "its monitor sends no heartbeat; `stepscope recover RUN` finishes it")
    return _Skip("running", "the job has not ended")


def _summarise(run: CatalogRun) -> RunFigures | _Skip:
    try:
        opened = open_run(run.location)
        labels = store.read_labels(run.location)
        figures = RunFigures.from_summary(get_summary(opened), labels, is_current=True)
    except Exception as error:  # noqa: BLE001 - one run must not hide the others
        return _Skip("damaged", str(error).partition("\n")[0] or type(error).__name__)
    return _Skip("damaged", opened.reader.damage[0]) if opened.reader.damage else figures


def _find_user(location: str) -> str:
    """Find the owner of a local run; objects in a bucket have none."""
    if store.is_remote(location):
        return UNKNOWN
    try:
        return _name_user(Path(location).stat().st_uid)
    except OSError:  # removed
        return UNKNOWN


@lru_cache(maxsize=1024)
def _name_user(user_id: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(user_id).pw_name
    except ModuleNotFoundError:  # Windows, where files have no such number
        return UNKNOWN
    except KeyError:
        return f"user {user_id}"
