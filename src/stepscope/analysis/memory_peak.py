"""Who holds the memory at the peak.

    held(o)   sum of the sizes of the blocks that operator o allocated, at or before the event
              that reached the peak, and that were not yet released after it
    before    peak - sum of held: what was allocated before the recording began

What a block is for is told from when it was allocated and when released. Times are those of the
outermost operators on the host; the backward pass that follows a time ends when the next
operator that is neither a gradient's nor inside one begins.

    gradients          allocated in a backward pass and not released before its end
    activations        allocated by other operators, alive when the next backward pass begins, and
                       released after that
    optimizer state    allocated in an optimizer's step and not released before its end
    temporary          released before the end of the pass that allocated it
    loaded batches     allocated while a batch was loaded
    not told           the rest: without a later backward pass, or never released

Without backward operators in the recording no block has a purpose that can be told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.memory_blocks import Blocks, label_operators, times_at
from stepscope.analysis.memory_curve import DeviceMemory
from stepscope.analysis.operator_tree import OperatorTree, is_excluded
from stepscope.intervals import Int, Intervals, contains, union

BEFORE, ACTIVATIONS, GRADIENTS, OPTIMIZER, TEMPORARY, LOADED, UNTOLD = (
    "before_recording",
    "activations",
    "gradients",
    "optimizer_state",
    "temporary",
    "loaded_batches",
    "not_told",
)
PURPOSES = (ACTIVATIONS, GRADIENTS, OPTIMIZER, TEMPORARY, LOADED, UNTOLD)
NO_BACKWARD = (
    "what the memory is for cannot be told: the recording holds no backward operators to tell "
    "activations and gradients by"
)
_ENGINE = ("autograd::engine::", "torch::autograd::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What one operator holds at the peak."""

    operator: str | None
    """None for allocations outside every operator."""
    block_count: int
    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The peak of one device, explained."""

    t_ns: int
    allocated_bytes: int
    before_bytes: int | None
    """Held since before the recording; None when the recording has no totals."""
    block_count: int
    holders: list[Holder]
    """Operators by what they hold, the largest first; only the first `top`."""
    holder_count: int
    purposes: dict[str, int] | None
    """Bytes by purpose, what was there before among them; None when it cannot be told."""


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """When the host was in which part of a step."""

    backward_start: Int
    """Of the outermost backward operators, ascending."""
    other_start: Int
    """Of the outermost other operators, ascending."""
    optimizer: Intervals
    loading: Intervals

    def backward_end(self, times: Int) -> Int:
        """End of the backward pass that runs at each time: the next other operator's start."""
        return _next(self.other_start, times)

    def next_backward(self, times: Int) -> Int:
        """Start of the next backward operator after each time."""
        return _next(self.backward_start, times)


_NEVER = np.iinfo(np.int64).max


def find_passes(tree: OperatorTree, operators: Columns, annotations: Columns) -> Passes:
    """The parts of the steps of a recording.

    Args:
        tree: its operators.
        operators: `start_ns` and `forward_thread` of the same rows.
        annotations: `name`, `start_ns`, `duration_ns` of those on the host.
    """
    backward = is_backward(tree, operators["forward_thread"])
    apart = tree.mask(is_excluded)
    above = np.append(apart, True)[tree.parent]  # row -1 is the one appended
    outermost = above & ~apart
    start = operators["start_ns"]
    optimizer = _ranges(annotations, "Optimizer.step#")
    loading = _ranges(annotations, "enumerate(Data")
    other = np.sort(start[outermost & ~backward])
    return Passes(
        backward_start=np.sort(start[outermost & backward]),
        other_start=other[~contains(loading, other)],
        optimizer=optimizer,
        loading=loading,
    )


def is_backward(tree: OperatorTree, forward_thread: Int) -> NDArray[np.bool_]:
    """Rows of operators that compute gradients, not those inside them."""
    named = tree.mask(
        lambda name: name.startswith(_ENGINE) or name.rstrip("0123456789").endswith("Backward")
    )
    return named | (forward_thread > 0)


def explain_peak(
    device: DeviceMemory,
    blocks: Blocks,
    event_operator: Int,
    tree: OperatorTree,
    *,
    passes: Passes | None,
    backward: NDArray[np.bool_],
    top: int = 0,
) -> Peak:
    """Who holds the memory of a device at its peak.

    Args:
        device: its events.
        blocks: its blocks.
        event_operator: `operator` of every row of the table `memory_events`.
        tree: the operators of the recording.
        passes: the parts of its steps; None when there are no backward operators.
        backward: rows of `tree` as from `is_backward`.
        top: only so many holders; 0 for all.
    """
    alive = blocks.alive_at(device.peak)
    size = blocks.size_bytes[alive]
    at = tree.rows(event_operator[device.rows[blocks.allocation[alive]]])
    labels = label_operators(tree, at)
    groups = group_rows(labels.codes)
    held, counts = groups.sums(size), groups.counts()
    peak = int(device.allocated_bytes[device.peak])
    before = peak - int(size.sum()) if device.absolute else None
    purposes = None
    if passes is not None and device.absolute:
        found = _purposes(device, blocks, alive, passes, _within(tree, at, backward))
        sums = np.bincount(found, weights=size, minlength=len(PURPOSES))
        purposes = {BEFORE: before or 0} | {
            name: int(sums[i]) for i, name in enumerate(PURPOSES) if sums[i]
        }
    return Peak(
        t_ns=int(device.t_ns[device.peak]),
        allocated_bytes=peak,
        before_bytes=before,
        block_count=len(alive),
        holders=[
            Holder(
                operator=labels.text(int(labels.codes[groups.first[g]])),
                block_count=int(counts[g]),
                held_bytes=int(held[g]),
            )
            for g in np.argsort(-held, kind="stable")[: top or None].tolist()
        ],
        holder_count=len(groups),
        purposes=purposes,
    )


def _purposes(
    device: DeviceMemory,
    blocks: Blocks,
    alive: Int,
    passes: Passes,
    in_backward: NDArray[np.bool_],
) -> Int:
    """Place in `PURPOSES` of each block, by the rules at the top of this file."""
    begun = times_at(device, blocks.allocation[alive])
    ended = times_at(device, blocks.release[alive])
    ended = np.where(ended < 0, _NEVER, ended)
    in_optimizer = contains(passes.optimizer, begun) & ~in_backward
    loaded = contains(passes.loading, begun)
    following = passes.next_backward(begun)
    until = np.where(in_optimizer, _end_of(passes.optimizer, begun), following)
    until = np.where(in_backward, passes.backward_end(begun), until)
    told = {
        LOADED: loaded,
        TEMPORARY: (ended < until) & (in_backward | (until < _NEVER)),
        GRADIENTS: in_backward,
        OPTIMIZER: in_optimizer,
        ACTIVATIONS: (following < _NEVER) & (ended < _NEVER),
    }
    places = [PURPOSES.index(name) for name in told]
    return np.select(list(told.values()), places, PURPOSES.index(UNTOLD))


def _within(tree: OperatorTree, rows: Int, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a row or an operator around it is among those wanted."""
    parent = np.append(tree.parent, -1)
    of = np.append(wanted, False)
    found = of[rows]
    while (rows >= 0).any():
        rows = parent[rows]
        found |= of[rows]
    return found


def _ranges(annotations: Columns, prefix: str) -> Intervals:
    names = annotations["name"]
    of_name = np.array([(name or "").startswith(prefix) for name in names.values], dtype=np.bool_)
    chosen = np.append(of_name, False)[names.codes]
    start = annotations["start_ns"][chosen]
    return union(Intervals(start, start + annotations["duration_ns"][chosen]))


def _next(starts: Int, times: Int) -> Int:
    """The first of ascending starts after each time, `_NEVER` without one."""
    return np.append(starts, _NEVER)[np.searchsorted(starts, times, side="right")]


def _end_of(merged: Intervals, times: Int) -> Int:
    """End of the interval of a union that covers each time, `_NEVER` without one."""
    place = np.searchsorted(merged.start, times, side="right") - 1
    return np.append(merged.end, _NEVER)[place]
