"""Importer of the tensors that SageMaker Debugger saved.

A worker becomes a process. Steps are those of a mode; the mode GLOBAL, of a script that sets none,
is TRAIN here. Of a whole tensor statistics are computed; of one that was saved as reductions they
are the reductions. Losses, metrics and `save_scalar` are scalars as well; those of the modes EVAL
and PREDICT have the prefix `eval/` or `predict/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stepscope.event_records import MalformedMessageError
from stepscope.importers.event_files.debugger_files import (
    CollectionsFile,
    Form,
    IndexFile,
    detect_form,
    guess_collection,
    rank_of,
    worker_of,
)
from stepscope.importers.event_files.reading import EventFile
from stepscope.importers.event_files.rows import Moment, RowWriter
from stepscope.importers.event_files.statistics import describe_elements, describe_reductions
from stepscope.importers.event_files.values import Tensor, Value, read_tensor
from stepscope.importers.results import (
    DEBUGGER_TENSORS,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
    refuse,
)
from stepscope.schema import DEBUGGER, MALFORMED_JSON, ProcessInfo
from stepscope.store import RunWriter

_REDUCTIONS = "smdebug/reductions/"
"""Beginning of the names of reductions: this, the reduction, a slash, the tensor."""
_SCALAR_COLLECTIONS = frozenset({"losses", "metrics", "sm_metrics"})
_SCALAR_PREFIX = "scalar/"
_MODES = {b"1": "TRAIN", b"2": "EVAL", b"3": "PREDICT", b"4": "TRAIN"}
"""Modes by the content of the plugin `mode`; 4 is GLOBAL."""


class DebuggerTensorImporter:
    """Importer of the tensors of SageMaker Debugger; see `registry.Importer`."""

    def can_read(self, path: Path) -> bool:
        """Return True for a file that Debugger wrote about tensors."""
        return detect_form(path) is not None

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import the tensors of a job together; see `registry.Importer.import_files`."""
        forms = {index: detect_form(path) for index, path in enumerate(files)}
        results: dict[int, Result] = {}
        with RunWriter(run, node) as writer:
            job = DebuggerJob(RowWriter(writer, node), node)
            for form in (Form.COLLECTIONS, Form.INDEX, Form.EVENTS):
                # By step: all workers of a step, then the next one.
                indices = (index for index, content in forms.items() if content is form)
                for index in sorted(indices, key=lambda index: files[index].name):
                    results[index] = job.read(files[index], form)
                    progress(index, 1.0)
            job.finish()
        return [results[index] for index in range(len(files))]


@dataclass(slots=True)
class DebuggerJob:
    """Job during its import."""

    rows: RowWriter
    node: str
    collections: dict[str, str] = field(default_factory=dict)
    world_size: int | None = None
    shapes: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Shape of a tensor, by name of the index file without suffix, and tensor."""
    workers: dict[str, None] = field(default_factory=dict)

    def read(self, path: Path, form: Form) -> Result:
        """Read a file; files of events come last."""
        try:
            if form is Form.EVENTS:
                return self._read_events(path)
            if form is Form.COLLECTIONS:
                content = msgspec.json.decode(path.read_bytes(), type=CollectionsFile)
                self.collections |= content.of_tensors()
                self.world_size = content.meta.num_workers
            else:
                index = msgspec.json.decode(path.read_bytes(), type=IndexFile)
                for entry in index.shape_payload or ():
                    self.shapes[path.stem, entry.tensorname] = entry.shape
        except MALFORMED_JSON as error:
            return Refused(path, f"{path} is no readable {form.value} file of Debugger: {error}.")
        except OSError as error:
            if error.filename != str(path):
                raise
            return refuse(path, error)
        return Recorded(name=path.name, form=DEBUGGER_TENSORS)

    def finish(self) -> None:
        """Store the rows and the manifests of the processes."""
        for worker in self.workers:
            self.rows.finish(
                ProcessInfo(
                    process=f"0-{worker}",
                    node=self.node,
                    pid=0,
                    parent_pid=0,
                    role="main",
                    rank=rank_of(worker),
                    world_size=self.world_size,
                    started_ns=0,
                ),
                DEBUGGER,
            )

    def _read_events(self, path: Path) -> Result:
        worker = worker_of(path)
        self.workers[worker] = None
        file = EventFile(path)
        step = _Step(self, path.stem)
        for event, t_ns in file.events():
            for value in event.values:
                try:
                    mode, mode_step = _read_mode(value.plugins, event.step)
                    moment = Moment(f"0-{worker}", t_ns, mode_step, mode)
                    file.value_count += step.add(moment, value)
                except MalformedMessageError:
                    file.unreadable_count += 1
        step.finish()
        return file.result(DEBUGGER_TENSORS)


class _Step:
    """Tensors of one step of one worker, until their reductions are complete.

    Args:
        job: the job.
        stem: name of the files of the step and worker, without suffix.
    """

    def __init__(self, job: DebuggerJob, stem: str) -> None:
        self._job = job
        self._stem = stem
        self._whole: set[tuple[str, str, int]] = set()
        """Name, mode and step of the tensors that were saved whole."""
        self._reductions: dict[tuple[str, str, int], tuple[Moment, dict[str, float]]] = {}

    def add(self, moment: Moment, value: Value) -> bool:
        """Add a value; returns False if it has no numbers."""
        tensor = None if value.tensor is None else read_tensor(value.tensor)
        if tensor is None or not len(tensor.elements):
            return False
        if value.tag.startswith(_REDUCTIONS):
            reduction, _, name = value.tag.removeprefix(_REDUCTIONS).partition("/")
            key = name, moment.mode, moment.step
            reductions = self._reductions.setdefault(key, (moment, {}))[1]
            reductions[reduction] = _only_number(tensor)
            return True
        self._add_whole(moment, value.tag, tensor)
        return True

    def finish(self) -> None:
        """Add the tensors of which there are only reductions."""
        for (name, mode, step), (moment, reductions) in self._reductions.items():
            if (name, mode, step) in self._whole:
                continue
            shape = self._job.shapes.get((self._stem, name))
            element_count = None if shape is None else math.prod(shape)
            self._job.rows.add_tensor(
                moment,
                name,
                self._collection_of(name),
                describe_reductions(reductions, element_count),
                shape=shape,
            )

    def _add_whole(self, moment: Moment, name: str, tensor: Tensor) -> None:
        collection = self._collection_of(name)
        is_number = len(tensor.elements) == 1 and tensor.elements.dtype.kind != "c"
        if is_number and (collection in _SCALAR_COLLECTIONS or name.startswith(_SCALAR_PREFIX)):
            prefix = "" if moment.mode == "TRAIN" else f"{moment.mode.lower()}/"
            value = float(tensor.elements[0])
            self._job.rows.add_scalar(moment, prefix + name.removeprefix(_SCALAR_PREFIX), value)
        self._whole.add((name, moment.mode, moment.step))
        self._job.rows.add_tensor(
            moment,
            name,
            collection,
            describe_elements(tensor.elements),
            shape=tensor.shape,
            dtype=tensor.dtype,
            elements=tensor.elements.reshape(tensor.shape)
            if tensor.elements.size == math.prod(tensor.shape)
            else None,
        )

    def _collection_of(self, name: str) -> str:
        return self._job.collections.get(name) or guess_collection(name)


def _read_mode(plugins: Mapping[str, bytes], step: int) -> tuple[str, int]:
    """Return the mode of a value, and its step in this mode."""
    content = plugins.get("mode_step", b"")
    mode_step = int(content) if content.isdigit() and len(content) < 19 else step
    return _MODES.get(plugins.get("mode", b""), "TRAIN"), mode_step


def _only_number(tensor: Tensor) -> float:
    if len(tensor.elements) != 1 or tensor.elements.dtype.kind == "c":
        raise MalformedMessageError("a reduction is no number")
    return float(tensor.elements[0])
