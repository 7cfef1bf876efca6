"""Scalars, losses, and statistics and histograms of tensors as TensorBoard's event files."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.analysis import LoggedScalars, TensorSeries
from stepscope.exporters.event_file import EventFileWriter
from stepscope.output_files import atomic_write
from stepscope.run import Run, read_scalars, read_tensors

TENSOR_SCALARS = (
    "l2", "mean", "std", "min", "max", "update_ratio", "zero_ratio", "nan_count", "infinite_count",
)  # fmt: skip
"""Reductions that become scalars `REDUCTION/TENSOR`, where they are known."""


class ExportedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Event file of one process."""

    path: str
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
    scalars: dict[str, list[LoggedScalars]] = {}
    tensors: dict[str, list[TensorSeries]] = {}
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
        with atomic_write(path) as file:
            writer = EventFileWriter(file, start_ns)
            scalar_count = _write_scalars(
                writer, scalars.get(process, []), step_ends.get(process)
            ) + _write_statistics(writer, tensors.get(process, []))
            histogram_count = _write_histograms(writer, run, tensors.get(process, []))
        exported.append(
            ExportedEvents(
                path=str(path),
                process=process,
                scalar_count=scalar_count,
                histogram_count=histogram_count,
            )
        )
    return exported


def _write_scalars(
    writer: EventFileWriter, scalars: Sequence[LoggedScalars], step_ends: Any | None
) -> int:
    for logged in scalars:
        known_steps = logged.count_steps(step_ends)
        steps = np.arange(len(logged.t_ns)) if known_steps is None else known_steps
        for step, t_ns, value in zip(
            steps.tolist(), logged.t_ns.tolist(), logged.value.tolist(), strict=True
        ):
            writer.write_scalar(logged.name, step, t_ns, value)
    return sum(len(logged.t_ns) for logged in scalars)


def _write_statistics(writer: EventFileWriter, tensors: Sequence[TensorSeries]) -> int:
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


def _write_histograms(writer: EventFileWriter, run: Run, tensors: Sequence[TensorSeries]) -> int:
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


def _tag(series: TensorSeries) -> str:
    return series.name if series.mode == "TRAIN" else f"{series.name} ({series.mode.lower()})"
