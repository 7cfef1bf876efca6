"""Many trace files into one run, side by side where that pays.

Several files are imported one per core, each wholly in a process of its own; a single large file
is decoded by all cores together.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from stepscope.errors import UnreadableTraceError
from stepscope.importers.kineto.describe import Identity
from stepscope.importers.kineto.pool import start_worker
from stepscope.importers.kineto.trace_file import Imported, import_trace
from stepscope.importers.smdebug import Recorded, import_output, recognise
from stepscope.store import RunWriter, available_cores

__all__ = ["Imported", "Recorded", "Refused", "Told", "find_files", "import_files"]

Told = Callable[[int, float], None]
"""Told the place of a file in the list and the share of it that is done."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that holds nothing readable, and why."""

    path: Path
    reason: str


def find_files(sources: Iterable[Path]) -> list[Path]:
    """The files that are meant: a directory stands for every file below it that is not hidden,
    nor in a hidden directory."""
    found: list[Path] = []
    for source in sources:
        if source.is_dir():
            found += sorted(path for path in _below(source) if path.is_file())
        else:
            found.append(source)
    return found


def _below(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def import_files(
    files: Sequence[Path], run: Path, node: str, told: Told = lambda _file, _share: None
) -> list[Imported | Recorded | Refused]:
    """Imports files into a run that exists; results in the order of the files.

    What SageMaker Debugger wrote belongs together and is imported as a whole, all else file by
    file: first, for it may be done by forked processes, which must not inherit a DuckDB.

    Raises:
        OSError: the run cannot be written, or a process that worked on it was killed.
    """
    forms = {n: form for n, path in enumerate(files) if (form := recognise(path)) is not None}
    rest = [n for n in range(len(files)) if n not in forms]
    traces = _import_traces(
        [files[n] for n in rest], run, node, lambda file, share: told(rest[file], share)
    )
    results: dict[int, Imported | Recorded | Refused] = dict(zip(rest, traces, strict=True))
    output = {n: (files[n], form) for n, form in forms.items()}
    if output:
        for n, result in import_output(output, run, told, traces_node=node).items():
            results[n] = Refused(files[n], result) if isinstance(result, str) else result
    return [results[n] for n in range(len(files))]


def _import_traces(
    files: Sequence[Path], run: Path, node: str, told: Told
) -> list[Imported | Refused]:
    cores = available_cores()
    processes = max(1, min(cores, len(files)))
    job = _Job(files=files, names=_names(files), run=run, node=node, processes=processes)
    if processes == 1:
        with RunWriter(run, node) as writer:
            decoders = cores if cores > 1 else 0
            return [job.do(number, writer, told, decoders) for number in range(len(files))]
    return _side_by_side(job, told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    files: Sequence[Path]
    names: Sequence[str]
    run: Path
    node: str
    processes: int
    """How many import files side by side."""

    def do(
        self, number: int, writer: RunWriter, told: Told, decoders: int = 0
    ) -> Imported | Refused:
        """Imports one of the files."""
        path = self.files[number]
        try:
            return import_trace(
                path,
                writer,
                Identity(name=self.names[number], directories=path.parts[-3:-1]),
                scratch=self.run,
                workers=decoders,
                side_by_side=self.processes,
                progress=lambda share: told(number, share),
            )
        except UnreadableTraceError as error:
            return Refused(path, str(error))
        except OSError as error:
            if error.errno == errno.ECHILD or error.filename != str(path):
                raise
            return Refused(path, f"{path} cannot be read: {error.strerror}.")


def _side_by_side(job: _Job, told: Told) -> list[Imported | Refused]:
    import duckdb  # noqa: F401 - once, and not in each of the processes

    waiting = list(range(len(job.files)))[::-1]
    results: dict[int, Imported | Refused] = {}
    pipes: list[Connection] = []
    processes: list[Any] = []
    try:
        for _ in range(job.processes):
            pipe, process = start_worker(_work, pipes, job)
            pipes.append(pipe)
            processes.append(process)
            pipe.send(waiting.pop())
        while len(results) < len(job.files):
            ready: list[Connection] = wait(pipes)  # type: ignore[assignment]
            for pipe in ready:
                number, news = _received(pipe)
                if isinstance(news, float):
                    told(number, news)
                    continue
                results[number] = news
                if waiting:
                    pipe.send(waiting.pop())
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join()
    return [results[number] for number in range(len(job.files))]


def _received(pipe: Connection) -> tuple[int, float | Imported | Refused]:
    try:
        number, news = pipe.recv()
    except (EOFError, OSError):  # an OSError within a message
        reason = "a process that imported a file was killed; is memory short?"
        raise ChildProcessError(errno.ECHILD, reason, "import") from None
    if isinstance(news, OSError):
        raise news
    return number, news


def _work(pipe: Connection, job: _Job) -> None:
    """Imports the files whose places come through the pipe, until it closes."""

    def told(number: int, share: float) -> None:
        pipe.send((number, share))

    with RunWriter(job.run, job.node) as writer:
        try:
            while True:
                number = pipe.recv()
                try:
                    news: Imported | Refused | OSError = job.do(number, writer, told)
                except OSError as error:
                    news = error
                pipe.send((number, news))
        except (EOFError, ConnectionError):
            return


def _names(files: Sequence[Path]) -> list[str]:
    """File names, with as many directories before them as tell them apart."""
    depth = 1
    while depth < 8:
        names = ["/".join(path.parts[-depth:]) for path in files]
        if len(set(names)) == len(names):
            return names
        depth += 1
    return [str(path) for path in files]
