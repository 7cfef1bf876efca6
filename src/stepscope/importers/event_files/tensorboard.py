"""Importer of TensorBoard's event files.

A directory with event files is a run of TensorBoard. It becomes a process: its files follow each
other, as those of a job that was started again. If several directories are imported, names of
scalars begin with the directory, such as `validation/epoch_loss`.

    simple_value, tensor of plugin `scalars`      scalars
    HistogramProto                                tensor_statistics and tensor_histograms
    tensor of plugin `histograms`                 tensor_histograms, and the number of elements
    everything else (images, text, hparams, …)    left out
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepscope import event_records, schema, store
from stepscope.importers.content import Format, ProgressCallback, Result, refuse
from stepscope.importers.event_files import debugger, values
from stepscope.importers.event_files.rows import VALUE_TABLES, Moment, RowWriter, describe_histogram

FORMAT = Format(
    name="TensorBoard",
    tables=VALUE_TABLES,
    event="value",
    sentence="{files} of tensors and scalars, {events} in {run}",
    view="tensors",
)
_VERSION = b"brain.Event:"
"""Content of the first record of a file."""
_VERSION_BYTES = 64
_NAME = re.compile(r".*tfevents\.\d+\.(?P<host>.+?)\.(?P<pid>\d+)\.\d+(\..*)?")
_MODES = {"validation": "EVAL", "val": "EVAL", "eval": "EVAL", "test": "EVAL", "predict": "PREDICT"}
"""Modes by the name of a directory; others are TRAIN."""
_SCALARS, _HISTOGRAMS = "scalars", "histograms"


class TensorBoardImporter:
    """Importer of TensorBoard's event files; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, path: Path) -> bool:
        """Return True for an event file, judged by its first record, or by its name, unless it is
        one of Debugger's."""
        if debugger.detect_form(path) is not None:
            return False
        if schema.is_event_file_name(path.name):
            return True
        return _VERSION in head[:_VERSION_BYTES] and event_records.begins_with_record(path)

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import the runs of TensorBoard; see `registry.Importer.import_files`."""
        directories: defaultdict[Path, list[int]] = defaultdict(list)
        for index, path in enumerate(files):
            directories[path.absolute().parent].append(index)
        root = os.path.commonpath(directories)
        results: dict[int, Result] = {}
        with store.RunWriter(run, node) as writer:
            rows = RowWriter(writer, node)
            for directory, indices in directories.items():
                name = os.path.relpath(directory, root)
                group = TensorBoardRun(rows, name, node)
                for index in sorted(indices, key=lambda index: files[index].name):
                    results[index] = group.read(files[index])
                    progress(index, 1.0)
                group.finish()
        return [results[index] for index in range(len(files))]


class TensorBoardRun:
    """Run of TensorBoard.

    Args:
        rows: writer of the rows.
        name: path below the imported directories; `.` for the only one.
        node: name of the node.
    """

    def __init__(self, rows: RowWriter, name: str, node: str) -> None:
        self._rows = rows
        self._prefix = "" if name == "." else f"{name}/"
        self._mode = _MODES.get(Path(name).name.lower(), "TRAIN")
        self._process = schema.ProcessInfo(
            process=f"0-{name}",
            node=node,
            pid=0,
            parent_pid=0,
            role="main",
            rank=schema.rank_in_name(name),
            started_ns=0,
        )

    def read(self, path: Path) -> Result:
        """Read a file."""
        parts = _NAME.fullmatch(path.name)
        if parts is not None:
            self._process = msgspec.structs.replace(self._process, pid=int(parts["pid"]))
        file = values.EventFile(path)
        plugins: dict[str, str] = {}
        try:
            for event, t_ns in file.events():
                moment = Moment(self._process.process, t_ns, event.step, self._mode)
                for value in event.values:
                    if value.plugins:  # of a tag, only the first value names its plugin
                        plugins[value.tag] = next(iter(value.plugins))
                    try:
                        file.value_count += self._add(moment, value, plugins.get(value.tag))
                    except event_records.MalformedMessageError:
                        file.unreadable_count += 1
        except OSError as error:
            if error.filename != str(path):
                raise
            return refuse(path, error)
        return file.result(FORMAT.name)

    def finish(self) -> None:
        """Store the rows."""
        self._rows.finish(self._process, FORMAT.name)

    def _add(self, moment: Moment, value: values.Value, plugin: str | None) -> bool:
        """Add a value; returns False if it is of no known kind."""
        if value.scalar is not None:
            self._rows.add_scalar(moment, self._prefix + value.tag, value.scalar)
            return True
        histogram = None
        if value.histogram is not None:
            histogram = values.read_histogram(value.histogram)
        elif value.tensor is not None and plugin in {_SCALARS, _HISTOGRAMS}:
            tensor = values.read_tensor(value.tensor)
            if tensor is None:
                return False
            if plugin == _SCALARS:
                if len(tensor.elements) != 1 or tensor.elements.dtype.kind == "c":
                    raise event_records.MalformedMessageError("a scalar needs one real number")
                self._rows.add_scalar(moment, self._prefix + value.tag, float(tensor.elements[0]))
                return True
            histogram = values.histogram_of_tensor(tensor)
        if histogram is None:
            return False
        statistics = describe_histogram(histogram)
        self._rows.add_tensor(moment, value.tag, "", statistics, histogram=histogram)
        return True
