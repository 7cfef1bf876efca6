"""Calls of collectives in recordings of several ranks, brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    CollectiveCalls,
    Columns,
    classify_collective,
    is_communication,
    look_up_element_bytes,
)
from stepscope.intervals import Int
from stepscope.run.traces import Trace, columns_of
from stepscope.store import literal

_TIMES = ("start_ns", "duration_ns")
_NUMBERS = (
    "id",
    "on_device",
    "in_elements",
    "out_elements",
    "group_size",
    "sequence",
    "peer_source",
    "peer_destination",
)
_WORDS = ("name", "dtype", "group", "group_description")
_HOST = "name LIKE 'gloo:%' OR name LIKE 'mpi:%' OR name LIKE 'ucc:%'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCalls:
    """Calls of all ranks, and what was said of them; arrays have one entry per call."""

    calls: CollectiveCalls
    group_names: list[str | None]
    """By `calls.group`; the last one is of -1."""
    descriptions: dict[int, str | None]
    """Of groups, by `calls.group`."""
    group_size: Int
    """-1 where the recorder says nothing."""
    dtype: Int
    """Place in `dtypes`, -1 where the recorder says nothing."""
    dtypes: list[str]

    def take(self, rows: NDArray[np.bool_] | Int) -> RankCalls:
        """Some of them."""
        return replace(
            self,
            calls=self.calls.take(rows),
            group_size=self.group_size[rows],
            dtype=self.dtype[rows],
        )


def collective_calls(traces: Sequence[Trace]) -> RankCalls:
    """The calls in one recording per rank; `calls.rank` is the place in `traces`.

    Kernels of collectives; of a rank without any, the calls that its host carries out. What was
    said of one is said of the kernel itself, or of the operator that launched it.
    """
    said = columns_of(traces, "collectives", (*_NUMBERS, *_WORDS))
    kernels = columns_of(
        traces, "kernels", ("id", "operator", "name", *_TIMES), where=_communication(traces)
    )
    device = [_kernels(*each) for each in zip(kernels, said, strict=True)]
    without = [trace for trace, found in zip(traces, device, strict=True) if not len(found.start)]
    host = dict(zip([t.trace for t in without], _host_calls(without), strict=True))
    return _together([host.get(t.trace, d) for t, d in zip(traces, device, strict=True)])


@dataclass(slots=True, kw_only=True)
class _Part:
    """Calls of one rank; what is not known is None or -1."""

    start: Int
    end: Int
    kind: list[str]
    words: dict[str, list[str | None]]
    numbers: dict[str, Int]


def _communication(traces: Sequence[Trace]) -> str:
    """The condition in SQL that kernels of collectives meet."""
    if not traces:
        return "false"
    names = traces[0].reader.sql("SELECT DISTINCT name FROM kernels WHERE name IS NOT NULL")["name"]
    chosen = sorted(filter(is_communication, names.tolist()))
    return f"name IN ({', '.join(map(literal, chosen))})" if chosen else "false"


def _kernels(kernels: Columns, said: Columns) -> _Part:
    of_kernel, of_operator = said["on_device"] == 1, said["on_device"] == 0
    place = _places(said["id"], of_kernel, kernels["id"])
    other = _places(said["id"], of_operator, kernels["operator"])
    place = np.where(place >= 0, place, other)
    names = kernels["name"]
    kind = [names.values[code] or "" for code in names.codes.tolist()]
    words = {word: _words(said, word, place) for word in _WORDS}
    return _Part(
        start=kernels["start_ns"],
        end=kernels["start_ns"] + kernels["duration_ns"],
        kind=[
            classify_collective(said or own) for said, own in zip(words["name"], kind, strict=True)
        ],
        words=words,
        numbers={n: np.append(said[n], -1)[place].astype(np.int64) for n in _NUMBERS},
    )


def _host_calls(traces: Sequence[Trace]) -> list[_Part]:
    """Collectives that hosts carry out: annotations of the library that does."""
    marked = columns_of(
        traces, "annotations", ("name", *_TIMES), where=f"on_device = 0 AND ({_HOST})"
    )
    called = columns_of(traces, "operators", ("name", *_TIMES), where=_HOST)
    return [
        _host_part(one if len(one["start_ns"]) else other)
        for one, other in zip(marked, called, strict=True)
    ]


def _host_part(columns: Columns) -> _Part:
    count = len(columns["start_ns"])
    names = columns["name"]
    order = np.argsort(columns["start_ns"], kind="stable")
    start = columns["start_ns"][order]
    return _Part(
        start=start,
        end=start + columns["duration_ns"][order],
        kind=[classify_collective(names.values[c] or "") for c in names.codes[order].tolist()],
        words={word: [None] * count for word in _WORDS},
        numbers={n: np.full(count, -1, dtype=np.int64) for n in _NUMBERS},
    )


def _together(parts: Sequence[_Part]) -> RankCalls:
    def joined(values: Sequence[Int]) -> Int:
        return np.concatenate([*values, np.empty(0, dtype=np.int64)]).astype(np.int64)

    numbers = {n: joined([part.numbers[n] for part in parts]) for n in _NUMBERS}
    words = {w: [value for part in parts for value in part.words[w]] for w in _WORDS}
    kind, kinds = _coded([name for part in parts for name in part.kind])
    group, groups = _coded(words["group"])
    dtype, dtypes = _coded(words["dtype"])
    elements = np.maximum(numbers["in_elements"], numbers["out_elements"])
    width = np.array([look_up_element_bytes(name) or -1 for name in dtypes] + [-1], dtype=np.int64)[
        dtype
    ]
    source, target = numbers["peer_source"], numbers["peer_destination"]
    numbered = source * (int(target.max(initial=0)) + 1) + target
    calls = CollectiveCalls(
        rank=np.repeat(np.arange(len(parts)), [len(part.start) for part in parts]),
        start=joined([part.start for part in parts]),
        end=joined([part.end for part in parts]),
        kind=kind,
        kinds=kinds,
        group=group,
        sequence=numbers["sequence"],
        pair=np.where((source >= 0) & (target >= 0), numbered, -1),
        size_bytes=np.where((width > 0) & (elements >= 0), elements * width, -1),
    )
    return RankCalls(
        calls=calls,
        group_names=[*groups, None],
        descriptions=dict(zip(group.tolist(), words["group_description"], strict=True)),
        group_size=numbers["group_size"],
        dtype=dtype,
        dtypes=dtypes,
    )


def _coded(values: Sequence[str | None]) -> tuple[Int, list[str]]:
    """Places in a list of the distinct values, -1 for None."""
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return np.array(codes, dtype=np.int64), list(places)


def _places(ids: Int, which: NDArray[np.bool_], wanted: Int) -> Int:
    """Rows of those chosen that have the ids wanted, -1 for none."""
    rows = np.flatnonzero(which)
    if not len(rows):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = rows[np.argsort(ids[rows], kind="stable")]
    place = np.minimum(np.searchsorted(ids[order], wanted), len(order) - 1)
    return np.where(ids[order][place] == wanted, order[place], -1)


def _words(columns: Mapping[str, Any], name: str, rows: Int) -> list[str | None]:
    strings = columns[name]
    values = [*strings.values, None]
    return [values[code] for code in np.append(strings.codes, -1)[rows].tolist()]
