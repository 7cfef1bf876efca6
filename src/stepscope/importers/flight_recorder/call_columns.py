"""Rows of the table `collective_calls`, and calls as the account of a stuck job has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepscope.importers.flight_recorder.dump import RecordedCall
from stepscope.schema import CalledCollective
from stepscope.store import DictColumn


def make_call_columns(
    calls: Sequence[RecordedCall],
    *,
    rank: int | None,
    groups: Mapping[str, Sequence[int]],
    shift_ns: int = 0,
) -> dict[str, Any]:
    """Make the columns of calls of one process, except those of their origin.

    Args:
        calls: the calls.
        rank: rank of the process.
        groups: ranks of process groups by name.
        shift_ns: added to the times of the calls, which are those of the wall clock.
    """
    ranks = {name: ",".join(map(str, members)) for name, members in groups.items() if members}
    return {
        "t_ns": np.array([call.time_created_ns for call in calls], dtype=np.int64) + shift_ns,
        "rank": _nullable([rank] * len(calls), np.int32),
        "group": DictColumn.encode(call.process_group[0] for call in calls),
        "group_description": DictColumn.encode(call.process_group[1] or None for call in calls),
        "group_ranks": DictColumn.encode(ranks.get(call.process_group[0]) for call in calls),
        "kind": DictColumn.encode(call.kind for call in calls),
        "backend": DictColumn.encode(call.backend for call in calls),
        "number": np.array([call.number for call in calls], dtype=np.int64),
        "is_p2p": np.array([call.is_p2p for call in calls], dtype=np.int16),
        "input_sizes": DictColumn.encode(join_sizes(call.input_sizes) for call in calls),
        "input_dtypes": DictColumn.encode(";".join(call.input_dtypes) for call in calls),
        "output_sizes": DictColumn.encode(join_sizes(call.output_sizes) for call in calls),
        "output_dtypes": DictColumn.encode(";".join(call.output_dtypes) for call in calls),
        "started_ns": _shifted([call.time_discovered_started_ns for call in calls], shift_ns),
        "ended_ns": _shifted([call.time_discovered_completed_ns for call in calls], shift_ns),
        "state": DictColumn.encode(call.state_name for call in calls),
    }


def make_called_collective(
    call: RecordedCall, groups: Mapping[str, Sequence[int]], shift_ns: int = 0
) -> CalledCollective:
    """Describe a call for the account of a stuck job.

    Args:
        call: the call.
        groups: ranks of process groups by name.
        shift_ns: added to the time of the call.
    """
    group, peer = call.process_group[0], call.peer
    if peer is not None and peer < len(groups.get(group, ())):
        peer = groups[group][peer]
    return CalledCollective(
        group=group,
        number=call.number,
        kind=call.kind if peer is None else call.kind.partition(" ")[0],
        sizes=join_sizes(call.input_sizes or call.output_sizes),
        dtypes=";".join(call.input_dtypes or call.output_dtypes),
        has_ended=call.has_ended,
        t_ns=call.time_created_ns + shift_ns,
        peer=peer,
    )


def join_sizes(sizes: Sequence[Sequence[int]]) -> str:
    """Write sizes as text.

    >>> join_sizes([[64, 32], [8]])
    '64x32;8'
    """
    return ";".join("x".join(map(str, size)) for size in sizes)


def _shifted(times: Sequence[int | None], shift_ns: int) -> Any:
    return _nullable([t + shift_ns if t else None for t in times], np.int64)


def _nullable(values: Sequence[int | None], dtype: Any) -> Any:
    mask = np.array([value is None for value in values], dtype=np.bool_)
    return np.ma.MaskedArray(np.array([value or 0 for value in values], dtype=dtype), mask=mask)
