"""Importer of Kineto and Chrome traces, many files in parallel.

Several files are imported one per core, each in a process of its own; a single large file is
decoded by all cores together.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cores import available_cores
from stepscope.errors import UnreadableTraceError
from stepscope.importers.kineto.describe import Identity
from stepscope.importers.kineto.execution_trace import (
    ExecutionTrace,
    is_execution_trace,
    read_execution_trace,
)
from stepscope.importers.kineto.identify import identify_files
from stepscope.importers.kineto.storing import GROUP_ROWS, HELD_ROWS, Storing
from stepscope.importers.kineto.trace_file import import_with
from stepscope.importers.results import (
    EXECUTION_TRACE,
    Imported,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
)
from stepscope.importers.workers import start_worker, wait_for
from stepscope.store import RunWriter

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Outcome = Imported | Refused


class KinetoImporter:
    """Importer of Kineto and Chrome traces; see `registry.Importer`."""

    def can_read(self, path: Path) -> bool:
        """Return True: it is the importer of files that no other importer knows."""
        return True

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import traces into an existing run; see `registry.Importer.import_files`.

        Execution traces among the files describe the operators of the traces.
        """
        execution_traces: list[ExecutionTrace] = []
        results: dict[int, Result] = {}
        for index, path in enumerate(files):
            if is_execution_trace(path):
                try:
                    execution_traces.append(read_execution_trace(path))
                except (UnreadableTraceError, OSError) as error:
                    results[index] = Refused(path, str(error))
        described = {trace.path for trace in execution_traces}
        indices = [n for n, path in enumerate(files) if n not in results and path not in described]
        traces = [files[index] for index in indices]
        imported = _import_traces(
            traces,
            execution_traces,
            run,
            node,
            lambda position, share: progress(indices[position], share),
        )
        results |= zip(indices, imported, strict=True)
        for index, path in enumerate(files):
            if path in described:
                results[index] = _report_execution_trace(path, imported)
        return [results[index] for index in range(len(files))]


def _import_traces(
    files: Sequence[Path],
    execution_traces: Sequence[ExecutionTrace],
    run: Path,
    node: str,
    progress: ProgressCallback,
) -> list[Outcome]:
    if not files:
        return []
    cores = available_cores()
    processes = min(cores, len(files))
    job = _Job(
        files=files,
        identities=identify_files(files),
        run=run,
        node=node,
        processes=processes,
        execution_traces=execution_traces,
    )
    if processes > 1:
        return _import_in_parallel(job, progress)
    with job.open_storing(lanes=min(cores, 2)) as storing:
        decoders = cores if cores > 1 else 0
        return [job.import_one(index, storing, progress, decoders) for index in range(len(files))]


def _report_execution_trace(path: Path, outcomes: Sequence[Outcome]) -> Result:
    counts = [
        outcome.described_count
        for outcome in outcomes
        if isinstance(outcome, Imported) and outcome.execution_trace == str(path)
    ]
    if not counts:
        return Refused(
            path,
            f"{path} is an execution trace, and no trace of the same process and time is imported "
            "with it: it describes the operators of a trace.",
        )
    return Recorded(name=path.name, form=EXECUTION_TRACE, event_count=sum(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    files: Sequence[Path]
    identities: Sequence[Identity]
    run: Path
    node: str
    processes: int
    """Number of processes that import files in parallel."""
    execution_traces: Sequence[ExecutionTrace]

    @contextmanager
    def open_storing(self, *, lanes: int = 1) -> Iterator[Storing]:
        """Open the storage of this process."""
        limits = (GROUP_ROWS, HELD_ROWS) if len(self.files) > 1 else (0, 0)
        with (
            RunWriter(self.run, self.node) as writer,
            Storing(writer, *limits, lanes=lanes) as storing,
        ):
            yield storing

    def import_one(
        self, index: int, storing: Storing, progress: ProgressCallback, decoders: int = 0
    ) -> Outcome:
        """Import one of the files."""
        path = self.files[index]
        try:
            return import_with(
                storing,
                path,
                self.identities[index],
                scratch=self.run,
                workers=decoders,
                parallel_imports=self.processes,
                execution_traces=self.execution_traces,
                progress=lambda share: progress(index, share),
            )
        except UnreadableTraceError as error:
            return Refused(path, str(error))
        except OSError as error:
            if error.errno == errno.ECHILD or error.filename != str(path):
                raise
            return Refused(path, f"{path} cannot be read: {error.strerror}.")


def _import_in_parallel(job: _Job, progress: ProgressCallback) -> list[Outcome]:
    # Once, and not in each of the processes; DuckDB imports the second one with the first result.
    import duckdb  # noqa: F401
    import numpy.ma  # noqa: F401

    waiting = sorted(range(len(job.files)), key=lambda n: _natural_key(job.files[n]), reverse=True)
    outcomes: dict[int, Outcome] = {}
    pipes: list[Connection] = []
    processes: list[Any] = []
    try:
        for _ in range(job.processes):
            pipe, process = start_worker(_work, pipes, job)
            pipes.append(pipe)
            processes.append(process)
            pipe.send(waiting.pop())
        busy = list(pipes)
        while busy:
            for pipe in wait_for(busy):
                index, message = _receive(pipe)
                if isinstance(message, float):
                    progress(index, message)
                elif message is None:
                    busy.remove(pipe)
                else:
                    outcomes[index] = message
                    pipe.send(waiting.pop() if waiting else None)
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join()
    return [outcomes[index] for index in range(len(job.files))]


def _natural_key(path: Path) -> list[int | str]:
    """Return a key that sorts rank 2 before rank 10: ranks stored together are read together."""
    parts = re.split(r"([0-9]+)", str(path))
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def _receive(pipe: Connection) -> tuple[int, float | Outcome | None]:
    try:
        index, message = pipe.recv()
    except (EOFError, OSError):  # an OSError within a message
        reason = "a process that imported a file was killed, perhaps for lack of memory"
        raise ChildProcessError(errno.ECHILD, reason, "import") from None
    if isinstance(message, OSError):
        raise message
    return index, message


def _work(pipe: Connection, job: _Job) -> None:
    """Import the files whose indices arrive through the pipe, and say when all are stored."""

    def report(index: int, share: float) -> None:
        pipe.send((index, share))

    try:
        try:
            with job.open_storing() as storing:
                while (index := pipe.recv()) is not None:
                    pipe.send((index, job.import_one(index, storing, report)))
            pipe.send((-1, None))
        except OSError as error:
            pipe.send((-1, error))
    except (EOFError, ConnectionError):
        return
