"""Replays of graphs: device work that one call of cudaGraphLaunch or hipGraphLaunch started.

    replay     the work of one call, in the order of the graph's nodes where the profiler records
               them (CUDA), else in the order of starts (HIP)
    graph      replays with the same number of the graph where the profiler records one, else
               those of the same work by kind and name

While a graph is captured, each operator makes its launches as usual, but nothing runs. A capture
fits a graph if its launches are the graph's work, one by one: by kind, and by kernel name where
the profiler records the kernel of a launch (HIP). Without names, capture and graph must be the
only ones of these kinds, and the graph must have numbered nodes. If several captures fit, their
operators must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, group_rows
from stepscope.analysis.devices.device_work import KERNEL, MEMCPY, MEMSET
from stepscope.analysis.kernel_classes import match_rows

GRAPH_WORK_COLUMNS = (
    *("name", "start_ns", "duration_ns", "launch", "operator"),
    *("graph", "graph_node", "captured_operator"),
)
"""Columns of `kernels` and of `copies` that `collect_graph_work` reads; of `copies` `kind` too."""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Launches captured into one graph, in their order."""

    kinds: tuple[int, ...]
    """`KERNEL`, `MEMCPY` or `MEMSET`."""
    kernels: tuple[str | None, ...]
    """Name of the kernel of each launch; None where the profiler does not record it."""
    operators: tuple[str | None, ...]
    """Operator that made each launch."""


class GraphWork(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Device work that graphs launched, replay by replay, in the order of their work."""

    kind: NDArray[np.int8]
    name: intervals.Int
    """Index into `names`."""
    names: Sequence[str]
    duration_ns: intervals.Int
    launch: intervals.Int
    """Call that launched the graph, -1 if unknown."""
    operator: intervals.Int
    """Operator that made that call, -1 for none."""
    graph: intervals.Int
    """Index of the graph, by time of its first replay."""
    graph_ids: list[int | None]
    """Number of each graph in the trace; None where the profiler records none."""
    position: intervals.Int
    """Position of the work in its replay."""
    has_nodes: NDArray[np.bool_]
    """True where the profiler numbers the nodes of the graph."""
    captured_operator: intervals.Int
    """Operator that the same trace contains the capture of, -1 for none."""

    def __len__(self) -> int:
        return len(self.name)

    def first_replay(self, graph: int) -> intervals.Int:
        """Rows of the first replay of a graph."""
        rows = np.flatnonzero(self.graph == graph)
        following = np.flatnonzero(self.position[rows] == 0)[1:2]
        return rows[: following[0]] if len(following) else rows


class GraphReplays(msgspec.Struct, frozen=True, kw_only=True):
    """One captured graph and its replays; its kernels are also in the table of kernels."""

    number: Annotated[int, schema.field_label("graph", display="identifier")]
    """Number by the time of the first replay, from 1."""
    graph: Annotated[int | None, schema.field_label("number in the trace", display="identifier")]
    """Null where the profiler records none, as for HIP."""
    replays: Annotated[int, schema.field_label(unit="count")]
    """Number of launches of the graph in the trace."""
    kernel_count: int
    distinct_kernel_count: int
    """Number of distinct kernel names."""
    total_ns: int
    share_ratio: float | None
    """Share of the summed durations of all kernels."""


class GraphKernel(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name and captured operator in the replays of one graph."""

    number: Annotated[int, schema.field_label("graph", display="identifier")]
    name: Annotated[str, schema.field_label("kernel")]
    operator: Annotated[str | None, schema.field_label("captured operator")]
    """Null where the run has no capture that fits."""
    calls: int
    total_ns: int
    share_ratio: float | None
    """Share of the summed durations of all kernels."""


class ReplayedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """Device work in replayed graphs of one captured operator."""

    name: Annotated[str, schema.field_label("captured operator")]
    work_count: Annotated[int, schema.field_label("work")]
    """Kernels, copies and sets."""
    device_ns: Annotated[int, schema.field_label("device time")]
    device_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of the device time of the trace."""


def collect_graph_work(kernels: Columns, copies: Columns, graph_calls: intervals.Int) -> GraphWork:
    """Select the device work that graphs launched, and number the graphs.

    Args:
        kernels, copies: `GRAPH_WORK_COLUMNS`.
        graph_calls: ids of the calls that launch graphs.
    """
    kernel_names = [name or "" for name in kernels["name"].values]
    names = [*kernel_names, *(name or "" for name in copies["name"].values)]
    is_set = match_rows(copies["kind"], lambda kind: kind == "memset")
    copy_kind = np.where(is_set, MEMSET, MEMCPY)
    kind = np.concatenate([np.full(len(kernels["start_ns"]), KERNEL), copy_kind]).astype(np.int8)
    name = np.concatenate(
        [kernels["name"].codes.astype(np.int64), copies["name"].codes + len(kernel_names)]
    )
    joined = {
        column: np.concatenate([kernels[column], copies[column]]).astype(np.int64)
        for column in GRAPH_WORK_COLUMNS[1:]
    }
    # Profilers write graph 0 for work that was launched on its own.
    rows = np.flatnonzero((joined["graph"] > 0) | np.isin(joined["launch"], graph_calls))
    graph_id, launch = joined["graph"][rows], joined["launch"][rows]
    start, node = joined["start_ns"][rows], joined["graph_node"][rows]
    replay = group_rows(launch, graph_id)
    order = np.lexsort((start, node, replay.minima(start)[replay.group], replay.group))
    order = order[np.argsort(replay.minima(start)[replay.group[order]], kind="stable")]
    rows, group = rows[order], replay.group[order]
    is_first = np.diff(group, prepend=-1) != 0
    first = np.flatnonzero(is_first)
    sizes = np.diff(np.append(first, len(rows)))
    position = np.arange(len(rows)) - np.repeat(first, sizes)
    ids: dict[int | bytes, int] = {}
    numbers, graph_ids = [], []
    for begin, size in zip(first.tolist(), sizes.tolist(), strict=True):
        recorded = int(graph_id[order[begin]])
        work = rows[begin : begin + size]
        key = recorded if recorded > 0 else name[work].tobytes()
        if key not in ids:
            graph_ids.append(recorded if recorded > 0 else None)
        numbers.append(ids.setdefault(key, len(ids)))
    return GraphWork(
        kind=kind[rows],
        name=name[rows],
        names=names,
        duration_ns=joined["duration_ns"][rows],
        launch=joined["launch"][rows],
        operator=joined["operator"][rows],
        graph=np.repeat(np.array(numbers, dtype=np.int64), sizes),
        graph_ids=graph_ids,
        position=position,
        has_nodes=joined["graph_node"][rows] >= 0,
        captured_operator=joined["captured_operator"][rows],
    )


def name_captured_operators(work: GraphWork, captures: Sequence[Capture]) -> list[str | None]:
    """Find the captured operator of each piece of work; None where no capture fits."""
    first_replays = [work.first_replay(graph) for graph in range(len(work.graph_ids))]
    forms = Counter(tuple(work.kind[rows].tolist()) for rows in first_replays)
    operators: list[tuple[str | None, ...]] = []
    for rows in first_replays:
        is_only = forms[tuple(work.kind[rows].tolist())] == 1 and bool(work.has_nodes[rows].all())
        fitting = {
            capture.operators for capture in captures if _fits(capture, work, rows, is_only=is_only)
        }
        operators.append(fitting.pop() if len(fitting) == 1 else (None,) * len(rows))
    return [
        operators[graph][position] if position < len(operators[graph]) else None
        for graph, position in zip(work.graph.tolist(), work.position.tolist(), strict=True)
    ]


def _fits(capture: Capture, work: GraphWork, rows: intervals.Int, *, is_only: bool) -> bool:
    """Return True if the launches of a capture are the work of a replay.

    Args:
        capture: the capture.
        work: work of graphs.
        rows: work of one replay.
        is_only: true if no other graph has work of the same kinds, in numbered nodes.
    """
    if capture.kinds != tuple(work.kind[rows].tolist()):
        return False
    names = [work.names[code] for code in work.name[rows].tolist()]
    has_names = KERNEL in capture.kinds and all(
        name is not None or kind != KERNEL
        for name, kind in zip(capture.kernels, capture.kinds, strict=True)
    )
    return (has_names or is_only) and all(
        launched is None or launched == name
        for launched, name in zip(capture.kernels, names, strict=True)
    )


def build_graph_table(work: GraphWork, total_ns: int) -> list[GraphReplays]:
    """Summarize replayed graphs by descending kernel time.

    Args:
        work: work of graphs.
        total_ns: sum of the durations of all kernels of the trace.
    """
    graphs = []
    for graph, graph_id in enumerate(work.graph_ids):
        rows = np.flatnonzero(work.graph == graph)
        kernels = rows[work.kind[rows] == KERNEL]
        kernel_ns = int(work.duration_ns[kernels].sum())
        launches = work.launch[rows]
        graphs.append(
            GraphReplays(
                number=graph + 1,
                graph=graph_id,
                replays=len(np.unique(launches[launches >= 0])),
                kernel_count=len(kernels),
                distinct_kernel_count=len(np.unique(work.name[kernels])),
                total_ns=kernel_ns,
                share_ratio=kernel_ns / total_ns if total_ns else 0.0,
            )
        )
    return sorted(graphs, key=lambda graph: -graph.total_ns)


def list_graph_kernels(
    work: GraphWork, operators: Sequence[str | None], total_ns: int, *, top: int = 0
) -> list[GraphKernel]:
    """List the kernels of each graph by captured operator and name, by descending time.

    Args:
        work: work of graphs.
        operators: captured operator of each piece of work.
        total_ns: sum of the durations of all kernels of the trace.
        top: limit of the list; 0 for all.
    """
    sums: dict[tuple[int, str, str | None], list[int]] = {}
    for row in np.flatnonzero(work.kind == KERNEL).tolist():
        key = int(work.graph[row]) + 1, work.names[work.name[row]], operators[row]
        entry = sums.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] += int(work.duration_ns[row])
    kernels = [
        GraphKernel(
            number=number,
            name=name,
            operator=operator,
            calls=calls,
            total_ns=kernel_ns,
            share_ratio=kernel_ns / total_ns if total_ns else 0.0,
        )
        for (number, name, operator), (calls, kernel_ns) in sums.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel.total_ns)[: top or None]


def split_graph_time(work: GraphWork, operators: Sequence[str | None]) -> tuple[int, int]:
    """Sum the time of the work with a captured operator, and of that without any operator."""
    is_captured = np.array([name is not None for name in operators], dtype=np.bool_)
    is_unknown = ~is_captured & (work.operator < 0)
    return int(work.duration_ns[is_captured].sum()), int(work.duration_ns[is_unknown].sum())


def sum_replayed_operators(
    work: GraphWork, operators: Sequence[str | None], device_ns: int
) -> list[ReplayedOperator]:
    """Sum the work of graphs by captured operator, by descending time; unknown ones are left out.

    Args:
        work: work of graphs.
        operators: captured operator of each piece of work.
        device_ns: device time of the trace, the denominator of the shares.
    """
    sums: dict[str, list[int]] = {}
    for operator, duration_ns in zip(operators, work.duration_ns.tolist(), strict=True):
        if operator is not None:
            entry = sums.setdefault(operator, [0, 0])
            entry[0] += 1
            entry[1] += duration_ns
    rows = [
        ReplayedOperator(
            name=name,
            work_count=count,
            device_ns=total_ns,
            device_ratio=total_ns / device_ns if device_ns else 0.0,
        )
        for name, (count, total_ns) in sums.items()
    ]
    return sorted(rows, key=lambda row: -row.device_ns)
