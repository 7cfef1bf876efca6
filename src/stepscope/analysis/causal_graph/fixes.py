"""Fixes on a causal graph: how long steps would take with other weights.

Each fix changes weights, and the graph is replayed. Fixes are bounds: they say what is left when
what they name takes no time, or a fraction of it, and everything else takes as long as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.causal_graph import graph

Int = intervals.Int
Mask = NDArray[np.bool_]
REMOVED_NS = -(1 << 50)
"""Weight of an edge that binds nothing: two weeks, so that thousands in a row do not overflow."""


class FixedEdges(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Edges of a graph, and what is known of their activities; one entry per edge."""

    edges: graph.CausalEdges
    in_optimizer: Mask
    """Time of an optimizer step, on the host or on a device."""
    reads_host: Mask
    """Copies from the host to a device, with the calls that start them and wait for them."""
    name: Int
    """Number of the name of the activity, -1 for none."""
    names: Sequence[str]
    """Names by number."""


class CausalFix(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the graph."""

    title: str
    condition: str
    """Assumption, as a clause."""
    apply: Callable[[FixedEdges, Int, float], Int]
    """Weights with the fix, from those without it; the number is the factor."""
    factor: float | None = None
    """Default of the factor; None for a fix without one."""
    affects: Callable[[FixedEdges], Mask]
    """Edges that the fix makes shorter."""
    grows_batch: bool = False
    """True if a step has the factor times as many samples."""
    by_rank: bool = False
    """True if ranks are as fast as the median one."""
    needs_operators: bool = False
    """True if the fix tells calls from computation, which spans of phases do not."""


NAMED_FIX = "faster:"
"""Start of the name of the fix that makes the operators, calls or kernels of one name faster."""


def make_named_fix(name: str) -> CausalFix:
    """Make a fix for operators, calls or kernels whose name contains a text.

    Args:
        name: the text.
    """

    def affects(fixed: FixedEdges) -> Mask:
        numbers = [number for number, text in enumerate(fixed.names) if name in text]
        is_named: Mask = np.isin(fixed.name, numbers)
        return is_named

    return _make(
        f"Faster {name}", f"{name} took the time divided by the factor", affects, _divide, 2.0
    )


def make_host_fix() -> CausalFix:
    """Make a fix for all that the thread of the steps does itself, evaluation left out."""

    def affects(fixed: FixedEdges) -> Mask:
        is_own: Mask = fixed.edges.kind == graph.EdgeKind.HOST
        return is_own & ~np.isin(fixed.edges.category, _NOT_OWN)

    return _make(
        "Less work in the thread of the steps",
        "its own work took the time divided by the factor",
        affects,
        _divide,
        2.0,
    )


_NOT_OWN = (
    graph.PathCategory.INPUT,
    graph.PathCategory.STARTUP,
    graph.PathCategory.BATCH_HANDOVER,
    graph.PathCategory.EVALUATION,
)
"""Time of a thread that is no work of its own, or in no step."""


def find_fix(name: str) -> CausalFix | None:
    """Find a fix by its name; None for an unknown one."""
    if name.startswith(NAMED_FIX) and len(name) > len(NAMED_FIX):
        return make_named_fix(name.removeprefix(NAMED_FIX))
    return CAUSAL_FIXES.get(name)


def _of_category(*categories: graph.PathCategory) -> Callable[[FixedEdges], Mask]:
    def mask(fixed: FixedEdges) -> Mask:
        is_of_category: Mask = np.isin(fixed.edges.category, categories)
        return is_of_category

    return mask


def _is_dispatch(fixed: FixedEdges) -> Mask:
    """Select the time of host threads that a compiled graph of launches needs no more."""
    edges = fixed.edges
    is_host: Mask = np.isin(edges.kind, (graph.EdgeKind.HOST, graph.EdgeKind.HANDOVER))
    is_host &= np.isin(edges.category, (graph.PathCategory.LAUNCH, graph.PathCategory.PYTHON))
    return is_host


def _is_python(fixed: FixedEdges) -> Mask:
    edges = fixed.edges
    is_python: Mask = edges.category == graph.PathCategory.PYTHON
    is_python &= np.isin(edges.kind, (graph.EdgeKind.HOST, graph.EdgeKind.HANDOVER))
    return is_python


def _is_wait(fixed: FixedEdges) -> Mask:
    """Select the waits of the host, but for copies to a device."""
    edges = fixed.edges
    is_wait: Mask = edges.category == graph.PathCategory.HOST_SYNC
    is_wait &= np.isin(edges.kind, (graph.EdgeKind.HOST, graph.EdgeKind.SYNC))
    is_wait &= ~(fixed.reads_host & (edges.kind == graph.EdgeKind.SYNC))
    return is_wait


_is_fetch = _of_category(graph.PathCategory.INPUT)
_is_input = _of_category(graph.PathCategory.INPUT, graph.PathCategory.STARTUP)
_is_startup = _of_category(graph.PathCategory.STARTUP)
_is_checkpoint = _of_category(graph.PathCategory.CHECKPOINT)


def _is_communication(fixed: FixedEdges) -> Mask:
    return _of_category(graph.PathCategory.COMMUNICATION)(fixed)


def _is_optimizer_host(fixed: FixedEdges) -> Mask:
    return fixed.in_optimizer & _is_dispatch(fixed)


def _ties_ranks(fixed: FixedEdges) -> Mask:
    is_tie: Mask = fixed.edges.kind == graph.EdgeKind.RANK
    return is_tie


def _untie_ranks(fixed: FixedEdges, weight: Int, _: float) -> Int:
    """Let each rank go through its collectives alone; they take the time of the transfer."""
    return np.where(_ties_ranks(fixed), REMOVED_NS, weight)


def _remove(affects: Callable[[FixedEdges], Mask]) -> Callable[[FixedEdges, Int, float], Int]:
    """Let edges take no time, and nothing wait for synchronization among them."""

    def apply(fixed: FixedEdges, weight: Int, _: float) -> Int:
        rows = affects(fixed)
        is_sync = fixed.edges.kind == graph.EdgeKind.SYNC
        weight = np.where(rows & ~is_sync, np.minimum(weight, 0), weight)
        return np.where(rows & is_sync, REMOVED_NS, weight)

    return apply


def _divide(affects: Callable[[FixedEdges], Mask]) -> Callable[[FixedEdges, Int, float], Int]:
    """Let edges take a fraction of their time."""

    def apply(fixed: FixedEdges, weight: Int, factor: float) -> Int:
        rows = affects(fixed) & (weight > 0)
        return np.where(rows, np.rint(weight / factor).astype(np.int64), weight)

    return apply


def _fetch_beside(fixed: FixedEdges, weight: Int, factor: float) -> Int:
    """Let batches become ready faster, and the thread of the steps prepare none."""
    is_ready = np.isin(fixed.edges.kind, (graph.EdgeKind.HANDOVER, graph.EdgeKind.WORK))
    beside = np.where(is_ready, np.rint(weight / factor).astype(np.int64), 0)
    return np.where(_is_fetch(fixed), beside, weight)


def _enlarge_batch(fixed: FixedEdges, weight: Int, factor: float) -> Int:
    """Let all work on samples take a multiple of its time; dispatch stays."""
    grows = ~_is_dispatch(fixed) & (weight > 0)
    kinds = (graph.EdgeKind.WORK, graph.EdgeKind.HOST)
    grows &= np.isin(fixed.edges.kind, kinds) | _is_fetch(fixed)
    grows &= ~fixed.in_optimizer & ~_is_communication(fixed) & ~_is_startup(fixed)
    return np.where(grows, np.rint(weight * factor).astype(np.int64), weight)


def _make(
    title: str,
    condition: str,
    affects: Callable[[FixedEdges], Mask],
    change: Callable[
        [Callable[[FixedEdges], Mask]], Callable[[FixedEdges, Int, float], Int]
    ] = _remove,
    factor: float | None = None,
    *,
    needs_operators: bool = False,
) -> CausalFix:
    return CausalFix(
        title=title,
        condition=condition,
        affects=affects,
        apply=change(affects),
        factor=factor,
        needs_operators=needs_operators,
    )


CAUSAL_FIXES: Mapping[str, CausalFix] = {
    "no-launch-gaps": _make(
        "Launch work without gaps",
        "calls and Python cost the host nothing, as in a compiled graph",
        _is_dispatch,
        needs_operators=True,
    ),
    "no-python": _make(
        "Move Python out of the step", "the host ran no Python between operators", _is_python
    ),
    "no-sync": _make(
        "Remove calls that wait for the device",
        "the host waits for no work of the device",
        _is_wait,
    ),
    "async-copies": _make(
        "Copy batches from pinned memory, asynchronously",
        "copies to the device ran while it computes",
        lambda fixed: fixed.reads_host,
    ),
    "no-input": _make("Have each batch ready in time", "no step waited for its batch", _is_input),
    "workers": CausalFix(
        title="Fetch batches in more workers",
        condition="batches became ready in the time divided by the factor, beside the steps",
        affects=_is_fetch,
        apply=_fetch_beside,
        factor=2.0,
    ),
    "faster-loading": _make(
        "Prepare batches faster",
        "preparing a batch took the time divided by the factor",
        _is_fetch,
        _divide,
        2.0,
    ),
    "no-handover": _make(
        "Hand over batches without cost",
        "receiving a batch that is ready took no time",
        _of_category(graph.PathCategory.BATCH_HANDOVER),
    ),
    "persistent-workers": _make(
        "Start workers once", "workers started before the steps", _is_startup
    ),
    "async-checkpoint": _make(
        "Write checkpoints beside the steps", "writing them held up no step", _is_checkpoint
    ),
    "faster-kernels": _make(
        "Faster kernels",
        "computation takes the time divided by the factor",
        _of_category(graph.PathCategory.COMPUTE),
        _divide,
        2.0,
    ),
    "overlap": _make(
        "Communicate while the device computes", "collectives hold up nothing", _is_communication
    ),
    "bandwidth": _make(
        "Faster links between ranks",
        "collectives take the time divided by the factor",
        _is_communication,
        _divide,
        2.0,
    ),
    "no-straggler": CausalFix(
        title="Equally fast ranks",
        condition="all ranks were as fast as the median one is alone",
        affects=_ties_ranks,
        apply=_untie_ranks,
        by_rank=True,
    ),
    "fused-optimizer": _make(
        "Fused kernels in the optimizer",
        "the optimizer costs the host one call",
        _is_optimizer_host,
        needs_operators=True,
    ),
    "batch": CausalFix(
        title="Larger batches",
        condition="work on samples takes a multiple of its time, calls take as long as before",
        affects=_is_dispatch,
        apply=_enlarge_batch,
        factor=2.0,
        grows_batch=True,
        needs_operators=True,
    ),
}
"""Fixes by name."""


class SimulatedFix(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a replay with fixes."""

    step_ns: float
    """Mean time of a step; per batch of the size before."""
    saving_ratio: float
    """Share of the replayed step without the fixes; negative where steps take longer."""
    categories: Mapping[graph.PathCategory, float]
    """Share of each kind of time on the critical path that is left."""


def simulate_fixes(
    causal: graph.CausalGraph,
    fixed: FixedEdges,
    fixes: Sequence[tuple[CausalFix, float | None]],
    extents: Sequence[tuple[int, int]],
    step_count: int,
) -> SimulatedFix:
    """Replay a graph with several fixes at once.

    Args:
        causal: the graph.
        fixed: its edges.
        fixes: fixes with their factors; None for the default.
        extents: points at the start of the first step and at the end of the last one: of all ranks
            together, then of each.
        step_count: number of steps between them.
    """
    before = _measure(causal, causal.edges.weight_ns, extents[0])
    weight, divisor = causal.edges.weight_ns, 1.0
    for fix, factor in fixes:
        used = fix.factor or 1.0 if factor is None else factor
        weight = fix.apply(fixed, weight, used)
        divisor *= used if fix.grows_batch else 1.0
    by_rank = any(fix.by_rank for fix, _ in fixes)
    schedule = causal.replay(weight)
    times = schedule.time_ns
    spans = [
        max(0, int(times[end] - times[start]))
        for start, end in (extents[1:] if by_rank else extents[:1])
    ]
    # The lower one of two: a rank is not late because the other one is early.
    after = sorted(spans)[(len(spans) - 1) // 2] / divisor
    return SimulatedFix(
        step_ns=after / step_count,
        saving_ratio=1 - after / before if before else 0.0,
        categories=_divide_path(causal, schedule, extents[0]),
    )


def _divide_path(
    causal: graph.CausalGraph, schedule: graph.CausalSchedule, extent: tuple[int, int]
) -> dict[graph.PathCategory, float]:
    """Divide the critical path of a replay into kinds of time, largest first."""
    start, end = extent
    path = causal.trace_path(schedule, end)
    edges, times = causal.edges, schedule.time_ns
    begin = np.maximum(times[edges.source[path]], times[start])
    length = np.maximum(times[edges.target[path]] - begin, 0)
    sums = np.bincount(edges.category[path], length, minlength=len(graph.PathCategory))
    total = float(sums.sum()) or 1.0
    order = np.argsort(-sums, kind="stable").tolist()
    return {graph.PathCategory(k): float(sums[k]) / total for k in order if sums[k]}


def _measure(causal: graph.CausalGraph, weight: Int, extent: tuple[int, int]) -> int:
    times = causal.replay(weight).time_ns
    return int(times[extent[1]] - times[extent[0]])
