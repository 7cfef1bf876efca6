"""All files of SageMaker Debugger's that an import found: one run, with its nodes and processes.

Samples come first, because they say how long the job ran at most; then framework events in order
of time, process by process; then what TensorFlow's profiler wrote.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.errors import UnreadableTraceError
from stepscope.importers.results import ProgressCallback, Recorded, Refused, Result
from stepscope.importers.smdebug.detail import import_detail
from stepscope.importers.smdebug.events import EventFile, read_events
from stepscope.importers.smdebug.recognise import EventFileName, Form
from stepscope.importers.smdebug.spans import Process, by_process
from stepscope.importers.smdebug.system import Series, Sorting, first_of_sweeps, read_samples
from stepscope.intervals import Int
from stepscope.schema import ImportedFact, JobState, JobStatus, NodeInfo, ProcessInfo
from stepscope.store import DictColumn, RunWriter

UNNAMED_NODE = "unnamed"
"""The machine of a process whose files name none."""
_APPEND_ROWS = 250_000
"""Samples of one node that are stored at once: files of one minute each are small."""
_TABLES = ("metrics", "spans")
_SLACK_NS = 3600 * 10**9
"""Nothing of a job ends so much later than the last sample of its machine."""
_DEFAULT_INTERVAL_NS = 500_000_000
_MISSING = {
    "size of the memory": "SageMaker Debugger samples the share in use, not the amount",
    "disks, processes, power and clocks": "SageMaker Debugger does not sample them",
}


def import_output(
    files: Sequence[tuple[Path, Form]], run: Path, node: str, progress: ProgressCallback
) -> list[Result]:
    """Import files into an existing run.

    Args:
        files: the files and what they hold.
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
                output.results[index] = Refused(
                    path,
                    f"{path} is a Python profile of SageMaker Debugger's, which stepscope does "
                    "not read.",
                )
            elif form is Form.MARK:
                output.ended |= path.suffix == ".ts"
                output.results[index] = Recorded(name=path.name, form=form.value)
            progress(index, 1.0)
        output.finish()
        return [output.results[index] for index in range(len(files))]


@dataclass(slots=True)
class _Node:
    """What is known of one machine."""

    name: str
    writer: RunWriter
    first_ns: int | None = None
    last_ns: int | None = None
    pending: Series = field(default_factory=Series)
    sample_count: int = 0
    sweeps: list[Int] = field(default_factory=list)
    devices: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Devices that were sampled, by metric."""
    notes: list[str] = field(default_factory=list)

    @property
    def sampler(self) -> str:
        """What rows call the process that took the samples."""
        return f"0-{self.name}-samples"

    def extend(self, first_ns: int | None, last_ns: int | None) -> None:
        """Takes a time range into the node's own."""
        if first_ns is not None:
            self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        if last_ns is not None:
            self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    def take(self, series: Series) -> None:
        """Takes samples, and stores what has come together when that is much."""
        self.pending.extend(series)
        if len(self.pending.t_ns) >= _APPEND_ROWS:
            self.store()

    def store(self) -> None:
        """Stores the samples taken and remembers what they say of the machine."""
        if not self.pending.t_ns:
            return
        times, columns = self.pending.columns()
        self.pending = Series()
        count = len(times)
        fixed = {"node": self.name, "process": self.sampler, "log": "0f"}
        provenance = {key: DictColumn.constant(value, count) for key, value in fixed.items()}
        seq = np.arange(self.sample_count, self.sample_count + count, dtype=np.int64)
        self.writer.append("metrics", {**provenance, "seq": seq, **columns})
        self.sample_count += count
        self.sweeps.append(times[first_of_sweeps(times)])
        self.extend(int(times[0]), int(times[-1]))
        metric, device = columns["metric"], columns["device"]
        for pair in np.unique(np.stack([metric.codes, device.codes]), axis=1).T.tolist():
            self.devices[str(metric.values[pair[0]])].add(str(device.values[pair[1]]))

    @property
    def info(self) -> NodeInfo:
        """The manifest."""
        cores = len(self.devices["core_busy_ratio"])
        gpus = sorted(self.devices["gpu_busy_ratio"], key=lambda gpu: (len(gpu), gpu))
        gaps = np.diff(np.concatenate(self.sweeps))
        missing = dict(_MISSING)
        if not gpus:
            missing["gpu"] = "no sample of a GPU is in the files"
        if not len(gaps):
            missing["interval"] = "there is one sweep of samples: Debugger's default is shown"
        return NodeInfo(
            node=self.name,
            platform="unknown",
            cpu_model="unknown processor",
            cores_total=cores,
            cores_available=float(cores),
            memory_bytes=None,
            memory_limit_bytes=None,
            sample_interval_ns=int(np.median(gaps)) if len(gaps) else _DEFAULT_INTERVAL_NS,
            spool="",
            clock_anchor_monotonic_ns=0,
            clock_anchor_epoch_ns=0,
            gpus=[{"index": int(gpu) if gpu.isdecimal() else gpu} for gpu in gpus],
            metrics_missing=missing,
        )

    def status(self, *, ended: bool) -> JobStatus:
        """The manifest of the job as this machine saw it."""
        return JobStatus(
            state=JobState.COMPLETED if ended else JobState.STOPPED,
            heartbeat_ns=self.last_ns or 0,
            started_ns=self.first_ns or 0,
            ended_ns=self.last_ns,
            reason=(
                "imported: Debugger marked the end of the job, not how it ended"
                if ended
                else "imported: the files end here and do not say how the job ended"
            ),
            notes=self.notes,
        )


class _Output:
    """The run while it is being made."""

    def __init__(self, run: Path, stack: ExitStack, progress: ProgressCallback) -> None:
        self.results: dict[int, Result] = {}
        self.ended = False
        self._run = run
        self._stack = stack
        self._progress = progress
        self._nodes: dict[str, _Node] = {}
        self._processes: dict[tuple[int | None, str], Process] = {}

    def read_system(self, files: Mapping[int, Path]) -> None:
        """Stores the samples of files; copies of one file are taken together."""
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, path in files.items():
            minute = re.match(r"\d+", path.name)
            groups[minute[0].zfill(12) if minute else path.name].append(number)
        sorting = Sorting()
        for _, numbers in sorted(groups.items()):
            read = {number: self._samples(number, files[number]) for number in numbers}
            samples = [sample for own in read.values() for sample in own]
            for name, series in sorting.by_node(samples).items():
                self._node(name).take(series)
            for number in numbers:
                self._progress(number, 1.0)
        for node in self._nodes.values():
            node.store()
        self._note_unknown(sorting)

    def read_events(self, files: Mapping[int, Path]) -> None:
        """Stores the framework events of files."""
        named = {number: EventFileName(path.name) for number, path in files.items()}
        order = sorted(files, key=lambda n: (named[n].end_us or 0, files[n].name))
        for number in order:
            path, host = files[number], self._host(named[number])
            self._progress(number, 1.0)
            node = self._nodes.get(host)
            horizon = node.last_ns + _SLACK_NS if node and node.last_ns else None
            try:
                found = read_events(path, horizon)
            except OSError as error:
                self.results[number] = _unreadable(path, error)
                continue
            self._take(path, host, found)
            self.results[number] = Recorded(
                name=path.name,
                form=Form.EVENTS.value,
                event_count=len(found.rows),
                lost=found.lost,
            )
        for process in self._processes.values():
            process.finish()
            self._store(process)

    def read_detail(self, number: int, path: Path, node: str) -> None:
        """Stores a recording of TensorFlow's profiler."""
        with RunWriter(self._run, node) as writer:
            try:
                self.results[number] = import_detail(path, writer, self._run)
            except UnreadableTraceError as error:
                self.results[number] = Refused(path, str(error))
            except OSError as error:
                if error.filename != str(path):
                    raise
                self.results[number] = _unreadable(path, error)

    def finish(self) -> None:
        """Writes the manifests and merges small segments."""
        for process in self._processes.values():
            if process.first_ns is not None:
                node = self._node(process.node)
                node.extend(process.first_ns, process.last_ns)
                node.writer.put_process(process.info())
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
            self.results[number] = _unreadable(path, error)
            return []
        self.results[number] = Recorded(
            name=path.name,
            form=Form.SYSTEM.value,
            sample_count=len(lines.samples),
            lost=lines.lost,
        )
        if lines.lost:
            for node in {sample.node_id for sample in lines.samples}:
                self._node(node).notes.append(f"of {path.name} {lines.lost}")
        return lines.samples

    def _note_unknown(self, sorting: Sorting) -> None:
        notes = [
            f"{count} samples of {dimension or 'no dimension'} were left out: stepscope does not "
            "know what that is"
            for dimension, count in sorting.unknown.items()
        ]
        if sorting.unreadable_count:
            notes.append(f"{sorting.unreadable_count} samples have no number for time or value")
        for node in list(self._nodes.values())[:1]:
            node.notes += notes

    def _node(self, name: str) -> _Node:
        found = self._nodes.get(name)
        if found is None:
            writer = self._stack.enter_context(RunWriter(self._run, name))
            found = self._nodes[name] = _Node(name, writer)
        return found

    # --- events ------------------------------------------------------------------------------

    def _host(self, name: EventFileName) -> str:
        """The machine of a file; where it names none, the only one that there is."""
        if name.host is not None:
            return name.host
        return next(iter(self._nodes)) if len(self._nodes) == 1 else UNNAMED_NODE

    def _take(self, path: Path, host: str, found: EventFile) -> None:
        process = self._process(found.name.pid, host, None, None)
        own, workers = by_process(found.rows)
        name, guessed = found.name, found.base_is_guessed
        process.add(EventFile(name=name, rows=own))
        for (pid, worker), rows in workers.items():
            its = self._process(pid, host, process, worker)
            its.add(EventFile(name=name, rows=rows))
            self._store(its)
        if found.lost:
            process.notes.append(f"of {path.name}: {found.lost}")
        if guessed:
            process.notes.append(
                f"{path.name} states no base for its times: its last event is taken to end when "
                "its name says"
            )
        self._store(process)

    def _process(
        self, pid: int | None, host: str, parent: Process | None, worker: int | None
    ) -> Process:
        found = self._processes.get((pid, host))
        if found is None:
            found = Process(node=host, pid=pid, parent=parent, worker=worker)
            self._processes[pid, host] = found
        return found

    def _store(self, process: Process) -> None:
        count, columns = process.columns()
        if count:
            self._node(process.node).writer.append("spans", columns)


def _unreadable(path: Path, error: OSError) -> Refused:
    return Refused(path, f"{path} cannot be read: {error.strerror}.")


def _sampler(node: _Node) -> ProcessInfo:
    """What sampled the machine: rows name it, and no file says more of it."""
    return ProcessInfo(
        process=node.sampler,
        node=node.name,
        pid=0,
        parent_pid=0,
        role="monitor",
        started_ns=node.first_ns or 0,
        ended_ns=node.last_ns,
        facts=[msgspec.to_builtins(ImportedFact(form="SageMaker Debugger"))],
    )
