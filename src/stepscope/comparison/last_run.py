"""The last run of a command, which is looked for without the imports of a comparison."""

from __future__ import annotations

from pathlib import Path

from stepscope import errors, schema, store
from stepscope.run import Run, job_state

MAX_SIBLINGS = 100
"""Limit on the runs among which the last one of a command is looked for."""


def find_last_run(run: Run, location: Path) -> Run | None:
    """Find the last completed run of the same command in the same directory.

    Args:
        run: the run.
        location: its directory.
    """
    siblings = [Path(path) for path in store.repeated_runs(location.resolve().parent)]
    readers = []
    for path in sorted(siblings, key=lambda path: -path.stat().st_mtime)[:MAX_SIBLINGS]:
        try:
            readers.append(store.open_run(path))
        except (OSError, errors.StepscopeError):
            continue  # damaged, or removed
    info = run.reader.info
    earlier = [
        reader
        for reader in readers
        if reader.info.created_ns < info.created_ns
        and reader.info.command == info.command
        and reader.info.working_directory == info.working_directory
        and job_state(reader.statuses().values()) is schema.JobState.COMPLETED
    ]
    last = max(earlier, key=lambda reader: reader.info.created_ns, default=None)
    return None if last is None else Run(last)
