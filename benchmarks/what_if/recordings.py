"""Causal graphs of real traces: errors of the replay, critical path, cost."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.measuring import OURS, measure
from benchmarks.what_if.results import RecordingResult
from stepscope.run import Run, RunGraph, build_run_graphs, open_run

SUFFIX = ".json.gz"
_RANK = re.compile(r"_rank\d+$")


def group_traces(folder: Path) -> dict[str, list[Path]]:
    """Group the traces of a folder: those of the ranks of one job belong together."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        groups.setdefault(_RANK.sub("", path.name.removesuffix(SUFFIX)), []).append(path)
    return groups


def import_traces(paths: Sequence[Path], run: Path) -> tuple[Run, float]:
    """Import traces into a new run, and return it with the CPU time in seconds."""
    cost = measure(OURS.command("import", *paths, "--output", run))
    return open_run(run), cost.cpu_s


def measure_recording(paths: Sequence[Path], directory: Path) -> list[RecordingResult]:
    """Measure the graphs of traces that were recorded together: one, or one of each rank."""
    run, import_s = import_traces(paths, directory)
    build_run_graphs(run, run.traces)  # reads the tables, which stay in memory
    start_s = time.process_time()
    graphs = build_run_graphs(run, run.traces)
    graph_s = time.process_time() - start_s
    return [_describe(graph, import_s, graph_s / len(graphs)) for graph in graphs]


def _describe(graph: RunGraph, import_s: float, graph_s: float) -> RecordingResult:
    errors = graph.measure_step_errors()
    count, causal = graph.step_count, graph.joined.causal
    return RecordingResult(
        step_count=count,
        is_whole=graph.divided[0].source == "whole",
        step_ms=graph.measured_ns / count / 1e6,
        error_ratio=graph.error_ratio,
        step_errors=(float(np.median(errors)), float(np.percentile(errors, 95))),
        path_ms={
            category.name.lower(): ns / count / 1e6 for category, ns in graph.sum_categories() if ns
        },
        point_count=len(causal.time_ns),
        edge_count=len(causal.edges),
        event_count=sum(one.trace.event_count for one in graph.divided),
        import_s=import_s,
        graph_s=graph_s,
    )
