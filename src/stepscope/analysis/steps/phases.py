"""Phases of a training step, as nested spans of the training thread and as device time.

    data_wait      waiting for the input pipeline, including the start of an iterator
    h2d            copying batches to the device, as far as the host waits for it
    forward        outermost module calls
    loss           from the end of the last forward pass to the start of the backward pass
    backward       the autograd engine, including gradient exchange of DDP
    optimizer      optimizer steps
    dispatch       JAX: calls of compiled functions, while the device is idle
    execution      JAX: the device executes compiled functions, or the host waits for it
    communication  collectives that the script calls itself
    checkpoint     saves
    compilation    torch.compile or JAX compiles: usually inside a forward pass or a call, again for
                   new shapes
    garbage_collection
                   Python's garbage collector runs, inside any other phase
    other          everything else that the training thread does

Where a device computes, the host runs ahead of it and host times are misleading: a wait for batches
is hidden while the device is busy, and reading a value waits for work that was launched long
before. So if phases were timed on the device, time belongs to the phase that the device is busy
with, and to the host's phase only while the device is idle.

Where phases nest, time belongs to the innermost phase. A step of an optimizer that calls a closure
with one backward pass in it, as Lightning's do, starts for this purpose where that pass ends: what
the closure does before is not the optimizer's work. With several passes (L-BFGS) the time between
them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import narrow
from stepscope.analysis.steps.spans import FLAG_NO_GRAD, Spans

PHASE_OF_KIND = {
    "data_wait": "data_wait",
    "loader_start": "data_wait",
    "h2d": "h2d",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "dispatch": "dispatch",
    "device_wait": "execution",
    "communication": "communication",
    "checkpoint": "checkpoint",
    "compile": "compilation",
    "garbage_collection": "garbage_collection",
}
WORK_KINDS = tuple(kind for kind in PHASE_OF_KIND if kind != "garbage_collection")
"""Kinds that the script causes; the garbage collector runs at any time."""
PHASES = (
    "data_wait",
    "h2d",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "dispatch",
    "execution",
    "communication",
    "checkpoint",
    "compilation",
    "garbage_collection",
    "other",
)
"""Phases in their order within a step."""
COMPUTE_PHASES = ("forward", "loss", "backward", "optimizer")
DEVICE_PHASES = ("forward", "backward", "optimizer", "execution")
"""Phases that are timed on a device."""
FETCH_KINDS = ("data_wait", "loader_start")
CHUNK_STEPS = 1 << 16
"""Steps of which times are added up at once."""
CHUNK_ROWS = 1 << 10
"""Spans of which one end is kept for finding those at a time."""
CHUNK_SPANS = 1 << 18
"""Spans among which they are."""


class PhaseSpans(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Phase spans of one thread with their nesting."""

    spans: Spans
    parent: NDArray[np.int32]
    """Row of the innermost span around each, -1 for none."""

    @classmethod
    def of_thread(cls, spans: Spans, thread: int) -> PhaseSpans:
        """Select the spans of phases of a thread and nest them, once for all that ask."""
        key = ("phases", thread)
        if key not in spans.derived:
            recorded = cls.of_thread_as_recorded(spans, thread)
            phases = _start_after_closures(recorded)
            is_same = phases is recorded.spans
            spans.derived[key] = recorded if is_same else cls._nest(phases)
        nested: PhaseSpans = spans.derived[key]
        return nested

    @classmethod
    def of_thread_as_recorded(cls, spans: Spans, thread: int) -> PhaseSpans:
        """Do the same, with optimizer steps from their start also where they call a closure."""
        key = ("recorded phases", thread)
        if key not in spans.derived:
            selected = spans.on_thread(thread).of(*PHASE_OF_KIND)
            spans.derived[key] = cls._nest(selected.take(selected.length > 0))
        nested: PhaseSpans = spans.derived[key]
        return nested

    @classmethod
    def _nest(cls, phases: Spans) -> PhaseSpans:
        parent = intervals.parents(phases.start, phases.end)
        if not (parent >= 0).any():  # a value for all takes no memory
            return cls(spans=phases, parent=np.broadcast_to(np.int32(-1), len(parent)))
        return cls(spans=phases, parent=parent.astype(np.int32))

    @cached_property
    def inner(self) -> intervals.Int:
        """Rows of the spans inside another one."""
        return np.flatnonzero(self.parent >= 0)

    def select_outermost(self, *kinds: str) -> Spans:
        """Select the spans of these kinds that are not nested in another span of these kinds.

        An example is the optimizer step inside the step of a GradScaler.
        """
        return self.spans.take(self.is_outermost(*kinds))

    def is_outermost(self, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the spans that `select_outermost` selects."""
        selected = self.spans.is_kind(*kinds)
        rows, ancestor = self.inner, self.parent[self.inner]
        is_nested = np.zeros(len(rows), dtype=np.bool_)
        while (ancestor >= 0).any():
            is_nested |= (ancestor >= 0) & selected[ancestor]
            ancestor = np.where(ancestor >= 0, self.parent[ancestor], -1)
        selected[rows[is_nested]] = False
        return selected

    def measure_phases(
        self,
        borders: intervals.Int,
        evaluation: intervals.Intervals,
        device: dict[str, intervals.Intervals],
    ) -> Mapping[str, intervals.Int]:
        """Measure each phase from each border to the next, without evaluation, in nanoseconds.

        Time in which the device is busy belongs to its phase; the rest to the host's phases.
        """
        if not device:
            return self.measure_host_phases(borders, evaluation)
        covered, covered_ns = evaluation, np.diff(intervals.covered_until(borders, evaluation))
        on_device = {}
        for phase, busy in device.items():
            before_ns, covered = covered_ns, intervals.unite(covered, busy)
            covered_ns = np.diff(intervals.covered_until(borders, covered))
            on_device[phase] = covered_ns - before_ns
        times = self.measure_host_phases(borders, covered)
        return {**times, **{phase: times[phase] + ns for phase, ns in on_device.items()}}

    def measure_host_phases(
        self, borders: intervals.Int, covered: intervals.Intervals
    ) -> PhaseTimes:
        """Measure each phase of the host from each border to the next, outside covered time."""
        times: dict[str, NDArray[Any]] = {}
        nothing = np.broadcast_to(np.uint8(0), max(0, len(borders) - 1))
        loss = self.find_loss()
        # Of a long run, all at once take much memory.
        row = np.searchsorted(self.spans.start, borders) // CHUNK_SPANS
        cuts = np.flatnonzero(np.diff(row + np.arange(len(borders)) // CHUNK_STEPS)) + 1
        for first, last in pairwise(sorted({0, *cuts.tolist(), len(nothing)})):
            part = borders[first : last + 1]
            extent = int(part[0]), int(part[-1])
            edges, phases = self.find_host_phases(loss, extent)
            near = intervals.select_near(covered, *extent)
            for phase, of_part in zip(PHASES, _add_up(part, edges, phases, near), strict=True):
                if not of_part.any():
                    continue
                narrowed, before = narrow(of_part), times.get(phase, nothing)
                if phase not in times or not np.can_cast(narrowed.dtype, before.dtype):
                    times[phase] = before.astype(np.promote_types(narrowed.dtype, np.uint32))
                times[phase][first:last] = narrowed
        return PhaseTimes((phase, times.get(phase, nothing)) for phase in PHASES)

    def find_host_phases(
        self, loss: intervals.Intervals, extent: tuple[int, int] | None = None
    ) -> tuple[intervals.Int, NDArray[np.int8]]:
        """Find the times at which the host changes from one phase to another; the innermost counts.

        Args:
            loss: as of `find_loss`.
            extent: the time in which they are needed; None for all of it.

        Returns:
            The times; and the index in `PHASES` of the phase before each of them, then of the one
            after the last.
        """
        rows = slice(0, len(self.spans)) if extent is None else self._find_rows(*extent)
        parent = np.maximum(self.parent[rows] - rows.start, -1)
        spans = self.spans.slice(rows.start, rows.stop)
        pieces = intervals.segments(spans.start, spans.end, parent)
        phases = [PHASE_OF_KIND.get(kind, "other") for kind in spans.kinds]
        phase_codes = np.array([PHASES.index(phase) for phase in phases], dtype=np.int8)
        outside = np.array([PHASES.index("other")], dtype=np.int8)
        # The appended code is that of pieces without owner (-1).
        code = np.append(phase_codes.take(spans.kind), outside).take(pieces.owner)
        unowned = np.flatnonzero(pieces.owner < 0)
        code[unowned[intervals.contains(loss, pieces.start[unowned])]] = PHASES.index("loss")
        edges = np.append(pieces.start, pieces.end[-1:])
        return edges, np.concatenate([outside, code, outside])

    def _find_rows(self, start: int, end: int) -> slice:
        """Find rows among which are the outermost spans that reach into a time, one before and one
        after them, because the time in between may be of a phase, and those inside them."""
        first = int(np.searchsorted(self._reach, start, side="right")) * CHUNK_ROWS
        last = int(np.searchsorted(self.spans.start, end))
        for _ in range(2):
            first = self._skip_inner(first - 1, -1)
            last = self._skip_inner(last, 1) + 1
        return slice(max(0, first), self._skip_inner(last, 1))

    def _skip_inner(self, row: int, direction: int) -> int:
        """Return the first row in a direction, itself included, that is of an outermost span."""
        while 0 <= row < len(self.parent) and self.parent[row] >= 0:
            row += direction
        return row

    @cached_property
    def _reach(self) -> intervals.Int:
        """Latest end up to each block of `CHUNK_ROWS` spans."""
        reaches = [np.empty(0, dtype=np.int64)]
        for first in range(0, len(self.spans), CHUNK_SPANS):
            end = self.spans.slice(first, first + CHUNK_SPANS).end
            reaches.append(np.maximum.reduceat(end, np.arange(0, len(end), CHUNK_ROWS)))
        return np.maximum.accumulate(np.concatenate(reaches))

    def find_innermost(self, times: intervals.Int) -> intervals.Int:
        """Find the row of the innermost span at each time, -1 for none."""
        if not len(times):
            return times
        return intervals.innermost_at(times, self.spans.start, self.spans.end, self.parent)

    @cached_property
    def loss(self) -> intervals.Intervals:
        """As of `find_loss`, for repeated use."""
        return self.find_loss()

    def find_loss(self) -> intervals.Intervals:
        """Find the time from a forward pass with gradients to the backward pass that follows it.

        A copy of the targets, a teacher's forward pass or a gather may be in between.
        """
        spans = self.spans
        backward, forward = spans.is_kind("backward"), spans.is_kind("forward")
        is_work = spans.is_kind("backward", "optimizer", *FETCH_KINDS)
        is_work |= forward & ~spans.has_flag(FLAG_NO_GRAD)
        is_work[self.inner] = False
        # Masks, because the rows of the spans of a long run take eight times their memory.
        is_between = forward[is_work][:-1] & backward[is_work][1:]
        backward, forward = np.zeros_like(is_work), np.zeros_like(is_work)
        forward[is_work], backward[is_work] = (
            np.append(is_between, False),
            np.append(False, is_between),
        )
        end = spans.start[forward] + spans.length[forward]
        return intervals.union(intervals.Intervals(end, spans.start[backward]))


def _add_up(
    borders: intervals.Int,
    edges: intervals.Int,
    phases: NDArray[np.int8],
    covered: intervals.Intervals,
) -> NDArray[np.int64]:
    """Add up the time outside of covered time by phase, from each border to the next.

    Args:
        borders: in order.
        edges, phases: as of `PhaseSpans.find_host_phases`.
        covered: a union.
    """
    cuts = np.concatenate([borders, edges])
    order = np.argsort(cuts, kind="stable")
    cuts, is_border = cuts[order], order < len(borders)
    free_ns = np.diff(cuts - intervals.covered_until(cuts, covered))
    row = np.cumsum(is_border)[:-1]
    column = phases.take(np.cumsum(~is_border)[:-1])
    # The first row is for time before all borders, the last for time after them.
    shape = (len(borders) + 1, len(PHASES))
    # Doubles hold sums of nanoseconds exactly up to a hundred days.
    sums = np.bincount(row * shape[1] + column, weights=free_ns, minlength=shape[0] * shape[1])
    return sums.reshape(shape)[1:-1].T.astype(np.int64)


def pack(values: NDArray[Any]) -> NDArray[Any]:
    """Convert values to one if all are alike, and else to the narrowest type."""
    if len(values) and (values == values[0]).all():
        return values[:1].copy()
    return values if values.dtype == np.bool_ else narrow(values)


class PhaseTimes(Mapping[str, intervals.Int]):
    """Times of steps by phase, widened when they are read: all would take as much memory as the
    rest of the steps.

    Args:
        times: phase and times, phase by phase.
    """

    def __init__(self, times: Iterable[tuple[str, NDArray[Any]]]) -> None:
        self._times, self._count = dict[str, NDArray[Any]](), 0
        for phase, values in times:
            self._times[phase], self._count = pack(values), len(values)

    def read_narrow(self, phase: str) -> NDArray[Any]:
        """Read the times of one phase as they are stored."""
        return np.broadcast_to(self._times[phase], self._count)

    def __getitem__(self, phase: str) -> intervals.Int:
        return np.broadcast_to(self._times[phase].astype(np.int64), self._count)

    def __iter__(self) -> Iterator[str]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)


def _start_after_closures(recorded: PhaseSpans) -> Spans:
    """Start the optimizer steps that call a closure where its backward pass ends."""
    spans = recorded.spans
    if not spans.is_kind("backward")[recorded.inner].any():
        return spans
    rows = np.flatnonzero(spans.is_kind("optimizer"))
    steps = spans.take(rows).intervals
    update_start = _find_update_start(steps, spans.of("backward").intervals)
    if (update_start == steps.start).all():
        return spans
    start = spans.start.copy()
    start[rows] = update_start
    end = spans.end
    moved = replace(spans, start=start, length=narrow(end - start))
    return moved.take(intervals.nesting_order(start, end))


def _find_update_start(steps: intervals.Intervals, backward: intervals.Intervals) -> intervals.Int:
    """Find the end of the backward pass inside each optimizer step that contains exactly one, and
    the start of the others."""
    first, stop = np.searchsorted(backward.start, [steps.start, steps.end])
    has_one = stop - first == 1
    end = np.append(backward.end, 0).take(np.where(has_one, first, len(backward.end)))
    return np.where(has_one & (end < steps.end), end, steps.start)


def find_device_phases(spans: Spans) -> dict[str, intervals.Intervals]:
    """Find the time in which the device was busy with each phase; absent phases are left out."""
    on_device = spans.of("device")
    by_phase = {phase: on_device.take(on_device.is_named(phase)) for phase in DEVICE_PHASES}
    phases = {phase: rows.intervals for phase, rows in by_phase.items() if len(rows)}
    if {"backward", "optimizer"} <= phases.keys():
        steps = phases["optimizer"]
        start = _find_update_start(steps, phases["backward"])
        phases["optimizer"] = intervals.Intervals(start, steps.end)
    return phases


def find_device_busy(spans: Spans) -> intervals.Intervals:
    """Find the time in which the device was busy with any phase; that time is the device's."""
    return intervals.unite(intervals.EMPTY, *find_device_phases(spans).values())
