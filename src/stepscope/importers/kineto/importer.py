"""Importer of Kineto and Chrome traces, many files in parallel.

Several files are imported one per core, each in a process of its own; a single large file is
decoded by all cores together.
"""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stepscope import errors, schema, store
from stepscope.cores import available_processes, start_worker, wait_for
from stepscope.importers import content
from stepscope.importers.kineto import execution_trace
from stepscope.importers.kineto.describe import Identity
from stepscope.importers.kineto.tables import GROUP_ROWS, HELD_ROWS, Storing
from stepscope.importers.kineto.trace_file import import_with

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Outcome = content.Imported | content.Refused
TRACE = content.Format(
    name="trace",
    tables=tuple(table.name for table in schema.TRACE_TABLES),
    file="trace",
    event="event",
    sentence="{files}, {events} in {run}",
)
EXECUTION_TRACE = content.Format(
    name="execution trace",
    tables=("operators",),
    file="execution trace",
    event="operator",
    sentence="{files} with the inputs of {events}",
    view="memory",
)
_TRACE_START = re.compile(
    rb'\s*[{\[].*"(?:traceEvents|schemaVersion|deviceProperties|displayTimeUnit|otherData|ph|nodes)"'
    rb"\s*:",
    re.DOTALL,
)


class KinetoImporter(content.TraceImporter):
    """Importer of Kineto and Chrome traces; see `registry.Importer`."""

    formats = (TRACE, EXECUTION_TRACE)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for JSON that begins with an event or with keys of a trace."""
        return bool(_TRACE_START.match(head))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: content.ProgressCallback
    ) -> list[content.Result]:
        """Import traces into an existing run; see `registry.Importer.import_files`.

        Execution traces among the files describe the operators of the traces.
        """
        execution_traces: list[execution_trace.ExecutionTrace] = []
        results: dict[int, content.Result] = {}
        for index, path in enumerate(files):
            if execution_trace.is_execution_trace(path):
                try:
                    execution_traces.append(execution_trace.read_execution_trace(path))
                except (errors.UnreadableTraceError, OSError) as error:
                    results[index] = content.Refused(path, str(error))
        described = {trace.path for trace in execution_traces}
        indices = [n for n, path in enumerate(files) if n not in results and path not in described]
        traces = [files[index] for index in indices]
        job = _Job(
            files=traces,
            identities=identify_files(traces, self.step_range),
            run=run,
            node=node,
            processes=min(available_processes(), len(traces)),
            execution_traces=execution_traces,
        )
        imported = _import_traces(job, lambda number, share: progress(indices[number], share))
        results |= zip(indices, imported, strict=True)
        for index, path in enumerate(files):
            if path in described:
                results[index] = _report_execution_trace(path, imported)
        return [results[index] for index in range(len(files))]


def _import_traces(job: _Job, progress: content.ProgressCallback) -> list[Outcome]:
    if not job.files:
        return []
    if job.processes > 1:
        return _import_in_parallel(job, progress)
    cores = available_processes()
    with job.open_storing(lanes=min(cores, 2)) as storing:
        decoders = cores if cores > 1 else 0
        return [job.import_one(n, storing, progress, decoders) for n in range(len(job.files))]


def _report_execution_trace(path: Path, outcomes: Sequence[Outcome]) -> content.Result:
    counts = [
        outcome.described_count
        for outcome in outcomes
        if isinstance(outcome, content.Imported) and outcome.execution_trace == str(path)
    ]
    if not counts:
        return content.Refused(
            path,
            f"{path} is an execution trace: it has no times, and describes the operators of a "
            "trace. No trace of the same process and time is imported with it: record one with "
            "torch.profiler around the same steps, and pass both files to one import.",
        )
    return content.Recorded(name=path.name, form=EXECUTION_TRACE.name, event_count=sum(counts))


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    files: Sequence[Path]
    identities: Sequence[Identity]
    run: Path
    node: str
    processes: int
    """Number of processes that import files in parallel."""
    execution_traces: Sequence[execution_trace.ExecutionTrace]

    @contextmanager
    def open_storing(self, *, lanes: int) -> Iterator[Storing]:
        """Open the storage of this process; see `Storing`."""
        group_rows = GROUP_ROWS if len(self.files) > 1 else 0
        with (
            store.RunWriter(self.run, self.node) as writer,
            Storing(writer, group_rows, HELD_ROWS, lanes=lanes, defers_sync=True) as storing,
        ):
            yield storing

    def import_one(
        self, index: int, storing: Storing, progress: content.ProgressCallback, decoders: int = 0
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
        except content.SeveralTracesError as error:
            return content.Refused(path, str(error), error.starts)
        except errors.UnreadableTraceError as error:
            return content.Refused(path, str(error))
        except OSError as error:
            if error.errno == errno.ECHILD or error.filename != str(path):
                raise
            return content.Refused(path, f"{path} cannot be read: {error.strerror}.")


def _import_in_parallel(job: _Job, progress: content.ProgressCallback) -> list[Outcome]:
    # Once, and not in each of the processes; DuckDB imports the second one with the first result.
    import _duckdb  # noqa: F401
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
            with job.open_storing(lanes=0) as storing:
                while (index := pipe.recv()) is not None:
                    pipe.send((index, job.import_one(index, storing, report)))
            pipe.send((-1, None))
        except OSError as error:
            pipe.send((-1, error))
    except (EOFError, ConnectionError):
        return


_MAX_NAME_DEPTH = 8


def identify_files(files: Sequence[Path], step_range: str | None) -> list[Identity]:
    """Describe the origin of each file as far as their paths tell, and the user.

    A file that torch.profiler named is called by its worker, with the time if a worker has several
    files; then those are windows of the worker, numbered by time.
    """
    windows = _number_windows(files)
    return [
        Identity(
            name=name,
            directories=path.parts[-3:-1],
            file_name=schema.parse_trace_name(path.name),
            window=windows.get(path),
            step_range=step_range,
        )
        for path, name in zip(files, _name_files(files), strict=True)
    ]


def _number_windows(files: Sequence[Path]) -> dict[Path, int]:
    """Number the files of each worker from 1, by time; empty if no worker has several files."""
    workers: defaultdict[tuple[Path, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        parts = schema.parse_trace_name(path.name)
        if parts is not None and parts.written_ns is not None:
            workers[path.parent, parts.worker].append((parts.written_ns, path))
    if all(len(spans) == 1 for spans in workers.values()):
        return {}
    ordered = map(sorted, workers.values())
    return {path: number for spans in ordered for number, (_, path) in enumerate(spans, 1)}


def _name_files(files: Sequence[Path]) -> list[str]:
    """Name files by worker, worker and time, or file name, the first that makes names unique, with
    parent directories if none does; those of an archive start with its name."""
    return [
        f"{archive}/{name}" if archive and archive not in name.split("/")[:-1] else name
        for archive, name in zip(map(_archive_of, files), _name_apart(files), strict=True)
    ]


def _archive_of(path: Path) -> str | None:
    """Return the name of the archive that held a file; see `documents`."""
    parts = path.parts
    inside = (n for n, part in enumerate(parts) if part.startswith(content.UNPACKED_PREFIX))
    start = next(inside, len(parts))
    return parts[start + 3] if len(parts) > start + 4 else None


def _name_apart(files: Sequence[Path]) -> list[str]:
    parsed = [schema.parse_trace_name(path.name) for path in files]
    workers = [p.worker if p else path.name for p, path in zip(parsed, files, strict=True)]
    dated = [p.dated_worker if p else path.name for p, path in zip(parsed, files, strict=True)]
    for names in (workers, dated, [path.name for path in files]):
        if len(set(names)) == len(names):
            return names
    for depth in range(2, _MAX_NAME_DEPTH):
        names = ["/".join(path.parts[-depth:]) for path in files]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in files]
