"""Collective calls of the traces of several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    TIME_COLUMNS,
    CollectiveCalls,
    Columns,
    CommunicationDefinition,
    RankCalls,
    classify_collective,
    look_up_element_bytes,
    match_rows,
)
from stepscope.intervals import Int
from stepscope.run.traces import Trace

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


CALL_COLUMNS = ("id", "operator", "name", *TIME_COLUMNS)
"""Columns of `kernels` that `read_calls` needs."""


def read_calls(
    trace: Trace, kernels: Columns, communication: CommunicationDefinition = "wide"
) -> TraceCalls:
    """Read the collective calls of a trace.

    Calls are kernels of collectives, or for a rank without any the calls of its host. Facts belong
    to the kernel itself or to the operator that launched it.

    Args:
        trace: the trace.
        kernels: `CALL_COLUMNS` of its kernels.
        communication: definition of communication.
    """
    facts = trace.columns("collectives", (*_NUMBERS, *_WORDS))
    rows = match_rows(kernels["name"], trace.collectives.predicate(communication))
    return _join_facts(kernels, np.flatnonzero(rows), facts) if rows.any() else _read_host(trace)


@dataclass(slots=True, kw_only=True)
class TraceCalls:
    """Collective calls of one trace; unknown values are None or -1."""

    start: Int
    end: Int
    kind: list[str]
    words: dict[str, list[str | None]]
    numbers: dict[str, Int]


def _join_facts(kernels: Columns, rows: Int, facts: Columns) -> TraceCalls:
    start, names = kernels["start_ns"][rows], kernels["name"]
    is_kernel = facts["on_device"] == 1
    fact_rows = _find_rows(facts["id"], is_kernel, kernels["id"][rows])
    operator_rows = _find_rows(facts["id"], ~is_kernel, kernels["operator"][rows])
    fact_rows = np.where(fact_rows >= 0, fact_rows, operator_rows)
    words = {word: _words(facts, word, fact_rows) for word in _WORDS}
    return TraceCalls(
        start=start,
        end=start + kernels["duration_ns"][rows],
        kind=[
            classify_collective(fact or names.values[code] or "")
            for fact, code in zip(words["name"], names.codes[rows].tolist(), strict=True)
        ],
        words=words,
        numbers={n: np.append(facts[n], -1)[fact_rows].astype(np.int64) for n in _NUMBERS},
    )


def _read_host(trace: Trace) -> TraceCalls:
    """Read collectives of the host: annotations of the library, else its operators."""
    columns = ("name", *TIME_COLUMNS)
    marks = trace.columns("annotations", columns, condition=f"on_device = 0 AND ({_HOST})")
    if len(marks["start_ns"]):
        return _host_part(marks)
    return _host_part(trace.columns("operators", columns, condition=_HOST))


def _host_part(columns: Columns) -> TraceCalls:
    count = len(columns["start_ns"])
    names = columns["name"]
    order = np.argsort(columns["start_ns"], kind="stable")
    start = columns["start_ns"][order]
    return TraceCalls(
        start=start,
        end=start + columns["duration_ns"][order],
        kind=[classify_collective(names.values[c] or "") for c in names.codes[order].tolist()],
        words={word: [None] * count for word in _WORDS},
        numbers={n: np.full(count, -1, dtype=np.int64) for n in _NUMBERS},
    )


def combine_calls(parts: Sequence[TraceCalls]) -> RankCalls:
    """Combine the calls of one trace per rank; `calls.rank` is the index in `parts`."""

    def joined(values: Sequence[Int]) -> Int:
        return np.concatenate([*values, np.empty(0, dtype=np.int64)]).astype(np.int64)

    numbers = {n: joined([part.numbers[n] for part in parts]) for n in _NUMBERS}
    words = {w: [value for part in parts for value in part.words[w]] for w in _WORDS}
    kind, kinds = _encode([name for part in parts for name in part.kind])
    group, groups = _encode(words["group"])
    dtype, dtypes = _encode(words["dtype"])
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


def _encode(values: Sequence[str | None]) -> tuple[Int, list[str]]:
    """Encode values as indexes into the list of distinct values, -1 for None."""
    indexes: dict[str, int] = {}
    codes = [-1 if value is None else indexes.setdefault(value, len(indexes)) for value in values]
    return np.array(codes, dtype=np.int64), list(indexes)


def _find_rows(ids: Int, candidates: NDArray[np.bool_], targets: Int) -> Int:
    """Find the candidate rows with the target ids, -1 for none."""
    rows = np.flatnonzero(candidates)
    if not len(rows):
        return np.full(len(targets), -1, dtype=np.int64)
    order = rows[np.argsort(ids[rows], kind="stable")]
    positions = np.minimum(np.searchsorted(ids[order], targets), len(order) - 1)
    return np.where(ids[order][positions] == targets, order[positions], -1)


def _words(columns: Mapping[str, Any], name: str, rows: Int) -> list[str | None]:
    strings = columns[name]
    values = [*strings.values, None]
    return [values[code] for code in np.append(strings.codes, -1)[rows].tolist()]
