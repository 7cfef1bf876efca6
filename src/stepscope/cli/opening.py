"""Opening of RUN, which may be a trace: it is imported into a cache once, and used from there.

Runs are opened often: what only other directories and traces need is imported where it is used.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import click

from stepscope import cores, errors, importers, run, schema, store
from stepscope._version import __version__
from stepscope.cli.output import locate, say, suggest
from stepscope.store import RUN_KEY, RunReader, describe_source, is_remote, repeated_runs

MAX_NAMED_RUNS = 3


def open_run(location: str, engine: run.Engine | None = None) -> run.Run:
    """Open RUN: the directory or URL of a run, a trace file, or a directory of traces or
    event files.

    Args:
        location: RUN.
        engine: where parts of the run are read; None for processes on this machine.

    Raises:
        StepscopeError: there is neither a run nor a trace, or it cannot be read.
        OSError: a bucket cannot be reached, or the cache cannot be written.
    """
    cores.limit_arenas()
    try:
        return run.Run(store.open_run(resolve_run(location)), engine=engine or run.LocalEngine())
    except errors.NotARunError:
        if runs := _find_runs(Path(location)):
            names = ", ".join(map(str, runs[:MAX_NAMED_RUNS]))
            more = " and others" if len(runs) > MAX_NAMED_RUNS else ""
            raise errors.NotARunError(
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
    runs = (Path(one.path) for one in directories if one.created_ns is not None)
    return sorted(islice(runs, MAX_NAMED_RUNS + 1))


def say_recovery(reader: RunReader) -> None:
    """Say on stderr that a run has to be recovered, with the command that does so."""
    if sentence := run.explain_recovery(reader):
        say(sentence)


def say_damage(damage: Sequence[str]) -> None:
    """Say on stderr that files of a run cannot be read, before what is made of the rest.

    Args:
        damage: one sentence per file, as of `RunReader.damage`.
    """
    if sentence := run.explain_damage(damage):
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

    with ended_by_sigterm(), cached.create() as staged:
        store.create_run(staged, describe_import(source.resolve().name, [str(source)], files))
        import_all(files, staged, f"None of the {len(files)} files in {source} can be imported.")
    say(f"{source} was imported into {cached.path}, which further commands use as well.")
    return cached.path


MIN_PROGRESS = 0.01
NODE = "imported"
"""Node name of imported files, which do not describe their machine."""


def describe_import(run_id: str, sources: Sequence[str], files: Sequence[Path]) -> schema.RunInfo:
    """Make the `run.json` of a new run.

    Args:
        run_id: name of the run.
        sources: the files, directories or URLs that the user gave.
        files: all local files of these.

    Raises:
        OSError: a file does not exist.
    """
    return schema.RunInfo(
        schema_version=schema.SCHEMA_VERSION,
        run_id=run_id,
        created_ns=time.time_ns(),
        command=["stepscope", "import", *sources],
        working_directory=str(Path.cwd()),
        stepscope_version=__version__,
        sources=[describe_source(file) for file in files],
    )


def import_all(
    files: Sequence[Path],
    directory: Path,
    outcome: str,
    *,
    step_range: str | None = None,
    as_lines: bool = False,
) -> list[importers.Result]:
    """Import files into the new run in a directory, with a progress bar.

    Args:
        outcome: what follows if no file can be imported, as a sentence.
        step_range: name of the ranges of traces that are steps.
        as_lines: print the progress as numbers from 0 to 1.

    Raises:
        UnreadableTraceError: no file can be imported.
        OSError: the run cannot be written.
    """
    cores.reuse_memory()
    gc.freeze()  # the collector need not search what is loaded
    with _lines(len(files)) if as_lines else _progress(len(files)) as on_progress:

        def update(number: int, share: float) -> None:
            on_progress(number, share)
            if share >= 1:
                # Needed next: their modules are loaded while the last rows are stored.
                _ = run.Run, run.list_run_doubts

        results = importers.import_files(files, directory, NODE, update, step_range)
    refused = [result for result in results if isinstance(result, importers.Refused)]
    if len(refused) == len(results) == 1:
        raise errors.UnreadableTraceError(refused[0].reason)
    for result in results:
        if isinstance(result, importers.Refused):
            say(result.reason)
        elif isinstance(result, importers.Copied):
            say(result.sentence)
        elif result.lost:
            say(f"{result.name} was only partly imported: {result.lost}.")
    if len(refused) == len(results):
        raise errors.UnreadableTraceError(outcome)
    return results


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Clean up on SIGTERM, which a scheduler sends, as on Ctrl-C."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _lines(count: int) -> Iterator[importers.ProgressCallback]:
    """Print the share that is done whenever it has grown by one percent."""
    shares = [0.0] * count
    printed = 0.0

    def update(number: int, share: float) -> None:
        nonlocal printed
        shares[number] = share
        done = sum(shares) / count
        if done >= printed + MIN_PROGRESS:
            printed = done
            click.echo(f"{done:.2f}", err=True)

    yield update


@contextmanager
def _progress(count: int) -> Iterator[importers.ProgressCallback]:
    """Show a progress bar if stderr is a terminal. It has no thread, because workers are forked."""
    if not sys.stderr.isatty():
        yield lambda _file, _share: None
        return
    from rich.progress import Progress  # 10% of the time of a small import

    from stepscope.cli.text import console

    out = console(stderr=True)
    hidden = not out.is_terminal
    with Progress(console=out, transient=True, auto_refresh=False, disable=hidden) as progress:
        task = progress.add_task("reading", total=float(count))
        shares = [0.0] * count

        def update(number: int, share: float) -> None:
            shares[number] = share
            progress.update(task, completed=sum(shares), refresh=True)

        yield update
