"""Importer of the logs of NCCL Inspector, the profiler plugin of NCCL: a JSON object per line and
collective (https://github.com/NVIDIA/nccl/tree/master/ext-profiler/inspector).

A line names the communicator and the rank within it. The rank in the job is that in the largest
communicator, if that has all processes. Only verbose logs have the times of the calls; of others,
the time at which a line was written is known, which tells nothing about who was late.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from stepscope import quantities, schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Result,
    read_content,
    refuse,
)

FORMAT = Format(
    name="NCCL Inspector",
    tables=("collective_calls",),
    file="log",
    event="collective",
    sentence="{files} of NCCL Inspector, {events} in {run}",
    view="distributed",
)
VERSION_PREFIX = "v4."
UNKNOWN_RANKS = "the ranks are unknown: no communicator of the largest size has all processes"
TRANSFERS = ("send", "recv")
_LINE = re.compile(rb'\s*\{\s*"header"\s*:.{0,2000}"inspector_output_format_version"', re.DOTALL)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_MAX_INT64 = np.iinfo(np.int64).max
_Rank = Annotated[int, msgspec.Meta(ge=0, le=np.iinfo(np.int32).max)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64)]
_Microseconds = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64 // 1000)]
"""Time that the run can hold in nanoseconds; a line with another one is damaged."""
_Duration = Annotated[float, msgspec.Meta(ge=0, le=2.0**52)]
"""Microseconds, up to 143 years, which is exact."""


class _Header(msgspec.Struct):
    id: str
    rank: _Rank
    n_ranks: _Rank


class _Metadata(msgspec.Struct):
    inspector_output_format_version: str
    dump_timestamp_us: _Microseconds
    hostname: str
    pid: _Number


class _Kernel(msgspec.Struct):
    kernel_start_ts: _Microseconds = 0
    kernel_stop_ts: _Microseconds = 0


class _Times(msgspec.Struct):
    coll_start_ts: _Microseconds = 0
    kernel_events: list[_Kernel] = []


class _Performance(msgspec.Struct):
    coll: str
    coll_sn: _Number
    coll_msg_size_bytes: _Number
    coll_exec_time_us: _Duration
    event_trace_ts: _Times | None = None


class _Record(msgspec.Struct):
    header: _Header
    metadata: _Metadata
    coll_perf: _Performance

    @property
    def process(self) -> tuple[str, int]:
        """Machine and number of the process."""
        return self.metadata.hostname, self.metadata.pid

    @property
    def called_us(self) -> int:
        """Time of the call; 0 if unknown."""
        times = self.coll_perf.event_trace_ts
        return 0 if times is None else times.coll_start_ts

    @property
    def started_us(self) -> int:
        """Start of the first kernel; 0 if unknown."""
        return min((kernel.kernel_start_ts for kernel in self._kernels), default=0)

    @property
    def ended_us(self) -> int:
        """End of the last kernel; 0 if unknown."""
        return max((kernel.kernel_stop_ts for kernel in self._kernels), default=0)

    @property
    def _kernels(self) -> list[_Kernel]:
        times = self.coll_perf.event_trace_ts
        return [] if times is None else times.kernel_events


_Process = tuple[str, int]
"""Machine and number of a process."""
_Communicator = tuple[int, str]
"""Size and identifier of a communicator."""


class NcclInspectorImporter:
    """Importer of logs; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins like a log."""
        return bool(_LINE.match(head))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import logs, from all of which the ranks follow; see `registry.Importer`."""
        results: list[Result] = []
        calls = _Calls()
        for index, path in enumerate(files):
            try:
                records, damaged_count = _parse(read_content(path))
            except (OSError, EOFError, zlib.error, ValueError) as error:
                results.append(refuse(path, error))
            else:
                calls.add(records)
                lost = (
                    f"{quantities.count_of(damaged_count, 'damaged line')}"
                    if damaged_count
                    else None
                )
                results.append(
                    Recorded(name=path.name, form=FORMAT.name, event_count=len(records), lost=lost)
                )
            progress(index, 1.0)
        if calls.columns:
            ranks = calls.find_ranks()
            with store.RunWriter(run, node) as writer:
                _store(writer, calls, ranks)
            if not ranks:
                results = [_note_unknown_ranks(result) for result in results]
        return results


def _parse(content: bytes) -> tuple[list[_Record], int]:
    """Parse the lines of a log; return them, and the number of those that are damaged.

    Raises:
        ValueError: it has no readable line, or is of another version.
    """
    decoder = msgspec.json.Decoder(_Record)
    records, damaged_count = [], 0
    for line in content.splitlines():
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except schema.MALFORMED_JSON:
            damaged_count += 1
            continue
        version = record.metadata.inspector_output_format_version
        if not version.startswith(VERSION_PREFIX):
            raise ValueError(f"it has version {version}; this version reads {VERSION_PREFIX}x")
        records.append(record)
    if not records:
        raise ValueError("it has no complete line of NCCL Inspector")
    return records, damaged_count


class _Calls:
    """Calls of all logs: columns, and the positions of processes in communicators."""

    def __init__(self) -> None:
        self.columns: dict[_Process, list[dict[str, Any]]] = {}
        """Columns of the calls of each process, one item per log."""
        self._positions: dict[_Communicator, dict[_Process, int]] = {}

    def add(self, records: Sequence[_Record]) -> None:
        """Add the lines of a log."""
        by_process: dict[_Process, list[_Record]] = {}
        for record in records:
            header, process = record.header, record.process
            by_process.setdefault(process, []).append(record)
            self._positions.setdefault((header.n_ranks, header.id), {})[process] = header.rank
        for process, rows in by_process.items():
            self.columns.setdefault(process, []).append(_make_columns(rows))

    def find_ranks(self) -> dict[_Process, int]:
        """Find the rank of each process: that in a communicator of the largest size that has all of
        the processes, each at a rank of its own. Without one the ranks are unknown, and the result
        is empty."""
        largest = max(size for size, _ in self._positions)
        for (size, _), ranks in self._positions.items():
            is_common = ranks.keys() == self.columns.keys()
            if size == largest and is_common and len({*ranks.values()}) == len(ranks):
                return ranks
        return {}

    def find_members(self, ranks: Mapping[_Process, int]) -> dict[str | None, str]:
        """Find the ranks of each communicator in the job, if they are known and the log of each of
        them is there."""
        members: dict[str | None, str] = {}
        for (size, group), positions in self._positions.items() if ranks else ():
            by_position = {position: ranks[process] for process, position in positions.items()}
            if len(by_position) == size:
                members[group] = ",".join(str(rank) for _, rank in sorted(by_position.items()))
        return members


def _note_unknown_ranks(result: Result) -> Result:
    if not isinstance(result, Recorded):
        return result
    return replace(result, lost="; ".join(filter(None, [result.lost, UNKNOWN_RANKS])))


def _store(writer: store.RunWriter, calls: _Calls, ranks: Mapping[_Process, int]) -> None:
    members = calls.find_members(ranks)
    for (host, pid), parts in calls.columns.items():
        rank = ranks.get((host, pid))
        process = f"inspector-{pid if rank is None else rank}-{secrets.token_hex(4)}"
        first = 0
        for columns in parts:
            count = len(columns["t_ns"])
            groups = columns["group"].decode()
            constants = {
                "node": store.DictColumn.constant(host, count),
                "process": store.DictColumn.constant(process, count),
                "seq": np.arange(first, first + count, dtype=np.int64),
                "rank": np.ma.MaskedArray(
                    np.full(count, rank or 0, dtype=np.int32), mask=rank is None
                ),
                "group_ranks": store.DictColumn.encode(members.get(group) for group in groups),
            }
            writer.append("collective_calls", columns | constants)
            first += count
        writer.put_process(
            schema.ProcessInfo(
                process=process,
                node=host,
                pid=pid,
                parent_pid=0,
                role="main",
                rank=rank,
                started_ns=min(int(columns["t_ns"].min()) for columns in parts),
                ended_ns=max(int(columns["t_ns"].max()) for columns in parts),
                facts=[msgspec.to_builtins(schema.ImportedFact(form=FORMAT.name))],
            )
        )


def _make_columns(rows: Sequence[_Record]) -> dict[str, Any]:
    """Make the columns of a process that its log tells."""
    count = len(rows)
    kinds = [_name_kind(row.coll_perf.coll) for row in rows]
    no_text = store.DictColumn.constant("", count)
    return {
        "log": store.DictColumn.encode(
            schema.INSPECTOR_LOG if row.called_us else schema.UNTIMED_INSPECTOR_LOG for row in rows
        ),
        "t_ns": 1000
        * np.array(
            [
                row.called_us
                or row.metadata.dump_timestamp_us - round(row.coll_perf.coll_exec_time_us)
                for row in rows
            ],
            dtype=np.int64,
        ),
        "group": store.DictColumn.encode(row.header.id for row in rows),
        "group_description": store.DictColumn.constant(None, count),
        "kind": store.DictColumn.encode(kinds),
        "backend": store.DictColumn.constant("nccl", count),
        "number": np.array([row.coll_perf.coll_sn for row in rows], dtype=np.int64),
        "is_p2p": np.array([kind in TRANSFERS for kind in kinds], dtype=np.int16),
        "input_sizes": store.DictColumn.encode(
            str(row.coll_perf.coll_msg_size_bytes) for row in rows
        ),
        "input_dtypes": store.DictColumn.constant("Byte", count),
        "output_sizes": no_text,
        "output_dtypes": no_text,
        "started_ns": _mask_zero([row.started_us for row in rows]),
        "ended_ns": _mask_zero([row.ended_us for row in rows]),
        "state": store.DictColumn.constant("ended", count),
    }


def _name_kind(name: str) -> str:
    """Name a kind as PyTorch does.

    >>> _name_kind("AllReduce"), _name_kind("ReduceScatter")
    ('all_reduce', 'reduce_scatter')
    """
    return _WORD.sub("_", name).lower()


def _mask_zero(times_us: Sequence[int]) -> Any:
    times = 1000 * np.array(times_us, dtype=np.int64)
    return np.ma.MaskedArray(times, mask=times == 0)
