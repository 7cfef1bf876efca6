"""Collectives of several ranks: matching of their calls, wait, transfer and bandwidth.

No rank can finish a collective before all ranks have started it. So the shortest of the matched
calls is that of the rank that arrived last, which did not wait:

    transfer = the shortest duration on any rank, at the end of each rank's call
    wait     = the call's duration - transfer

This is an estimate: ranks may also differ in the bandwidth of their links. Calls are matched when
they have the same name and group of ranks and

    have the same sequence number within the group, if the profiler records one; otherwise
    are the n-th of their kind on every rank, if all ranks have the same number of them.

Bandwidths are defined as in nccl-tests
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). With S bytes, the larger of
a rank's input and output, n ranks and t seconds:

    algorithm bandwidth = S / t
    bus bandwidth       = S / t x f, f = 2 (n - 1) / n   all-reduce
                                     f = (n - 1) / n     all-gather, reduce-scatter, all-to-all
                                     f = 1               broadcast, reduce, send, receive
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import group_rows

_BYTES = {
    "double": 8,
    "long": 8,
    "int64": 8,
    "uint64": 8,
    "complexfloat": 8,
    "float": 4,
    "float32": 4,
    "int": 4,
    "int32": 4,
    "uint32": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "short": 2,
    "byte": 1,
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "long int": 8,
    "signed char": 1,
    "unsigned char": 1,
}
_NAMESPACE = "c10::"
_KINDS = (
    ("all_reduce", re.compile("all[-_]?reduce|cross_device_reduce")),
    ("reduce_scatter", re.compile("reduce[-_]?scatter")),
    ("all_gather", re.compile("all[-_]?gather")),
    ("all_to_all", re.compile("all[-_]?to[-_]?all|(deep_?ep|node|node_ll)(::)?(dispatch|combine)")),
    ("broadcast", re.compile("broadcast")),
    ("send_recv", re.compile("send|recv|collective[-_]permute")),
    ("reduce", re.compile("reduce")),
    ("gather", re.compile("gather")),
    ("scatter", re.compile("scatter")),
    ("barrier", re.compile("barrier")),
)
_KEEPS_LOCAL_SHARD = ("reduce_scatter", "all_gather", "all_to_all")
"""Collectives in which a rank's own shard does not cross the network."""
_POINT_TO_POINT = "send_recv"
"""Only two ranks take part, so the n-th on one rank need not be the n-th on another."""


@lru_cache(maxsize=4096)
def classify_collective(name: str) -> str:
    """Classify a collective by the name of its kernel or the profiler's name for it.

    Returns:
        The kind; the name itself if it matches no kind.

    >>> classify_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    'all_reduce'
    >>> classify_collective("_reduce_scatter_base"), classify_collective("ncclDevKernel_Generic")
    ('reduce_scatter', 'ncclDevKernel_Generic')
    """
    text = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), name)


_CARRIED_OUT_AS = {("reduce_scatter", "all_reduce")}
"""Collectives that libraries of the host carry out as others."""


def match_requests(
    requests: Sequence[str],
    requested_ns: NDArray[np.int64],
    calls: Sequence[str],
    start_ns: NDArray[np.int64],
) -> list[str | None]:
    """Match calls that a library carries out on threads of its own to the requests for them.

    The library takes requests in their order, so a call belongs to the first one before it that no
    earlier call took and that it can be for.

    Args:
        requests: kinds of the requests, in any order.
        requested_ns: their times.
        calls: kinds of the calls, by start.
        start_ns: their starts, ascending.

    Returns:
        Kind of the request of each call; None for a request from before the recording.

    >>> times = np.array([0, 2, 4])
    >>> match_requests(["reduce_scatter", "all_reduce"], times[:2], ["all_reduce"] * 2, times[1:])
    ['reduce_scatter', 'all_reduce']
    """
    order = iter(np.argsort(requested_ns, kind="stable").tolist())
    request = next(order, None)
    matched: list[str | None] = []
    for kind, start in zip(calls, start_ns.tolist(), strict=True):
        while (
            request is not None
            and requests[request] != kind
            and (requests[request], kind) not in _CARRIED_OUT_AS
        ):
            request = next(order, None)
        if request is None or requested_ns[request] > start:
            matched.append(None)
            continue
        matched.append(requests[request])
        request = next(order, None)
    return matched


def look_up_element_bytes(dtype: str | None) -> int | None:
    """Look up the size of one element; None for an unknown type.

    >>> look_up_element_bytes("BFloat16"), look_up_element_bytes("Float8_e4m3fn")
    (2, 1)
    >>> look_up_element_bytes("c10::BFloat16"), look_up_element_bytes("unsigned char")
    (2, 1)
    >>> look_up_element_bytes(None)
    """
    name = (dtype or "").removeprefix(_NAMESPACE).lower()
    return 1 if name.startswith("float8") else _BYTES.get(name)


def measure_tensors(dims: str | None, types: str | None) -> list[tuple[int, str | None]]:
    """Measure the tensors of an operator of a collective by its `input_dims` and `input_types`.

    Returns:
        Elements and element type of each argument that is a tensor or a list of tensors; the type
        of a list is unknown.

    >>> measure_tensors("[[8,4],[],[[2],[3]]]", '["float","Scalar","TensorList"]')
    [(32, 'float'), (5, None)]
    >>> measure_tensors('{"a":1}', "[1"), measure_tensors("[[-1,4],[2]]", '[null,["int"]]')
    ([], [(2, None)])
    """
    arguments, names = _read_list(dims), _read_list(types)
    tensors = [
        (_count_elements(argument), name if _is_element_type(name) else None)
        for argument, name in zip_longest(arguments, names[: len(arguments)])
    ]
    return [(elements, name) for elements, name in tensors if elements]


def _read_list(text: str | None) -> list[Any]:
    """Read a list in JSON; nothing of other text, which a damaged trace may hold."""
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _is_element_type(name: Any) -> bool:
    return isinstance(name, str) and look_up_element_bytes(name) is not None


def _count_elements(dims: Any) -> int:
    """Count the elements of a tensor, or of the tensors of a list."""
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(size, int) and size >= 0 for size in dims):
        return math.prod(dims)
    return sum(map(_count_elements, dims))


def compute_bus_factor(kind: str, group_size: int | None) -> float | None:
    """Compute the ratio of bus bandwidth to algorithm bandwidth; None if it is undefined.

    >>> compute_bus_factor("all_reduce", 4), compute_bus_factor("all_gather", 4)
    (1.5, 0.75)
    >>> compute_bus_factor("barrier", 4)
    """
    if kind in {"broadcast", "reduce", _POINT_TO_POINT}:
        return 1.0
    if not group_size or kind not in {"all_reduce", *_KEEPS_LOCAL_SHARD}:
        return None
    return (2 if kind == "all_reduce" else 1) * (group_size - 1) / group_size


class CollectiveCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Collective calls of all ranks; arrays have one entry per call."""

    rank: intervals.Int
    """Index among the recorded ranks."""
    start: intervals.Int
    end: intervals.Int
    kind: intervals.Int
    """Index into `kinds`."""
    kinds: list[str]
    group: intervals.Int
    """Index of the group of ranks, -1 if unknown."""
    sequence: intervals.Int
    """Sequence number within the group, -1 if unknown."""
    pair: intervals.Int
    """Number of the (sender, receiver) pair of a point-to-point operation; -1 if unknown."""
    size_bytes: intervals.Int
    """Size, -1 if unknown."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> intervals.Int:
        """Duration of each call, nanoseconds."""
        return self.end - self.start

    def starting_within(self, ranges: Sequence[tuple[int, int] | None]) -> NDArray[np.bool_]:
        """Mask of the calls that start in the range of their rank, the end exclusive.

        Args:
            ranges: start and end by rank; None for all time.
        """
        limits = np.iinfo(np.int64)
        bounds = np.array([within or (limits.min, limits.max) for within in ranges], dtype=np.int64)
        start, end = bounds.T[:, self.rank]
        mask: NDArray[np.bool_] = (self.start >= start) & (self.start < end)
        return mask

    def take(self, rows: NDArray[np.bool_] | intervals.Int) -> CollectiveCalls:
        """Select calls by a mask or an index array."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return CollectiveCalls(**{n: v if n == "kinds" else v[rows] for n, v in columns.items()})


class RankCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Collective calls of all ranks with their facts; arrays have one entry per call."""

    calls: CollectiveCalls
    group_names: list[str | None]
    """Names by `calls.group`; the last one is that of -1."""
    descriptions: dict[int, str | None]
    """Descriptions by `calls.group`."""
    group_size: intervals.Int
    """-1 where the trace has none."""
    dtype: intervals.Int
    """Index into `dtypes`, -1 where the trace has none."""
    dtypes: list[str]

    def take(self, rows: NDArray[np.bool_] | intervals.Int) -> RankCalls:
        """Select calls."""
        return replace(
            self,
            calls=self.calls.take(rows),
            group_size=self.group_size[rows],
            dtype=self.dtype[rows],
        )


class MatchedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Result of matching calls across ranks; arrays have one entry per call."""

    matched: NDArray[np.bool_]
    """True for a call whose counterpart on another rank is known."""
    transfer_ns: intervals.Int
    """Transfer time, 0 for an unmatched call."""
    last: NDArray[np.bool_]
    """True for the call of the rank that arrived last: the other ranks waited for it."""
    collective: intervals.Int
    """Number of the collective, the same for its calls on all ranks; -1 for an unmatched call."""
    uneven_kinds: dict[str, list[int]]
    """Kinds without sequence numbers whose call counts differ between ranks, with the indices of
    the ranks that have the smallest count."""

    def take(self, rows: NDArray[np.bool_] | intervals.Int) -> MatchedCalls:
        """Select calls by a mask or an index array."""
        return replace(
            self,
            matched=self.matched[rows],
            transfer_ns=self.transfer_ns[rows],
            last=self.last[rows],
            collective=self.collective[rows],
        )


def match_calls(calls: CollectiveCalls, time_group: Sequence[int] = ()) -> MatchedCalls:
    """Match the calls of several ranks that form one collective.

    Args:
        calls: calls of all ranks.
        time_group: by rank the number of the ranks that were recorded together with it; empty
            where all were.
    """
    matched = np.zeros(len(calls), dtype=np.bool_)
    transfer = np.zeros(len(calls), dtype=np.int64)
    last = np.zeros(len(calls), dtype=np.bool_)
    if not len(calls):
        return MatchedCalls(
            matched=matched, transfer_ns=transfer, last=last, collective=transfer, uneven_kinds={}
        )
    together = np.asarray(time_group, dtype=np.int64)[calls.rank] if time_group else calls.kind
    kind = group_rows(calls.kind, calls.group, calls.pair, calls.sequence, together)
    usable, uneven = _find_matchable(calls, kind.group)
    collective = group_rows(kind.group, _number_calls(kind.group, calls))
    ranks = np.bincount(collective.group[usable], minlength=len(collective))
    matched[:] = usable & (ranks[collective.group] > 1)
    shortest = collective.minima(calls.duration)
    transfer[matched] = shortest[collective.group][matched]
    last[:] = matched & (calls.duration == shortest[collective.group])
    return MatchedCalls(
        matched=matched,
        transfer_ns=transfer,
        last=last,
        collective=np.where(matched, collective.group, -1),
        uneven_kinds=uneven,
    )


def _number_calls(kind: intervals.Int, calls: CollectiveCalls) -> intervals.Int:
    """Number the calls of each kind on each rank, in order of time."""
    order = np.lexsort((calls.start, calls.rank, kind))
    is_first = np.diff(kind[order], prepend=-1) != 0
    is_first |= np.diff(calls.rank[order], prepend=-1) != 0
    index = np.arange(len(order))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = index - np.maximum.accumulate(np.where(is_first, index, 0))
    return number


def _find_matchable(
    calls: CollectiveCalls, kind: intervals.Int
) -> tuple[NDArray[np.bool_], dict[str, list[int]]]:
    """Mask the calls that can be matched, and find the kinds with uneven counts.

    Without a sequence number, a call is identified by its number among those of its kind. That
    needs equal counts on all ranks.
    """
    numbered = calls.sequence >= 0
    point_to_point = np.array([name == _POINT_TO_POINT for name in calls.kinds], dtype=np.bool_)
    paired = ~point_to_point[calls.kind] | (calls.pair >= 0)
    per_rank = group_rows(kind, calls.rank)
    counts = per_rank.counts()
    kind_of, rank_of = kind[per_rank.first], calls.rank[per_rank.first]
    min_counts = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)
    max_counts = np.zeros_like(min_counts)
    np.minimum.at(min_counts, kind_of, counts)
    np.maximum.at(max_counts, kind_of, counts)
    even = min_counts == max_counts
    uneven: dict[str, list[int]] = {}
    for row in np.flatnonzero(~even[kind_of] & (counts == min_counts[kind_of])).tolist():
        first = int(per_rank.first[row])
        if not numbered[first] and paired[first]:
            ranks = uneven.setdefault(calls.kinds[int(calls.kind[first])], [])
            ranks.append(int(rank_of[row]))
    return numbered | (even[kind] & paired), {k: sorted(set(v)) for k, v in uneven.items()}


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth of the collectives of one kind and group; all None without recorded sizes."""

    moved_bytes: int | None
    mean_bytes: float | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def measure_bandwidth(
    calls: CollectiveCalls, matches: MatchedCalls, group_size: int | None
) -> Bandwidth:
    """Measure the bandwidth of calls of one kind and group.

    Bytes and transfer times are summed over the calls with a recorded size; an unmatched call
    counts with its duration.
    """
    sized = calls.size_bytes >= 0
    if not sized.any():
        return Bandwidth(
            moved_bytes=None, mean_bytes=None, algorithm_bytes_per_s=None, bus_bytes_per_s=None
        )
    moved = int(calls.size_bytes[sized].sum())
    time = np.where(matches.matched, matches.transfer_ns, calls.duration)
    time_ns = int(time[sized].sum())
    speed = moved / time_ns * 1e9 if time_ns and moved else None
    factor = compute_bus_factor(calls.kinds[int(calls.kind[0])], group_size)
    return Bandwidth(
        moved_bytes=moved,
        mean_bytes=moved / int(sized.sum()),
        algorithm_bytes_per_s=speed,
        bus_bytes_per_s=speed * factor if speed is not None and factor is not None else None,
    )
