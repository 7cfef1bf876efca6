"""Rounding of the rows of a run that has reached its size limit.

Every row stays, with its name, its place in the order and everything else that identifies it. Its
numbers are rounded to a grid, which takes a third to half of the space, and what rounding adds to
one number it takes from the next one of its kind:

    spans     The starts and ends of a thread's spans divide its time into gaps. Gaps of one kind
              are those between the same two kinds of border, inside the same open spans. The sum of
              all gaps of a kind up to any time is off by half a step of the grid at most, and their
              sum in the segment is exact. So each kind of span, and the time between them, keeps
              its sum to the nanosecond; medians are off by a step, and no border moves by more than
              half a step per kind of gap. Values that are durations are rounded likewise.
    metrics   The samples of a series; their sum is off by a step at most.

Few gaps of a kind stay as they are. Pure: arrays in, arrays out.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Hash = NDArray[np.uint64]
Numbers = TypeVar("Numbers", Int, Float)

ROUNDED_TABLES = ("spans", "metrics")
SPAN_GRIDS = (1 / 512, 1 / 128)
"""Steps of the grid by coarseness, from 1, as shares of the time from one span of a thread's most
frequent kind to the next: no more than a training step."""
METRIC_GRIDS = (1 / 128, 1 / 32)
"""The same for samples, as shares of the range of a series."""
MAX_COARSENESS = 2
MIN_ROUNDED_COUNT = 8
"""Numbers of a kind from which they are rounded: the borders drift with the number of kinds."""
_MAX_NS = np.iinfo(np.int64).max // 2
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2^64 over the golden ratio, the factor of Fibonacci hashing:
https://en.wikipedia.org/wiki/Hash_function#Fibonacci_hashing"""


def round_spans(
    start: Int, end: Int, *, depth: Int, kind: Hash, thread: Hash, grid_ns: Int
) -> tuple[Int, Int]:
    """Round the gaps between the borders of spans.

    Args:
        start, end: of the spans; equal for a mark and for a span without an end.
        depth: enclosing spans, which gives the order of borders at one time.
        kind: hash of everything that tells one kind of span from another.
        thread: hash of the thread.
        grid_ns: step of the grid, as of `find_grids`.

    Returns:
        The new starts and ends.
    """
    count = len(start)
    if not count:
        return start, end
    is_start = np.arange(2 * count) < count
    time, kinds = np.concatenate([start, end]), np.tile(kind | np.uint64(1), 2)
    # At one time: ends, innermost first; then starts, outermost first; then the ends of marks.
    rank = np.where(is_start, 1, np.where(np.tile(start == end, 2), 2, 0))
    inner = np.tile(depth, 2) * np.where(is_start, 1, -1)
    order = np.lexsort([inner, rank, time, np.tile(thread, 2)])
    time, kinds, is_start = time[order], kinds[order], is_start[order]
    threads = np.tile(thread, 2)[order]
    # The sum of the hashes of the open spans identifies them; each end takes its start off again.
    open_spans = np.cumsum(np.where(is_start, kinds, np.uint64(0) - kinds), dtype=np.uint64)
    border = _combine(kinds, is_start.astype(np.uint64))
    label = _combine(threads[:-1], open_spans[:-1], border[:-1], border[1:])
    is_last = threads[:-1] != threads[1:]  # no gap, and alone of its kind
    label[is_last] = np.flatnonzero(is_last).astype(np.uint64)
    gaps = np.diff(time)
    is_gap = (gaps > 0) & ~is_last  # it stays one: two ends at one time would count as one
    gaps = round_with_carry(gaps - is_gap, label, np.tile(grid_ns, 2)[order][:-1]) + is_gap
    moved = np.empty_like(time)
    moved[order] = time[0] + np.concatenate([[0], np.cumsum(gaps)])
    return moved[:count], moved[count:]


def find_grids(start: Int, *, kind: Hash, thread: Hash, share: float) -> Int:
    """Return the step of the grid for each span: one for all of a thread, a power of two."""
    _, thread_index = np.unique(thread, return_inverse=True)
    _, first, counts = np.unique(_combine(thread, kind), return_index=True, return_counts=True)
    thread_count = int(thread_index.max(initial=-1)) + 1
    max_counts = np.ones(thread_count, dtype=np.int64)
    np.maximum.at(max_counts, thread_index[first], counts)
    earliest, latest = np.full((2, thread_count), [[_MAX_NS], [-_MAX_NS]])
    np.minimum.at(earliest, thread_index, start)
    np.maximum.at(latest, thread_index, start)
    steps = share * (latest - earliest) / max_counts
    grids: Int = 2 ** np.floor(np.log2(np.maximum(steps, 1))).astype(np.int64)
    return np.take(grids, thread_index)


def round_durations(value: Int, *, series: Hash, grid_ns: Int) -> Int:
    """Round durations, those of a series together; those of the series 0 stay."""
    rounded, rows = value.copy(), np.flatnonzero(series != 0)
    rounded[rows] = round_with_carry(value[rows], series[rows], grid_ns[rows])
    return rounded


def round_samples(value: Float, *, series: Hash, share: float) -> Float:
    """Round samples to a share of the range of their series.

    Those of the series 0 and those that are not finite stay.
    """
    rounded, rows = value.copy(), np.flatnonzero(np.isfinite(value) & (series != 0))
    if not len(rows):
        return rounded
    _, index = np.unique(series[rows], return_inverse=True)
    lowest, highest = np.full((2, int(index.max()) + 1), [[np.inf], [-np.inf]])
    np.minimum.at(lowest, index, value[rows])
    np.maximum.at(highest, index, value[rows])
    steps = np.where(highest > lowest, share * (highest - lowest), 1)[index]
    # In units of the grid, so that large and small series keep their digits in one sum.
    above = (value[rows] - lowest[index]) / steps
    counts = round_with_carry(above, series[rows], np.ones_like(above))
    rounded[rows] = np.minimum(lowest[index] + counts * steps, highest[index])
    return rounded


def round_with_carry(values: Numbers, label: Hash, grid: Numbers) -> Numbers:
    """Round numbers of at least 0 so that the sum of those with the same label stays.

    Args:
        values: the numbers.
        label: numbers of one label are rounded together, in their order.
        grid: step of the grid, the same for all of a label.

    >>> round_with_carry(np.full(8, 3), np.zeros(8, dtype=np.uint64), np.full(8, 4)).tolist()
    [4, 4, 0, 4, 4, 4, 0, 4]
    """
    order = np.argsort(label, kind="stable")
    ordered, label = values[order], label[order]
    firsts = np.flatnonzero(np.append(True, label[1:] != label[:-1])[: len(label)])
    sizes = np.diff(np.append(firsts, len(label)))
    sums = np.cumsum(ordered)
    sums -= np.repeat((sums - ordered)[firsts], sizes)
    steps = grid[order]
    # The last sum of a label is exact, and no other is above it.
    half = steps / 2 if steps.dtype.kind == "f" else steps // 2
    rounded_sums = np.minimum(
        (sums + half) // steps * steps, np.repeat(sums[firsts + sizes - 1], sizes)
    )
    rounded_sums[firsts + sizes - 1] = sums[firsts + sizes - 1]
    rounded = np.diff(rounded_sums, prepend=rounded_sums[:1])
    rounded[firsts] = rounded_sums[firsts]
    is_rare = np.repeat(sizes < MIN_ROUNDED_COUNT, sizes)
    rounded[is_rare] = ordered[is_rare]
    result = np.empty_like(values)
    result[order] = rounded
    return result


def _combine(first: Hash, *further: Hash) -> Hash:
    """Combine hashes, row by row, into one that depends on their order."""
    combined = first * _FACTOR
    for hashes in further:
        combined = (combined ^ (combined >> np.uint64(29))) * _FACTOR + hashes
    return (combined ^ (combined >> np.uint64(32))) * _FACTOR
