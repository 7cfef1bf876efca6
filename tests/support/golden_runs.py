"""Golden runs: one run directory of each published schema version, with figures that it gives.

python -m tests.support.golden_runs      writes the run of the current version, once
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.diagnosis import diagnose
from stepscope.importers import import_files
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, TABLES, Column
from stepscope.store import DictColumn, RunWriter, open_run
from stepscope.store.engine import NUMPY_TYPES
from stepscope.views import VIEWS
from tests.support.access_run import draw
from tests.support.kineto_files import MANY_KINDS_HEADER, many_kinds, trace

ROOT = Path(__file__).parents[1] / "golden" / "runs"
RUN, FIGURES = "run", "figures.json"
_NOT_DRAWN = (
    *("scalars", "tensor_statistics", "tensor_histograms", "tensor_values"),
    *("tensor_elements", "memory_categories", "python_profiles", "collective_calls"),
    *("stage_operations", "compilations", "compilation_events"),
    *("memory_snapshots", "memory_segments", "memory_blocks", "memory_history"),
)
"""Tables that neither a drawn job nor a trace of torch fills."""


def golden_run(version: int) -> Path:
    """Return the directory of a schema version: a run, and a file of its figures."""
    return ROOT / f"v{version}"


def write_golden_run(directory: Path) -> None:
    """Write a run with rows in every table, and its figures."""
    run = draw(directory / RUN).write()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "trace.json")
        file.write_bytes(trace(*many_kinds(), **MANY_KINDS_HEADER))
        import_files([file], run, "imported")
    with RunWriter(run, "n0") as writer:
        for table in _NOT_DRAWN:
            columns = TABLES[table].columns
            writer.append(table, {column.name: _two_values(column) for column in columns})
    content = msgspec.json.encode(read_figures(run))
    (directory / FIGURES).write_bytes(msgspec.json.format(content) + b"\n")


def _two_values(column: Column) -> Any:
    if column.type not in NUMPY_TYPES:
        return DictColumn.encode(["a", "b"])
    return np.arange(2, dtype=NUMPY_TYPES[column.type])


def read_figures(run: Path) -> dict[str, float]:
    """Read figures of every kind of table: rows, verdict, phases, use of the GPU, samples."""
    reader = open_run(run)
    opened = Run(reader)
    verdict = diagnose(opened)
    steps, gpu_time, kernels, system = (
        VIEWS[name].load()(opened) for name in ("steps", "gpu-time", "kernels", "system")
    )
    figures = {f"share of {verdict.suspect}": verdict.share_ratio}
    for table in TABLES:
        figures[f"rows of {table}"] = reader.row_count(table)
    for rank in steps.ranks:
        for phase in rank.phases:
            figures[f"mean {phase.name} of {rank.rank}, ns"] = phase.mean_ns
    for name in ("total_ns", "compute_ns", "exposed_comm_ns", "idle_ns"):
        figures[f"GPU {name}"] = getattr(gpu_time.traces[0], name)
    for kernel in kernels.traces[0].kernels:
        figures[f"kernel {kernel.name}, ns"] = kernel.total_ns
    for metric in system.nodes[0].metrics:
        figures[f"mean {metric.metric} {metric.device}"] = metric.statistics.mean
    return figures


if __name__ == "__main__":
    target = golden_run(SCHEMA_VERSION)
    if target.exists():
        sys.exit(f"{target} exists: a published schema does not change. Raise SCHEMA_VERSION.")
    write_golden_run(target)
