"""Importer of the tensors that SageMaker Debugger saved.

A worker becomes a process. Steps are those of a mode; the mode GLOBAL, of a script that sets none,
is TRAIN here. Of a whole tensor statistics are computed; of one that was saved as reductions they
are the reductions. Losses, metrics and `save_scalar` are scalars as well; those of the modes EVAL
and PREDICT have the prefix `eval/` or `predict/`.

Files of SageMaker Debugger's tensors below the output directory of a job: names and JSON.

    collections/<9 digits>/worker_0_collections.json    tensors of each collection
    index/<9 digits>/<12-digit step>_<worker>.json      shapes of the tensors of a step
    events/<12-digit step>/<step>_<worker>.tfevents     the tensors of a step
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stepscope import event_records, schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
    read_head,
    refuse,
)
from stepscope.importers.event_files.rows import (
    VALUE_TABLES,
    Moment,
    RowWriter,
    describe_elements,
    describe_reductions,
)
from stepscope.importers.event_files.values import EventFile, Tensor, Value, read_tensor

FORMAT = Format(
    name="tensors of SageMaker Debugger",
    tables=VALUE_TABLES,
    event="value",
    sentence="{files} of tensors and scalars, {events} in {run}",
    view="tensors",
)
_REDUCTIONS = "smdebug/reductions/"
"""Beginning of the names of reductions: this, the reduction, a slash, the tensor."""
_SCALAR_COLLECTIONS = frozenset({"losses", "metrics", "sm_metrics"})
_SCALAR_PREFIX = "scalar/"
_MODES = {b"1": "TRAIN", b"2": "EVAL", b"3": "PREDICT", b"4": "TRAIN"}
"""Modes by the content of the plugin `mode`; 4 is GLOBAL."""


class DebuggerTensorImporter:
    """Importer of the tensors of SageMaker Debugger; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, _head: bytes, path: Path) -> bool:
        """Return True for a file that Debugger wrote about tensors."""
        return detect_form(path) is not None

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import the tensors of a job together; see `registry.Importer.import_files`."""
        forms = {index: detect_form(path) for index, path in enumerate(files)}
        results: dict[int, Result] = {}
        with store.RunWriter(run, node) as writer:
            job = DebuggerJob(RowWriter(writer, node), node)
            for form in (Form.COLLECTIONS, Form.INDEX, Form.EVENTS):
                # By step: all workers of a step, then the next one.
                indices = (index for index, content in forms.items() if content is form)
                for index in sorted(indices, key=lambda index: files[index].name):
                    results[index] = job.read(files[index], form)
                    progress(index, 1.0)
            job.finish()
        return [results[index] for index in range(len(files))]


class DebuggerJob(msgspec.Struct):
    """Job during its import."""

    rows: RowWriter
    node: str
    collections: dict[str, str] = msgspec.field(default_factory=dict)
    world_size: int | None = None
    shapes: dict[tuple[str, str], list[int]] = msgspec.field(default_factory=dict)
    """Shape of a tensor, by name of the index file without suffix, and tensor."""
    workers: dict[str, None] = msgspec.field(default_factory=dict)

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
        except schema.MALFORMED_JSON as error:
            return Refused(path, f"{path} is no readable {form.value} file of Debugger: {error}.")
        except OSError as error:
            if error.filename != str(path):
                raise
            return refuse(path, error)
        return Recorded(name=path.name, form=FORMAT.name)

    def finish(self) -> None:
        """Store the rows and the manifests of the processes."""
        for worker in self.workers:
            self.rows.finish(
                schema.ProcessInfo(
                    process=f"0-{worker}",
                    node=self.node,
                    pid=0,
                    parent_pid=0,
                    role="main",
                    rank=rank_of(worker),
                    world_size=self.world_size,
                    started_ns=0,
                ),
                schema.DEBUGGER,
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
                except event_records.MalformedMessageError:
                    file.unreadable_count += 1
        step.finish()
        return file.result(FORMAT.name)


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
        raise event_records.MalformedMessageError("a reduction is no number")
    return float(tensor.elements[0])


_EVENTS = re.compile(r"\d{12}_(?P<worker>.+)\.tfevents")
_STEP = re.compile(r"\d{12}")
_INDEX = re.compile(r"\d{12}_(?P<worker>.+)\.json")
_COLLECTIONS = re.compile(r"(?P<worker>.+)_collections\.json")
_RANK = re.compile(r"worker_(\d+)")
_GENERAL = frozenset({"all", "default"})
"""Collections that do not tell what a tensor is."""
_NAMES = (
    ("losses", re.compile(r"[Ll]oss_(?!input).*output")),
    ("weights", re.compile(r"^(?!gradient).*weight")),
    ("biases", re.compile(r"^(?!gradient).*bias")),
    ("gradients", re.compile(r"^gradient")),
)
"""Collections of tensors that the files do not assign, by Debugger's expressions for PyTorch."""


class Form(enum.Enum):
    """Content of a file."""

    COLLECTIONS = "collections"
    INDEX = "index"
    EVENTS = "events"


class _Shape(msgspec.Struct):
    tensorname: str
    shape: list[int] = []


class IndexFile(msgspec.Struct):
    """Index of the tensors of a step and worker."""

    shape_payload: list[_Shape] | None = None


class _Collection(msgspec.Struct):
    tensor_names: list[str] | None = None


class _Meta(msgspec.Struct):
    num_workers: int | None = None


class CollectionsFile(msgspec.Struct):
    """Collections of a job."""

    collections: dict[str, _Collection | None]
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)

    def of_tensors(self) -> dict[str, str]:
        """Return the collection of each tensor, if one tells more than `all` and `default`."""
        return {
            tensor: name
            for name, collection in self.collections.items()
            if name not in _GENERAL and collection is not None
            for tensor in collection.tensor_names or ()
        }


def detect_form(path: Path) -> Form | None:
    """Return the form of a file; None if it is not one of Debugger's tensors."""
    if _EVENTS.fullmatch(path.name) and (
        _STEP.fullmatch(path.parent.name) or path.parent.name == "events"
    ):
        return Form.EVENTS
    if _INDEX.fullmatch(path.name) and b'"tensor_payload"' in read_head(path):
        return Form.INDEX
    if _COLLECTIONS.fullmatch(path.name) and b'"collections"' in read_head(path):
        return Form.COLLECTIONS
    return None


def worker_of(path: Path) -> str:
    """Return the worker in the name of a file of events or of an index."""
    match = _EVENTS.fullmatch(path.name) or _INDEX.fullmatch(path.name)
    return match["worker"] if match else path.stem


def rank_of(worker: str) -> int | None:
    """Return the rank of a worker; None if its name has none."""
    match = _RANK.fullmatch(worker)
    return int(match[1]) if match else None


def guess_collection(tensor: str) -> str:
    """Return the collection of a tensor by its name; `default` if it tells nothing."""
    return next((name for name, pattern in _NAMES if pattern.search(tensor)), "default")
