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
)
from stepscope.intervals import Int
from stepscope.run.traces import Trace, columns_of
from stepscope.store import literal

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


def read_calls(
    traces: Sequence[Trace], communication: CommunicationDefinition = "wide"
) -> list[TraceCalls]:
    """Read the collective calls of each trace.

    Calls are kernels of collectives, or for a rank without any the calls of its host. Facts belong
    to the kernel itself or to the operator that launched it.
    """
    facts = columns_of(traces, "collectives", (*_NUMBERS, *_WORDS))
    kernels = columns_of(
        traces,
        "kernels",
        ("id", "operator", "name", *TIME_COLUMNS),
        condition=_communication(traces, communication),
    )
    kernel_calls = [_kernels(*pair) for pair in zip(kernels, facts, strict=True)]
    traces_without_kernels = [
        trace for trace, calls in zip(traces, kernel_calls, strict=True) if not len(calls.start)
    ]
    host_calls = dict(
        zip(
            [t.trace for t in traces_without_kernels],
            _host_calls(traces_without_kernels),
            strict=True,
        )
    )
    return [host_calls.get(t.trace, d) for t, d in zip(traces, kernel_calls, strict=True)]


@dataclass(slots=True, kw_only=True)
class TraceCalls:
    """Collective calls of one trace; unknown values are None or -1."""

    start: Int
    end: Int
    kind: list[str]
    words: dict[str, list[str | None]]
    numbers: dict[str, Int]


def _communication(traces: Sequence[Trace], definition: CommunicationDefinition) -> str:
    """Build the SQL condition for kernels of collectives."""
    if not traces:
        return "false"
    numbers = [trace.trace for trace in traces]
    rows = traces[0].reader.sql(
        "SELECT DISTINCT name FROM kernels WHERE name IS NOT NULL AND trace IN (SELECT unnest(?))",
        [numbers],
        traces=numbers,
    )
    names = rows["name"]
    matching_names = sorted(filter(traces[0].collectives.predicate(definition), names.tolist()))
    return f"name IN ({', '.join(map(literal, matching_names))})" if matching_names else "false"


def _kernels(kernels: Columns, facts: Columns) -> TraceCalls:
    of_kernel, of_operator = facts["on_device"] == 1, facts["on_device"] == 0
    rows = _find_rows(facts["id"], of_kernel, kernels["id"])
    operator_rows = _find_rows(facts["id"], of_operator, kernels["operator"])
    rows = np.where(rows >= 0, rows, operator_rows)
    names = kernels["name"]
    kind = [names.values[code] or "" for code in names.codes.tolist()]
    words = {word: _words(facts, word, rows) for word in _WORDS}
    return TraceCalls(
        start=kernels["start_ns"],
        end=kernels["start_ns"] + kernels["duration_ns"],
        kind=[
            classify_collective(fact or kernel_name)
            for fact, kernel_name in zip(words["name"], kind, strict=True)
        ],
        words=words,
        numbers={n: np.append(facts[n], -1)[rows].astype(np.int64) for n in _NUMBERS},
    )


def _host_calls(traces: Sequence[Trace]) -> list[TraceCalls]:
    """Read collectives of hosts: annotations of the library, else its operators."""
    marked = columns_of(
        traces, "annotations", ("name", *TIME_COLUMNS), condition=f"on_device = 0 AND ({_HOST})"
    )
    operators = columns_of(traces, "operators", ("name", *TIME_COLUMNS), condition=_HOST)
    return [
        _host_part(annotations if len(annotations["start_ns"]) else calls)
        for annotations, calls in zip(marked, operators, strict=True)
    ]


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
