"""Import of files into a new run: the common part of `import` and of commands on traces."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from stepscope._version import __version__
from stepscope.cli.output import say
from stepscope.errors import UnreadableTraceError
from stepscope.importers import ProgressCallback, Refused, Result, import_files
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import describe_source

MIN_PROGRESS = 0.01
NODE = "imported"
"""Node name of imported files, which do not describe their machine."""


def describe_import(run_id: str, sources: Sequence[str], files: Sequence[Path]) -> RunInfo:
    """Make the `run.json` of a new run.

    Args:
        run_id: name of the run.
        sources: the files, directories or URLs that the user gave.
        files: all local files of these.

    Raises:
        OSError: a file does not exist.
    """
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=run_id,
        created_ns=time.time_ns(),
        command=["stepscope", "import", *sources],
        working_directory=str(Path.cwd()),
        stepscope_version=__version__,
        sources=[describe_source(file) for file in files],
    )


def import_all(
    files: Sequence[Path], directory: Path, outcome: str, *, as_lines: bool = False
) -> list[Result]:
    """Import files into the new run in a directory, with a progress bar.

    Args:
        outcome: what follows if no file can be imported, as a sentence.
        as_lines: print the progress as numbers from 0 to 1.

    Raises:
        UnreadableTraceError: no file can be imported.
        OSError: the run cannot be written.
    """
    with _lines(len(files)) if as_lines else _progress(len(files)) as on_progress:
        results = import_files(files, directory, NODE, on_progress)
    refused = [result for result in results if isinstance(result, Refused)]
    if len(refused) == len(results) == 1:
        raise UnreadableTraceError(refused[0].reason)
    for result in results:
        if isinstance(result, Refused):
            say(result.reason)
        elif result.lost:
            say(f"{result.name} was only partly imported: {result.lost}.")
    if len(refused) == len(results):
        raise UnreadableTraceError(outcome)
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
def _lines(count: int) -> Iterator[ProgressCallback]:
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
def _progress(count: int) -> Iterator[ProgressCallback]:
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
