"""Import of all files of SageMaker Debugger into one run, with its nodes and processes.

Samples come first, because they bound the time of the job; then framework events in order of time,
process by process; then traces of TensorFlow's profiler and Python profiles; last the traces of
operators, because they are cut by the steps of their process.

Traces of TensorFlow's own profiler, started by Debugger. They are Chrome traces whose times count
from a moment in the name of another file.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import errors, intervals, schema
from stepscope.importers import content, kineto
from stepscope.importers.kineto import Frame, Identity, import_trace, inflated
from stepscope.importers.smdebug.events import (
    EventFile,
    EventFileName,
    Form,
    detect_form,
    read_events,
)
from stepscope.importers.smdebug.python_profiles import read_profile
from stepscope.importers.smdebug.spans import Process, split_by_process
from stepscope.importers.smdebug.system import SampleSorter, Series, first_of_ticks, read_samples
from stepscope.store import DictColumn, RunWriter

FORMAT = content.Format(
    name=schema.DEBUGGER,
    parts=tuple(form.value for form in Form),
    tables=("metrics", "spans", "python_profiles", *kineto.TRACE.tables),
    event="framework event",
    sentence="{files} of SageMaker Debugger, {samples} and {events} in {run}",
    view="overview",
)
UNNAMED_NODE = "unnamed"
"""Node of a process whose files name none."""
_APPEND_ROWS = 250_000
"""Samples of one node that are stored at once, because files of one minute are small."""
_TABLES = ("metrics", "spans", "python_profiles")
_SLACK_NS = 3600 * 10**9
"""No event of a job ends so much later than the last sample of its node."""
_DEFAULT_INTERVAL_NS = 500_000_000
_MISSING = {
    "size of the memory": "SageMaker Debugger samples the share in use, not the amount",
    "disks, processes, power and clocks": "SageMaker Debugger does not sample them",
}


def import_output(
    files: Sequence[tuple[Path, Form]], run: Path, node: str, progress: content.ProgressCallback
) -> list[content.Result]:
    """Import files into an existing run.

    Args:
        files: the files with their forms.
        run: directory of the run.
        node: node name of the traces of TensorFlow's profiler, which name no machine.
        progress: called with the index of a file and the share of it that is done.

    Raises:
        OSError: the run cannot be written.
    """
    by_form: defaultdict[Form, dict[int, Path]] = defaultdict(dict)
    for index, (path, form) in enumerate(files):
        by_form[form][index] = path
    with ExitStack() as stack:
        output = _Output(run, stack, progress)
        output.read_system(by_form[Form.SYSTEM])
        output.read_events(by_form[Form.EVENTS])
        for index, (path, form) in enumerate(files):
            if form is Form.DETAIL:
                output.read_detail(index, path, node)
            elif form is Form.PYTHON_PROFILE:
                output.read_python_profile(index, path)
            elif form is Form.PAGE:
                output.results[index] = content.Recorded(name=path.name, form=form.value)
            elif form is Form.MARK:
                output.ended |= path.suffix == ".ts"
                output.results[index] = content.Recorded(name=path.name, form=form.value)
            progress(index, 1.0)
        output.finish()
        return [output.results[index] for index in range(len(files))]


class _Node(msgspec.Struct):
    """Node with its samples."""

    name: str
    writer: RunWriter
    first_ns: int | None = None
    last_ns: int | None = None
    pending: Series = msgspec.field(default_factory=Series)
    sample_count: int = 0
    ticks: list[intervals.Int] = msgspec.field(default_factory=list)
    devices: defaultdict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """Sampled devices by metric."""
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def sampler(self) -> str:
        """Name of the sampling process in rows."""
        return f"0-{self.name}-samples"

    def extend(self, first_ns: int | None, last_ns: int | None) -> None:
        """Extend the time range of the node."""
        if first_ns is not None:
            self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        if last_ns is not None:
            self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    def add(self, series: Series) -> None:
        """Add samples, and store the pending ones when there are many."""
        self.pending.extend(series)
        if len(self.pending.t_ns) >= _APPEND_ROWS:
            self.store()

    def store(self) -> None:
        """Store the pending samples, and note their devices and times."""
        if not self.pending.t_ns:
            return
        times, columns = self.pending.columns()
        self.pending = Series()
        count = len(times)
        constants = {"node": self.name, "process": self.sampler, "log": "0f"}
        provenance = {key: DictColumn.constant(value, count) for key, value in constants.items()}
        seq = np.arange(self.sample_count, self.sample_count + count, dtype=np.int64)
        self.writer.append("metrics", {**provenance, "seq": seq, **columns})
        self.sample_count += count
        self.ticks.append(times[first_of_ticks(times)])
        self.extend(int(times[0]), int(times[-1]))
        metric, device = columns["metric"], columns["device"]
        for pair in np.unique(np.stack([metric.codes, device.codes]), axis=1).T.tolist():
            self.devices[str(metric.values[pair[0]])].add(str(device.values[pair[1]]))

    @property
    def info(self) -> schema.NodeInfo:
        """Manifest of the node."""
        cores = len(self.devices["core_busy_ratio"])
        gpus = sorted(self.devices["gpu_busy_ratio"], key=lambda gpu: (len(gpu), gpu))
        gaps = np.diff(np.concatenate(self.ticks))
        missing = dict(_MISSING)
        if not gpus:
            missing["gpu"] = "the files have no GPU samples"
        if not len(gaps):
            missing["interval"] = "the files have one sampling tick; Debugger's default is shown"
        return schema.NodeInfo.of_import(
            self.name,
            core_count=cores,
            sample_interval_ns=int(np.median(gaps)) if len(gaps) else _DEFAULT_INTERVAL_NS,
            gpus=[{"index": int(gpu) if gpu.isdecimal() else gpu} for gpu in gpus],
            metrics_missing=missing,
        )

    def status(self, *, ended: bool) -> schema.JobStatus:
        """Return the manifest of the job on this node."""
        return schema.JobStatus(
            state=schema.JobState.COMPLETED if ended else schema.JobState.STOPPED,
            heartbeat_ns=self.last_ns or 0,
            started_ns=self.first_ns or 0,
            ended_ns=self.last_ns,
            reason=(
                "imported: Debugger recorded the end of the job, but not its outcome"
                if ended
                else "imported: the files end here and do not record the outcome of the job"
            ),
            notes=self.notes,
        )


class _Output:
    """Run during its import."""

    def __init__(self, run: Path, stack: ExitStack, progress: content.ProgressCallback) -> None:
        self.results: dict[int, content.Result] = {}
        self.ended = False
        self._run = run
        self._stack = stack
        self._progress = progress
        self._nodes: dict[str, _Node] = {}
        self._processes: dict[tuple[int | None, str], Process] = {}

    def read_system(self, files: Mapping[int, Path]) -> None:
        """Store the samples of files; copies of one file are merged."""
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, path in files.items():
            minute = re.match(r"\d+", path.name)
            groups[minute[0].zfill(12) if minute else path.name].append(number)
        sorter = SampleSorter()
        for _, numbers in sorted(groups.items()):
            samples = [
                sample for number in numbers for sample in self._samples(number, files[number])
            ]
            for name, series in sorter.by_node(samples).items():
                self._node(name).add(series)
            for number in numbers:
                self._progress(number, 1.0)
        for node in self._nodes.values():
            node.store()
        self._note_unknown(sorter)

    def read_events(self, files: Mapping[int, Path]) -> None:
        """Store the framework events of files."""
        names = {number: EventFileName(path.name) for number, path in files.items()}
        order = sorted(files, key=lambda n: (names[n].end_us or 0, files[n].name))
        for number in order:
            path, host = files[number], self._choose_node(names[number].host)
            self._progress(number, 1.0)
            node = self._nodes.get(host)
            horizon = node.last_ns + _SLACK_NS if node and node.last_ns else None
            try:
                events = read_events(path, horizon)
            except OSError as error:
                self.results[number] = content.refuse(path, error)
                continue
            self._add_events(path, host, events)
            self.results[number] = content.Recorded(
                name=path.name,
                form=Form.EVENTS.value,
                event_count=len(events.rows),
                lost=events.lost,
            )
        for process in self._processes.values():
            process.finish()
            self._store(process)
            if process.is_worker and process.parent is None:
                process.parent = self._find_parent(process)

    def read_detail(self, number: int, path: Path, node: str) -> None:
        """Store a trace of TensorFlow's profiler."""
        with RunWriter(self._run, node) as writer:
            try:
                self.results[number] = import_detail(path, writer, self._run)
            except errors.UnreadableTraceError as error:
                self.results[number] = content.Refused(path, str(error))
            except OSError as error:
                if error.filename != str(path):
                    raise
                self.results[number] = content.refuse(path, error)

    def read_python_profile(self, number: int, path: Path) -> None:
        """Store a Python profile."""
        try:
            profile = read_profile(path)
        except ValueError as error:
            self.results[number] = content.Refused(
                path, f"{path} is no readable Python profile: {error}."
            )
            return
        except OSError as error:
            self.results[number] = content.refuse(path, error)
            return
        process = self._process(profile.pid, self._choose_node(profile.host), None, None)
        rows = process.add_profile(profile)
        self._node(process.node).writer.append("python_profiles", rows)
        self.results[number] = content.Recorded(name=path.name, form=Form.PYTHON_PROFILE.value)

    def finish(self) -> None:
        """Write the manifests and merge small segments."""
        for process in self._processes.values():
            if process.first_ns is not None:
                node, info = self._node(process.node), process.info()
                node.extend(process.first_ns, process.last_ns)
                node.writer.put_process(info)
                process.operators.store(node.writer, info, process.steps, scratch=self._run)
        for node in self._nodes.values():
            if node.sample_count:
                node.writer.put_node(node.info)
                node.writer.put_process(_sampler(node))
            node.writer.put_status(node.status(ended=self.ended))
            for table in _TABLES:
                node.writer.compact(table)

    # --- samples -----------------------------------------------------------------------------

    def _samples(self, number: int, path: Path) -> list[Any]:
        try:
            lines = read_samples(path)
        except OSError as error:
            self.results[number] = content.refuse(path, error)
            return []
        self.results[number] = content.Recorded(
            name=path.name, form=Form.SYSTEM.value, sample_count=len(lines.samples), lost=lines.lost
        )
        if lines.lost:
            for node in {sample.node_id for sample in lines.samples}:
                self._node(node).notes.append(f"{path.name}: {lines.lost}")
        return lines.samples

    def _note_unknown(self, sorter: SampleSorter) -> None:
        notes = [
            f"{count} samples of {dimension or 'no dimension'} were left out: stepscope does not "
            "know this dimension"
            for dimension, count in sorter.unknown.items()
        ]
        if sorter.unreadable_count:
            notes.append(f"{sorter.unreadable_count} samples have no numeric time or value")
        for node in list(self._nodes.values())[:1]:
            node.notes += notes

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            writer = self._stack.enter_context(RunWriter(self._run, name))
            node = self._nodes[name] = _Node(name, writer)
        return node

    # --- events ------------------------------------------------------------------------------

    def _choose_node(self, host: str | None) -> str:
        """Return the node of a file; if it names no host, the only one with samples."""
        if host is not None:
            return host
        return next(iter(self._nodes)) if len(self._nodes) == 1 else UNNAMED_NODE

    def _add_events(self, path: Path, host: str, events: EventFile) -> None:
        process = self._process(events.name.pid, host, None, None)
        process_rows, workers = split_by_process(events.rows)
        process.add(EventFile(name=events.name, rows=process_rows))
        for (pid, number), rows in workers.items():
            worker = self._process(pid, host, process, number)
            worker.is_worker, worker.worker = True, number
            worker.add(EventFile(name=events.name, rows=rows))
            self._store(worker)
        if events.lost:
            process.notes.append(f"{path.name}: {events.lost}")
        if events.base_is_guessed:
            process.notes.append(
                f"{path.name} has no base time: its last event is assumed to end at the time in "
                "the file name"
            )
        self._store(process)

    def _process(
        self, pid: int | None, host: str, parent: Process | None, worker: int | None
    ) -> Process:
        process = self._processes.get((pid, host))
        if process is None:
            process = Process(node=host, pid=pid, parent=parent, worker=worker)
            self._processes[pid, host] = process
        return process

    def _find_parent(self, worker: Process) -> Process | None:
        """Find the process of a worker that writes files of its own: the only one with steps."""
        parents = [p for p in self._processes.values() if p.node == worker.node and p.steps]
        return parents[0] if len(parents) == 1 else None

    def _store(self, process: Process) -> None:
        count, columns = process.columns()
        if count:
            self._node(process.node).writer.append("spans", columns)


def _sampler(node: _Node) -> schema.ProcessInfo:
    """Return the manifest of the sampling process, which only the rows name."""
    return schema.ProcessInfo(
        process=node.sampler,
        node=node.name,
        pid=0,
        parent_pid=0,
        role="monitor",
        started_ns=node.first_ns or 0,
        ended_ns=node.last_ns,
        facts=[msgspec.to_builtins(schema.ImportedFact(form=schema.DEBUGGER))],
    )


_METADATA = re.compile(r"(?P<recorder>.+)_(?P<start_us>\d+)_\d+\.metadata")
_FOLDERS_ABOVE = 3
"""Of <step>/plugins/profile/<time>/<host>.trace.json.gz; the file that names the start is in
<step>."""
_PIECE_BYTES = 1 << 20


def start_us(path: Path) -> int | None:
    """Return the start of a trace in microseconds since 1970; None if it is unknown."""
    if len(path.parents) <= _FOLDERS_ABOVE:
        return None
    names = (file.name for file in path.parents[_FOLDERS_ABOVE].iterdir())
    matches = [match for match in map(_METADATA.fullmatch, names) if match is not None]
    host = path.name.partition(".")[0]
    host_matches = [match for match in matches if host in match["recorder"]] or matches
    return int(host_matches[0]["start_us"]) if len(host_matches) == 1 else None


def import_detail(path: Path, writer: RunWriter, scratch: Path) -> content.Imported:
    """Store the trace, with times since 1970 if its start is known.

    Raises:
        UnreadableTraceError: the file has no readable event.
        OSError: the file cannot be read, or the run cannot be written.
    """
    identity = Identity(name=path.name)
    trace_start_us = start_us(path)
    if trace_start_us is None:
        return import_trace(path, writer, identity, scratch=scratch)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".import-") as directory:
        based = Path(directory) / path.name
        _copy_with_base(path, based, trace_start_us * 1000)
        return import_trace(based, writer, identity, scratch=scratch)


def _copy_with_base(path: Path, target: Path, base_ns: int) -> None:
    """Copy the text, with one more key at its top."""
    texts = _texts(path)
    before, brace, rest = next(texts, b"").partition(b"{")
    base = b'"baseTimeNanoseconds":%d,' % base_ns if brace and not before.strip() else b""
    with target.open("wb") as copy:
        copy.write(before + brace + base + rest)
        copy.writelines(texts)


def _texts(path: Path) -> Iterator[bytes]:
    """Yield the text of a file, compressed or not, as far as it can be read.

    The import of the copy reports a missing end.
    """
    with path.open("rb") as file:
        if content.is_compressed(path):
            yield from inflated(file, Frame())
        else:
            yield from iter(lambda: file.read(_PIECE_BYTES), b"")


class SMDebugImporter:
    """Importer of SageMaker Debugger's files; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, _head: bytes, path: Path) -> bool:
        """Return True for a file that Debugger wrote."""
        return detect_form(path) is not None

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: content.ProgressCallback
    ) -> list[content.Result]:
        """Import the files of one job together; see `registry.Importer.import_files`."""

        forms = [(path, form) for path in files if (form := detect_form(path)) is not None]
        return import_output(forms, run, node, progress)
