"""Content of a dump of PyTorch's flight recorder, as the monitor and the importer read it.

Format: `FlightRecorder::dump` of PyTorch
(https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/FlightRecorder.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from stepscope import schema, store

MAJOR_VERSION = 2
"""Major version of the format; minor versions add members."""
ENDED, SCHEDULED, STARTED = "ended", "scheduled", "started"
_PEER = re.compile(r":(?:send \d+->|recv \d+<-)(\d+)$")
"""Other rank in the name of a transfer between two ranks, such as `nccl:recv 0<-1`."""


class CallFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Frame of the stack of a call; only in pickles."""

    name: str
    filename: str
    line: int


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One collective in a dump."""

    record_id: int
    process_group: tuple[str, str]
    """Name and purpose."""
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    profiling_name: str = ""
    """Backend and kind, such as `gloo:all_reduce`."""
    time_created_ns: int
    """Wall clock, epoch nanoseconds."""
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_sizes: list[list[int]] = []
    output_dtypes: list[str] = []
    state: str = SCHEDULED
    retired: bool = False
    is_p2p: bool = False
    frames: list[CallFrame] = []
    """Stack of the call, innermost first."""

    @property
    def has_ended(self) -> bool:
        """True if it has ended. Backends without a watchdog only tell that it was retired."""
        return self.retired or self.state == "completed"

    @property
    def state_name(self) -> str:
        """Value of the column `state`."""
        if self.has_ended:
            return ENDED
        return STARTED if self.state == "started" else SCHEDULED

    @property
    def kind(self) -> str:
        """Kind of call, without the backend."""
        return self.profiling_name.rpartition(":")[2]

    @property
    def backend(self) -> str | None:
        """Communication backend; None where the name has none."""
        return self.profiling_name.rpartition(":")[0] or None

    @property
    def peer(self) -> int | None:
        """Other rank of a transfer between two ranks, as its group numbers them."""
        match = _PEER.search(self.profiling_name)
        return None if match is None else int(match[1])

    @property
    def number(self) -> int:
        """Number within the group."""
        return self.p2p_seq_id if self.is_p2p else self.collective_seq_id


class _Dump(msgspec.Struct):
    version: str
    entries: list[RecordedCall] = []
    pg_config: dict[str, Any] = {}


class FlightDump(msgspec.Struct, frozen=True, kw_only=True):
    """Content of one dump."""

    version: str
    calls: list[RecordedCall]
    """In the order of their record ids."""
    groups: dict[str, list[int]]
    """Ranks of groups by name, as far as the dump has them."""


def parse_flight_dump(content: Any) -> FlightDump:
    """Convert the plain data of a dump.

    Raises:
        ValueError: it is of another format or version.
    """
    version = content.get("version") if isinstance(content, dict) else None
    if not isinstance(version, str):
        raise ValueError("it has no version, so it is no dump of PyTorch's flight recorder")
    if not version.startswith(f"{MAJOR_VERSION}."):
        raise ValueError(f"it has version {version}; this version reads {MAJOR_VERSION}.x")
    try:
        dump = msgspec.convert(content, _Dump, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"it is no dump of version {version} ({error})") from error
    calls = sorted(dump.entries, key=lambda call: call.record_id)
    return FlightDump(version=version, calls=calls, groups=_parse_groups(dump.pg_config))


def _parse_groups(configuration: Mapping[str, Any]) -> dict[str, list[int]]:
    groups = {}
    for key, group in configuration.items():
        text = group.get("ranks") if isinstance(group, dict) else None
        ranks = [int(number) for number in re.findall(r"\d+", text)] if text else []
        if key and ranks:
            groups[key] = ranks
    return groups


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
        "group": store.DictColumn.encode(call.process_group[0] for call in calls),
        "group_description": store.DictColumn.encode(
            call.process_group[1] or None for call in calls
        ),
        "group_ranks": store.DictColumn.encode(ranks.get(call.process_group[0]) for call in calls),
        "kind": store.DictColumn.encode(call.kind for call in calls),
        "backend": store.DictColumn.encode(call.backend for call in calls),
        "number": np.array([call.number for call in calls], dtype=np.int64),
        "is_p2p": np.array([call.is_p2p for call in calls], dtype=np.int16),
        "input_sizes": store.DictColumn.encode(join_sizes(call.input_sizes) for call in calls),
        "input_dtypes": store.DictColumn.encode(";".join(call.input_dtypes) for call in calls),
        "output_sizes": store.DictColumn.encode(join_sizes(call.output_sizes) for call in calls),
        "output_dtypes": store.DictColumn.encode(";".join(call.output_dtypes) for call in calls),
        "started_ns": _shifted([call.time_discovered_started_ns for call in calls], shift_ns),
        "ended_ns": _shifted([call.time_discovered_completed_ns for call in calls], shift_ns),
        "state": store.DictColumn.encode(call.state_name for call in calls),
    }


def make_called_collective(
    call: RecordedCall, groups: Mapping[str, Sequence[int]], shift_ns: int = 0
) -> schema.CalledCollective:
    """Describe a call for the account of a stuck job.

    Args:
        call: the call.
        groups: ranks of process groups by name.
        shift_ns: added to the time of the call.
    """
    group, peer = call.process_group[0], call.peer
    if peer is not None and peer < len(groups.get(group, ())):
        peer = groups[group][peer]
    return schema.CalledCollective(
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
