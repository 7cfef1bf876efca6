"""Scalars, losses, and statistics and histograms of tensors as TensorBoard's event files.

Format of TensorBoard's event files, as far as it is written here. A file is a sequence of records:
the length of the payload (8 bytes, little endian), its checksum, the payload, its checksum. A
payload is the protobuf message `Event` of
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto, encoded
by hand (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stepscope import analysis, errors, event_records, output_files
from stepscope.exporters import protobuf
from stepscope.exporters.registry import ExportOptions, Written
from stepscope.quantities import count_of
from stepscope.run import Run, read_scalars, read_tensors

TENSOR_SCALARS = (
    "l2", "mean", "std", "min", "max", "update_ratio", "zero_ratio", "nan_count", "infinite_count",
)  # fmt: skip
"""Reductions that become scalars `REDUCTION/TENSOR`, where they are known."""


class ExportedEvents(Written, frozen=True, kw_only=True):
    """Event file of one process."""

    process: str
    scalar_count: int
    histogram_count: int


def export_tensorboard(run: Run, directory: Path) -> list[ExportedEvents]:
    """Write one event file per process that logged scalars or recorded tensors.

    The files of several processes are in directories of their own, which TensorBoard shows as
    runs: `rank-0`, or the name of the process. Steps are the numbers of steps of the process
    before a value; where they are not known, the numbers of the values.

    Args:
        run: the run.
        directory: created if it does not exist.

    Returns:
        The written files; empty if there is nothing to write.
    """
    scalars: dict[str, list[analysis.LoggedScalars]] = {}
    tensors: dict[str, list[analysis.TensorSeries]] = {}
    for logged in read_scalars(run):
        scalars.setdefault(logged.process, []).append(logged)
    for series in read_tensors(run):
        tensors.setdefault(series.process, []).append(series)
    processes = sorted({*scalars, *tensors})
    file_names = [re.sub(r"[^\w.-]+", "-", process) for process in processes]
    ranks = {info.process: info.rank for info in run.processes}
    names = [
        f"rank-{ranks[process]}" if ranks.get(process) is not None else file_name
        for process, file_name in zip(processes, file_names, strict=True)
    ]
    if len(set(names)) < len(names):  # a rank that was started again
        names = file_names
    step_ends = {rank.process.process: rank.steps.end for rank in run.ranks} if scalars else {}
    exported = []
    for process, name, file_name in zip(processes, names, file_names, strict=True):
        folder = directory / name if len(processes) > 1 else directory
        folder.mkdir(parents=True, exist_ok=True)
        start_ns = run.clock.origin_ns
        path = folder / f"events.out.tfevents.{start_ns // 10**9}.{file_name}.stepscope"
        with output_files.atomic_write(path) as file:
            writer = EventFileWriter(file, start_ns)
            scalar_count = _write_scalars(
                writer, scalars.get(process, []), step_ends.get(process)
            ) + _write_statistics(writer, tensors.get(process, []))
            histogram_count = _write_histograms(writer, run, tensors.get(process, []))
        exported.append(
            ExportedEvents(
                path=str(path),
                content=f"{count_of(scalar_count, 'scalar')}, "
                f"{count_of(histogram_count, 'histogram')}",
                process=process,
                scalar_count=scalar_count,
                histogram_count=histogram_count,
            )
        )
    return exported


class TensorBoardExporter:
    """Exporter of scalars and tensors; see `registry.Exporter`."""

    options = frozenset[str]()

    def export(self, run: Run, output: str, _options: ExportOptions) -> list[ExportedEvents]:
        """Write the event files of a directory."""
        directory = Path(output)
        if directory.exists() and not directory.is_dir():
            raise errors.UsageError(
                f"{directory} is a file; pass a directory to -o for event files."
            )
        written = export_tensorboard(run, directory)
        if not written:
            raise errors.UsageError(
                "Nothing to export: the run has no scalars and no tensors; run the job with "
                "`--tensors weights,gradients,losses`."
            )
        return written


def _write_scalars(
    writer: EventFileWriter, scalars: Sequence[analysis.LoggedScalars], step_ends: Any | None
) -> int:
    for logged in scalars:
        known_steps = logged.count_steps(step_ends)
        steps = np.arange(len(logged.t_ns)) if known_steps is None else known_steps
        for step, t_ns, value in zip(
            steps.tolist(), logged.t_ns.tolist(), logged.value.tolist(), strict=True
        ):
            writer.write_scalar(logged.name, step, t_ns, value)
    return sum(len(logged.t_ns) for logged in scalars)


def _write_statistics(writer: EventFileWriter, tensors: Sequence[analysis.TensorSeries]) -> int:
    count = 0
    for series in tensors:
        steps, times = series.step.tolist(), series.t_ns.tolist()
        for reduction in TENSOR_SCALARS:
            tag = f"{reduction}/{_tag(series)}"
            for step, t_ns, value in zip(
                steps, times, series.reduction(reduction).tolist(), strict=True
            ):
                if not math.isnan(value):
                    writer.write_scalar(tag, step, t_ns, value)
                    count += 1
    return count


def _write_histograms(
    writer: EventFileWriter, run: Run, tensors: Sequence[analysis.TensorSeries]
) -> int:
    count = 0
    for series in tensors:
        rows = run.reader.table(
            "tensor_histograms",
            ("step", "low", "high", "count"),
            condition="process = ? AND tensor = ? AND mode = ? AND " + run.period.condition("t_ns"),
            parameters=(series.process, series.name, series.mode),
            order_by="step, low",
        )
        bins = zip(*(rows[name].tolist() for name in ("step", "low", "high", "count")), strict=True)
        of_step = {step: list(group) for step, group in groupby(bins, key=itemgetter(0))}
        numbers = [series.reduction(name).tolist() for name in ("min", "max", "sum", "l2")]
        for step, t_ns, low, high, total, l2 in zip(
            series.step.tolist(), series.t_ns.tolist(), *numbers, strict=True
        ):
            if step in of_step and not math.isnan(low):
                writer.write_histogram(
                    _tag(series),
                    step,
                    t_ns,
                    extremes=(low, high),
                    sums=(total, l2 * l2),
                    bins=[row[1:] for row in of_step[step]],
                )
                count += 1
    return count


def _tag(series: analysis.TensorSeries) -> str:
    return series.name if series.mode == "TRAIN" else f"{series.name} ({series.mode.lower()})"


_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


class EventFileWriter:
    """Writer of one event file.

    Args:
        file: the file, which stays open.
        t_ns: epoch nanoseconds of its start.
    """

    def __init__(self, file: BinaryIO, t_ns: int) -> None:
        self._file = file
        self._write_event(t_ns, 0, protobuf.text(3, "brain.Event:2"))

    def write_scalar(self, tag: str, step: int, t_ns: int, value: float) -> None:
        """Write one number; TensorBoard keeps single precision."""
        self._write_value(tag, step, t_ns, protobuf.single(2, value))

    def write_histogram(
        self,
        tag: str,
        step: int,
        t_ns: int,
        *,
        extremes: tuple[float, float],
        sums: tuple[float, float],
        bins: Sequence[tuple[float, float, float]],
    ) -> None:
        """Write one histogram.

        Args:
            tag: its name.
            step, t_ns: its place on the axes.
            extremes: smallest and largest element.
            sums: sum of the elements, and of their squares.
            bins: lower end, upper end and count, ascending; gaps between them have no elements.
        """
        limits: list[float] = []
        counts: list[float] = []
        for low, high, count in bins:
            if not limits or limits[-1] != low:
                limits.append(low)
                counts.append(0.0)
            limits.append(high)
            counts.append(count)
        numbers = (*extremes, sum(counts), *sums)
        message = b"".join(
            protobuf.double(field, number) for field, number in enumerate(numbers, start=1)
        )
        for field, values in ((6, limits), (7, counts)):
            message += protobuf.content(field, struct.pack(f"<{len(values)}d", *values))
        self._write_value(tag, step, t_ns, protobuf.content(5, message))

    def _write_value(self, tag: str, step: int, t_ns: int, content: bytes) -> None:
        value = protobuf.content(1, protobuf.text(1, tag) + content)
        self._write_event(t_ns, step, protobuf.content(5, value))

    def _write_event(self, t_ns: int, step: int, content: bytes) -> None:
        payload = protobuf.double(1, t_ns / 1e9) + protobuf.integer(2, step) + content
        length = _LENGTH.pack(len(payload))
        for part in (length, payload):
            self._file.write(part + _CHECKSUM.pack(event_records.masked_crc32c(part)))
