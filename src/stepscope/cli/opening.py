"""Opening of RUN, which may be a trace: it is imported into a cache once, and used from there.

Runs are opened often: what only other directories and traces need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from stepscope import store
from stepscope._version import __version__
from stepscope.cli.output import say
from stepscope.cli.suggestion import locate, suggest
from stepscope.cores import limit_arenas
from stepscope.errors import NotARunError
from stepscope.run import Engine, LocalEngine, Run, explain_recovery
from stepscope.store import RUN_KEY, RunReader, is_remote, repeated_runs

MAX_NAMED_RUNS = 3


def open_run(location: str, engine: Engine | None = None) -> Run:
    """Open RUN: the directory or URL of a run, a trace file, or a directory of traces or
    event files.

    Args:
        location: RUN.
        engine: where parts of the run are read; None for processes on this machine.

    Raises:
        StepscopeError: there is neither a run nor a trace, or it cannot be read.
        OSError: a bucket cannot be reached, or the cache cannot be written.
    """
    limit_arenas()
    try:
        return Run(store.open_run(resolve_run(location)), engine=engine or LocalEngine())
    except NotARunError:
        if runs := _find_runs(Path(location)):
            names = ", ".join(map(str, runs[:MAX_NAMED_RUNS]))
            more = " and others" if len(runs) > MAX_NAMED_RUNS else ""
            raise NotARunError(
                f"{location} is not a run, but there are runs below it: {names}{more}. Pass one of "
                f"them, or see all of them with: {suggest('ui', locate(location))}"
            ) from None
        raise


def _find_runs(root: Path) -> list[Path]:
    """Find the first runs below a directory, one more than are named."""
    if not root.is_dir():
        return []
    from stepscope.run.catalog import walk_directories

    directories = walk_directories(root.resolve(), [])
    runs = (directory.path for directory in directories if directory.created_ns is not None)
    return sorted(islice(runs, MAX_NAMED_RUNS + 1))


def say_recovery(reader: RunReader) -> None:
    """Say on stderr that a run has to be recovered, with the command that does so."""
    if sentence := explain_recovery(reader):
        say(sentence)


def resolve_run(location: str) -> str:
    """Return the location of a run: RUN itself, or its cached import if it is a trace.

    An import forks processes, so that every RUN of a command is resolved before one is opened.

    Raises:
        UnreadableTraceError: a file is not a trace.
        OSError: the cache cannot be written.
    """
    if is_remote(location):
        return location
    path = Path(location)
    if path.is_file():
        return str(_cached_import(path, [path]))
    if not path.is_dir() or (path / RUN_KEY).exists() or repeated_runs(path) != [location]:
        return location
    from stepscope.run.catalog import find_event_files, find_traces

    traces = [*find_traces(path), *find_event_files(path)]
    return str(_cached_import(path, traces)) if traces else location


def _cached_import(source: Path, files: Sequence[Path]) -> Path:
    cached = store.CachedRun(map(store.describe_source, files), __version__)
    if cached.use():
        say(f"{source} has not changed since its import into {cached.path}.")
        return cached.path
    from stepscope.cli.importing import describe_import, ended_by_sigterm, import_all  # 40 ms

    with ended_by_sigterm(), cached.create() as staged:
        store.create_run(staged, describe_import(source.resolve().name, [str(source)], files))
        import_all(files, staged, f"None of the {len(files)} files in {source} can be imported.")
    say(f"{source} was imported into {cached.path}, which further commands use as well.")
    return cached.path
