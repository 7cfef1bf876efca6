"""Collectives of several ranks: which belong together, and what of their time is waiting.

A collective cannot end anywhere before every rank has begun it. So of the calls that are one
collective, the shortest is that of the rank that came last, which waited for nobody:

    transfer = the shortest duration on any rank, at the end of each rank's call
    waiting  = own duration - transfer

That is an estimate: ranks may also differ in the bandwidth of their links. Calls are one
collective when they are of one name in one group of ranks and

    have the same number within the group, where the recorder numbers them; else
    are the n-th of their kind on every rank, provided that every rank has as many of them.

The bandwidths are those of NCCL's tests. With S bytes, the larger of what a rank gives and what
it gets, n ranks and t seconds:

    algorithm bandwidth = S / t
    bus bandwidth       = S / t x f, f = 2 (n - 1) / n   all-reduce
                                     f = (n - 1) / n     all-gather, reduce-scatter, all-to-all
                                     f = 1               broadcast, reduce, send, receive
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.grouping import group_rows
from stepscope.intervals import Int

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
}
_KINDS = (
    ("all_reduce", re.compile("all_?reduce")),
    ("reduce_scatter", re.compile("reduce_?scatter")),
    ("all_gather", re.compile("all_?gather")),
    ("all_to_all", re.compile("all_?to_?all")),
    ("broadcast", re.compile("broadcast")),
    ("send_recv", re.compile("send|recv")),
    ("reduce", re.compile("reduce")),
    ("gather", re.compile("gather")),
    ("scatter", re.compile("scatter")),
    ("barrier", re.compile("barrier")),
)
_ALL_BUT_OWN = ("reduce_scatter", "all_gather", "all_to_all")
_TWO_RANKS = "send_recv"
"""Not every rank takes part, so the n-th on one rank need not be the n-th on another."""


@lru_cache(maxsize=4096)
def collective_kind(name: str) -> str:
    """What a collective does, by the name of its kernel or as recorders call it.

    >>> collective_kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    'all_reduce'
    >>> collective_kind("_reduce_scatter_base"), collective_kind("ncclDevKernel_Generic")
    ('reduce_scatter', 'ncclDevKernel_Generic')
    """
    text = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), name)


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of one element; None for a type that is not known.

    >>> element_bytes("BFloat16"), element_bytes("Float8_e4m3fn"), element_bytes(None)
    (2, 1, None)
    """
    name = (dtype or "").lower()
    return 1 if name.startswith("float8") else _BYTES.get(name)


def bus_factor(kind: str, group_size: int | None) -> float | None:
    """What the bus bandwidth is of the algorithm bandwidth; None where the formula does not say.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("barrier", 4)
    (1.5, 0.75, None)
    """
    if kind in {"broadcast", "reduce", _TWO_RANKS}:
        return 1.0
    if not group_size or kind not in {"all_reduce", *_ALL_BUT_OWN}:
        return None
    return (2 if kind == "all_reduce" else 1) * (group_size - 1) / group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCalls:
    """Calls of collectives, of all ranks together; arrays have one entry each."""

    rank: Int
    """Place of the rank among those recorded."""
    start: Int
    end: Int
    kind: Int
    """Place in `kinds`."""
    kinds: list[str]
    group: Int
    """Place of the group of ranks, -1 where the recorder says nothing."""
    sequence: Int
    """Number within the group, -1 where there is none."""
    pair: Int
    """Of point-to-point operations, a number for who sends to whom; -1 where that is unknown."""
    size_bytes: Int
    """-1 where the recorder gave no size."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> Int:
        """Nanoseconds of each."""
        return self.end - self.start

    def take(self, rows: NDArray[np.bool_] | Int) -> CollectiveCalls:
        """Some of them."""
        kept = {each.name: getattr(self, each.name) for each in fields(self)}
        return CollectiveCalls(**{n: v if n == "kinds" else v[rows] for n, v in kept.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What each call has to do with those of other ranks."""

    matched: NDArray[np.bool_]
    transfer_ns: Int
    """0 where it is not matched."""
    last: NDArray[np.bool_]
    """The others waited for this one."""
    uneven_kinds: dict[str, list[int]]
    """Kinds without numbers that ranks have different numbers of, with the places of the ranks
    that have the fewest."""

    def take(self, rows: NDArray[np.bool_] | Int) -> Matched:
        """Of some of the calls."""
        return replace(
            self,
            matched=self.matched[rows],
            transfer_ns=self.transfer_ns[rows],
            last=self.last[rows],
        )


def match(calls: CollectiveCalls) -> Matched:
    """Finds the calls of several ranks that are one collective."""
    matched = np.zeros(len(calls), dtype=np.bool_)
    transfer = np.zeros(len(calls), dtype=np.int64)
    last = np.zeros(len(calls), dtype=np.bool_)
    if not len(calls):
        return Matched(matched=matched, transfer_ns=transfer, last=last, uneven_kinds={})
    kind = group_rows(calls.kind, calls.group, calls.pair, calls.sequence)
    usable, uneven = _comparable(calls, kind.group)
    collective = group_rows(kind.group, _ordinal(kind.group, calls))
    ranks = np.bincount(collective.group[usable], minlength=len(collective))
    matched[:] = usable & (ranks[collective.group] > 1)
    shortest = collective.minima(calls.duration)
    transfer[matched] = shortest[collective.group][matched]
    last[:] = matched & (calls.duration == shortest[collective.group])
    return Matched(matched=matched, transfer_ns=transfer, last=last, uneven_kinds=uneven)


def _ordinal(kind: Int, calls: CollectiveCalls) -> Int:
    """Which of its kind each call is on its rank, in order of time."""
    order = np.lexsort((calls.start, calls.rank, kind))
    new = np.diff(kind[order], prepend=-1) != 0
    new |= np.diff(calls.rank[order], prepend=-1) != 0
    place = np.arange(len(order))
    ordinal = np.empty(len(order), dtype=np.int64)
    ordinal[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return ordinal


def _comparable(
    calls: CollectiveCalls, kind: Int
) -> tuple[NDArray[np.bool_], dict[str, list[int]]]:
    """Calls whose place among those of their kind says which collective they are."""
    numbered = calls.sequence >= 0
    two = np.array([name == _TWO_RANKS for name in calls.kinds], dtype=np.bool_)[calls.kind]
    paired = ~two | (calls.pair >= 0)
    per_rank = group_rows(kind, calls.rank)
    counts = per_rank.counts()
    kind_of, rank_of = kind[per_rank.first], calls.rank[per_rank.first]
    least = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)
    most = np.zeros_like(least)
    np.minimum.at(least, kind_of, counts)
    np.maximum.at(most, kind_of, counts)
    even = least == most
    uneven: dict[str, list[int]] = {}
    for row in np.flatnonzero(~even[kind_of] & (counts == least[kind_of])).tolist():
        first = int(per_rank.first[row])
        if not numbered[first] and paired[first]:
            ranks = uneven.setdefault(calls.kinds[int(calls.kind[first])], [])
            ranks.append(int(rank_of[row]))
    return numbered | (even[kind] & paired), {k: sorted(set(v)) for k, v in uneven.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """How fast collectives of one kind and group were; None without any size."""

    moved_bytes: int | None
    mean_bytes: float | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def bandwidth(calls: CollectiveCalls, found: Matched, group_size: int | None) -> Bandwidth:
    """Of calls of one kind and group: bytes by time, both summed over the calls with a size."""
    sized = calls.size_bytes >= 0
    if not sized.any():
        return Bandwidth(
            moved_bytes=None, mean_bytes=None, algorithm_bytes_per_s=None, bus_bytes_per_s=None
        )
    moved = int(calls.size_bytes[sized].sum())
    time = np.where(found.matched, found.transfer_ns, calls.duration)
    time_ns = int(time[sized].sum())
    speed = moved / time_ns * 1e9 if time_ns and moved else None
    factor = bus_factor(calls.kinds[int(calls.kind[0])], group_size)
    return Bandwidth(
        moved_bytes=moved,
        mean_bytes=moved / int(sized.sum()),
        algorithm_bytes_per_s=speed,
        bus_bytes_per_s=speed * factor if speed is not None and factor is not None else None,
    )
