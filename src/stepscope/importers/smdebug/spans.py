"""Framework events of one process as rows of `spans`.

    Step:ModeKeys.TRAIN, GLOBAL    `mode`, and the mark `step` at its end
    Step:ModeKeys.EVAL, PREDICT    `mode`
    Forward, Forward-node          `forward`
    Backward(post-forward), …      `backward`
    DataLoaderIterInitialize       `loader_start`
    DataLoaderIter                 `data_wait`; without workers, also a `fetch` of the same extent
    DataLoaderWorker               `fetch` of the worker process
    DataIterator (TensorFlow)      IteratorGetNextOp::DoCompute `data_wait`; dataset::GetNext
                                   `fetch`, and those nested in it `sample`
    cpu_functions, gpu_functions   no spans, but traces; see `operators`
    Horovod, NCCL and smddp        `communication`, asynchronous: another thread recorded it
    everything else                `annotation`

The label `phase` keeps Debugger's name; for Horovod that is the tensor. The label `recorder` is
the suffix of the file's name, such as `pythontimeline`. Phases of the step go to
one track, that of the training thread, wherever the file has them: Debugger writes them from hooks
of that thread.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from stepscope import schema, store
from stepscope.importers.smdebug.events import EventFile, Row
from stepscope.importers.smdebug.operators import Operators
from stepscope.importers.smdebug.python_profiles import PythonProfile, columns_of

WORKER_PHASE = "DataLoaderWorker"
_FIRST_TRACK = 2**31
"""First number of tracks that are no threads, above all thread numbers."""
_ASYNCHRONOUS = 1
_MODE = re.compile(r"Step:ModeKeys\.(\w+)")
_TRAINING_MODES = ("TRAIN", "GLOBAL")
"""GLOBAL is the mode of steps of a script that names no modes."""
_KINDS = (
    (re.compile(r"Forward(-node.*)?"), "forward"),
    (re.compile(r"Backward(\(post-forward\))?(-node.*)?"), "backward"),
    (re.compile(r"DataLoaderIterInitialize"), "loader_start"),
    (re.compile(r"DataLoaderIter"), "data_wait"),
    (re.compile(WORKER_PHASE), "fetch"),
)
_TENSORFLOW_PHASE = "DataIterator"
_TENSORFLOW_WAIT = "IteratorGetNextOp"
"""Start of the name of the operator by which the model gets a batch. Other events of the phase are
calls of datasets, each inside the call of the dataset that it feeds, or in a thread of its own."""
_BATCHES = "batches"
_DATASETS = "datasets"
"""Tracks of the creation of batches."""
_COLLECTIVE_RECORDERS = frozenset({"horovod_timeline", "smdataparallel_timeline"})
_COLLECTIVE_PHASES = frozenset({"NcclManager"})
_UNKNOWN = -1
"""Unknown value: number of prefetched batches, number of a step, CPU time of a fetch."""
_UNKNOWN_KINDS = frozenset({"data_wait", "fetch"})
"""Kinds whose value is unknown."""


class _Span(msgspec.Struct):
    kind: str
    name: str
    labels: str | None
    start_ns: int
    end_ns: int | None
    value: int = 0
    flags: int = 0
    depth: int = 0


class _Track(msgspec.Struct):
    number: int
    row_count: int = 0
    new: list[_Span] = msgspec.field(default_factory=list)
    open: list[tuple[Row, str]] = msgspec.field(default_factory=list)
    """Started ranges without an end, outermost first, each with its recorder."""


class Process(msgspec.Struct, kw_only=True):
    """Process of the job with its spans, file after file."""

    node: str
    pid: int | None
    """None if no file states it."""
    parent: Process | None = None
    """Process that started this DataLoader worker; None if unknown, and for other processes."""
    is_worker: bool = False
    worker: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    loaders: list[schema.DataLoaderSettingsFact] = msgspec.field(default_factory=list)
    phases: Counter[str] = msgspec.field(default_factory=Counter)
    unmatched_ends: int = 0
    operators: Operators = msgspec.field(default_factory=Operators)
    steps: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Start and end of each training step."""
    _loader: schema.DataLoaderSettingsFact = msgspec.field(
        default_factory=schema.DataLoaderSettingsFact
    )
    """Settings of the DataLoader whose iterator started last."""
    _tracks: dict[Any, _Track] = msgspec.field(default_factory=dict)
    _profile_row_count: int = 0
    _first_phase_ns: int | None = None
    _has_steps: bool = False

    @property
    def name(self) -> str:
        """Name in rows and in the manifest; the same pid may exist on every node."""
        return f"{self.pid or 0}-{self.node}"

    def add(self, file: EventFile) -> None:
        """Add the rows of a file; files come in order of time."""
        recorder = file.name.suffix
        for row in sorted(file.rows, key=lambda row: row.start_ns):
            if row.duration_ns is not None:
                self._add(row, recorder, row.start_ns + row.duration_ns)
            else:
                self._pair(row, recorder)
        self._mark_first_step()

    def add_profile(self, profile: PythonProfile) -> Mapping[str, Any]:
        """Return the columns of `python_profiles` of one more profile."""
        self._extend(profile.start_ns, profile.end_ns)
        first_row = self._profile_row_count
        self._profile_row_count += len(profile.functions)
        return columns_of(profile, node=self.node, process=self.name, first_row=first_row)

    def finish(self) -> None:
        """Turn ranges that never ended into spans without an end."""
        for track in list(self._tracks.values()):
            unfinished, track.open = track.open, []
            for row, recorder in unfinished:
                self._add(row, recorder, None)

    def columns(self) -> tuple[int, Mapping[str, Any]]:
        """Return the number of new rows since the last call, and their columns of `spans`."""
        rows: list[_Span] = []
        logs: list[str] = []
        numbers: list[int] = []
        for key, track in self._tracks.items():
            _nest(track.new)
            if key == _DATASETS:
                _mark_samples(track.new)
            rows += track.new
            logs += [f"{track.number}c"] * len(track.new)
            numbers += range(track.row_count, track.row_count + len(track.new))
            track.row_count += len(track.new)
            track.new = []
        ends = [row.end_ns for row in rows]
        return len(rows), {
            "node": store.DictColumn.constant(self.node, len(rows)),
            "process": store.DictColumn.constant(self.name, len(rows)),
            "log": store.DictColumn.encode(logs),
            "seq": np.array(numbers, dtype=np.int64),
            "kind": store.DictColumn.encode(row.kind for row in rows),
            "name": store.DictColumn.encode(row.name for row in rows),
            "labels": store.DictColumn.encode(row.labels for row in rows),
            "start_ns": np.array([row.start_ns for row in rows], dtype=np.int64),
            "end_ns": np.ma.MaskedArray(
                np.array([end or 0 for end in ends], dtype=np.int64),
                mask=[end is None for end in ends],
            ),
            "depth": np.array([row.depth for row in rows], dtype=np.int64),
            "flags": np.array([row.flags for row in rows], dtype=np.int64),
            "value": np.array([row.value for row in rows], dtype=np.int64),
        }

    def info(self) -> schema.ProcessInfo:
        """Return the manifest."""
        worker = self.is_worker
        facts: list[schema.Fact] = [schema.ImportedFact(form=schema.DEBUGGER)]
        if worker:
            facts.append(schema.DataLoaderWorkerFact(worker=self.worker))
        facts += self.loaders
        return schema.ProcessInfo(
            process=self.name,
            node=self.node,
            pid=self.pid or 0,
            parent_pid=self.parent.pid or 0 if self.parent else 0,
            role="dataloader_worker" if worker else "main",
            started_ns=self.first_ns or 0,
            ended_ns=self.last_ns,
            facts=[msgspec.to_builtins(fact) for fact in facts],
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        notes = []
        if not self.is_worker and not self._has_steps:
            notes.append("its files have no Step:ModeKeys.TRAIN or GLOBAL event")
        if self.pid is None:
            notes.append("its files do not state the process number")
        if any(phase.startswith("Backward(post-forward)") for phase in self.phases):
            notes.append(
                "Debugger's backward pass lasts until the start of the next step and includes the "
                "optimizer"
            )
        if self.unmatched_ends:
            notes.append(f"{self.unmatched_ends} ends of ranges have no start")
        return notes + self.notes

    # --- rows --------------------------------------------------------------------------------

    def _pair(self, row: Row, recorder: str) -> None:
        """Match starts and ends like brackets, lane by lane; an end may have no name."""
        track = self._track(("lane", row.phase))
        if row.is_start:
            track.open.append((row, recorder))
            return
        if not track.open:
            self.unmatched_ends += 1
            return
        self._add(track.open.pop()[0], recorder, row.start_ns)

    def _add(self, row: Row, recorder: str, end_ns: int | None) -> None:
        self._extend(row.start_ns, row.start_ns if end_ns is None else end_ns)
        mode = _MODE.match(row.phase) or _MODE.match(row.name)
        if mode is not None:
            self._add_step(row, recorder, mode[1], end_ns)
            return
        self.phases[row.phase] += 1
        if self.operators.add(row, end_ns):
            return
        if recorder in _COLLECTIVE_RECORDERS or row.phase in _COLLECTIVE_PHASES:
            labels = _labels(
                row, recorder, "tensor" if recorder in _COLLECTIVE_RECORDERS else "phase"
            )
            span = _Span("communication", row.name or row.phase, labels, row.start_ns, end_ns)
            span.flags = _ASYNCHRONOUS
            self._put(("lane", row.phase), span)
            return
        kind = _kind_of(row)
        value = _UNKNOWN if kind in _UNKNOWN_KINDS else 0
        span = _Span(
            kind, row.name or row.phase, _labels(row, recorder), row.start_ns, end_ns, value
        )
        if kind == "fetch":
            self._put(_DATASETS if row.phase == _TENSORFLOW_PHASE else _BATCHES, span)
            return
        if kind == "annotation":
            has_thread = isinstance(row.thread, int) and row.thread != self.pid
            self._put(row.thread if has_thread else ("lane", row.phase), span)
            return
        if kind == "loader_start":
            self._add_loader(row.args)
        if kind == "data_wait" and self._creates_batches:
            self._put("training", replace(span, kind="fetch"))
        if self._first_phase_ns is None or row.start_ns < self._first_phase_ns:
            self._first_phase_ns = row.start_ns
        self._put("training", span)

    def _add_step(self, row: Row, recorder: str, mode: str, end_ns: int | None) -> None:
        self._put("training", _Span("mode", mode, _labels(row, recorder), row.start_ns, end_ns))
        if mode in _TRAINING_MODES and end_ns is not None:
            self.steps.append((row.start_ns, end_ns))
            number = _integer(row.args.get("step_num"))
            self._put(
                "training",
                _Span("step", "", None, end_ns, end_ns, _UNKNOWN if number is None else number),
            )

    def _mark_first_step(self) -> None:
        """Mark the start of the first step, unless one of its phases started before."""
        track = self._tracks.get("training")
        if track is None or self._has_steps:
            return
        steps = [s.start_ns for s in track.new if s.kind == "mode" and s.name in _TRAINING_MODES]
        if not steps:
            return
        self._has_steps = True
        first = min(steps)
        if self._first_phase_ns is None or self._first_phase_ns > first:
            track.new.append(_Span("step", "", None, first, first, _UNKNOWN))

    @property
    def _creates_batches(self) -> bool:
        """True if the last DataLoader has no workers: a wait for a batch is its creation."""
        return self._loader.worker_count == 0

    def _add_loader(self, args: Mapping[str, Any]) -> None:
        settings = {key: args[key] for key in ("num_workers", "pin_memory") if key in args}
        self._loader = schema.DataLoaderSettingsFact(**settings)
        if settings and self._loader not in self.loaders:
            self.loaders.append(self._loader)

    def _extend(self, start_ns: int, end_ns: int) -> None:
        self.first_ns = start_ns if self.first_ns is None else min(self.first_ns, start_ns)
        self.last_ns = end_ns if self.last_ns is None else max(self.last_ns, end_ns)

    def _track(self, key: Any) -> _Track:
        track = self._tracks.get(key)
        if track is None:
            number = key if isinstance(key, int) else _FIRST_TRACK + len(self._tracks)
            if key == "training":
                number = self.pid or 0  # the first thread of a process has its number
            track = self._tracks[key] = _Track(number)
        return track

    def _put(self, key: Any, span: _Span) -> None:
        self._track(key).new.append(span)


def _kind_of(row: Row) -> str:
    if row.phase == _TENSORFLOW_PHASE:
        return "data_wait" if row.name.startswith(_TENSORFLOW_WAIT) else "fetch"
    return next((kind for form, kind in _KINDS if form.fullmatch(row.phase)), "annotation")


def worker_of(row: Row) -> tuple[int, int | None] | None:
    """Return pid and number of the DataLoader worker of a row; None for any other row."""
    pid = _integer(row.args.get("pid"))
    if row.phase != WORKER_PHASE or pid is None:
        return None
    return pid, _integer(row.args.get("worker_id"))


def _nest(spans: list[_Span]) -> None:
    """Sort the spans of one track and set their depths.

    A span that partly overlaps another one is marked as asynchronous.
    """
    spans.sort(key=lambda span: (span.start_ns, -(span.end_ns or span.start_ns)))
    around: list[int] = []
    for span in spans:
        end = span.start_ns if span.end_ns is None else span.end_ns
        while around and around[-1] <= span.start_ns:
            around.pop()
        span.depth = len(around)
        if around and around[-1] < end:
            span.flags |= _ASYNCHRONOUS
        elif end > span.start_ns:
            around.append(end)


def _mark_samples(calls: Iterable[_Span]) -> None:
    """Mark the calls of datasets inside another call, sorted by start: they make no whole batch."""
    last_end = 0
    for call in calls:
        end = call.start_ns if call.end_ns is None else call.end_ns
        if end <= last_end:
            call.kind, call.value = "sample", 0
        last_end = max(last_end, end)


def _labels(row: Row, recorder: str, key: str = "phase") -> str:
    labels: dict[str, Any] = {key: row.phase} if row.phase else {}
    labels["recorder"] = recorder
    labels |= {name: value for name, value in row.args.items() if name != "pid"}
    number = _integer(labels.get("step_num"))
    if number is not None:
        labels["step_num"] = number
    return msgspec.json.encode(labels).decode()


def _integer(value: object) -> int | None:
    """Parse a number, which some versions of Debugger write as a string."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def split_by_process(
    rows: Iterable[Row],
) -> tuple[list[Row], dict[tuple[int, int | None], list[Row]]]:
    """Split rows into those of the process itself and those of its DataLoader workers."""
    process_rows: list[Row] = []
    workers: dict[tuple[int, int | None], list[Row]] = {}
    for row in rows:
        worker = worker_of(row)
        (process_rows if worker is None else workers.setdefault(worker, [])).append(row)
    return process_rows, workers
