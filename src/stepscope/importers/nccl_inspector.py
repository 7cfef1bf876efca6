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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers.content import read_content, read_head
from stepscope.importers.results import (
    NCCL_INSPECTOR,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
    ignore_progress,
)
from stepscope.quantities import count_of
from stepscope.schema import (
    INSPECTOR_LOG,
    MALFORMED_JSON,
    UNTIMED_INSPECTOR_LOG,
    ImportedFact,
    ProcessInfo,
)
from stepscope.store import DictColumn, RunWriter

VERSION_PREFIX = "v4."
UNKNOWN_RANKS = "the ranks are unknown: no communicator of the largest size has all processes"
TRANSFERS = ("send", "recv")
_LINE = re.compile(rb'\s*\{\s*"header"\s*:.{0,2000}"inspector_output_format_version"', re.DOTALL)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int


class _Metadata(msgspec.Struct):
    inspector_output_format_version: str
    dump_timestamp_us: int
    hostname: str
    pid: int


class _Kernel(msgspec.Struct):
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class _Times(msgspec.Struct):
    coll_start_ts: int = 0
    kernel_events: list[_Kernel] = []


class _Performance(msgspec.Struct):
    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: float
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


class NcclInspectorImporter:
    """Importer of logs; see `registry.Importer`."""

    def can_read(self, path: Path) -> bool:
        """Return True for a file that begins like a log."""
        return bool(_LINE.match(read_head(path)))

    def import_files(
        self,
        files: Sequence[Path],
        run: Path,
        node: str,
        progress: ProgressCallback = ignore_progress,
    ) -> list[Result]:
        """Import logs, from all of which the ranks follow; see `registry.Importer`."""
        results: list[Result] = []
        records: list[_Record] = []
        for index, path in enumerate(files):
            try:
                parsed, damaged_count = _parse(read_content(path))
            except (OSError, EOFError, zlib.error) as error:
                results.append(Refused(path, f"{path} cannot be read: {error}."))
            except ValueError as error:
                results.append(Refused(path, f"{path} was not imported: {error}."))
            else:
                records += parsed
                lost = f"{count_of(damaged_count, 'damaged line')}" if damaged_count else None
                results.append(
                    Recorded(
                        name=path.name, form=NCCL_INSPECTOR, event_count=len(parsed), lost=lost
                    )
                )
            progress(index, 1.0)
        if records:
            ranks = _find_ranks(records)
            with RunWriter(run, node) as writer:
                _store(writer, records, ranks)
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
        except MALFORMED_JSON:
            damaged_count += 1
            continue
        version = record.metadata.inspector_output_format_version
        if not version.startswith(VERSION_PREFIX):
            raise ValueError(f"it has version {version}; this version reads {VERSION_PREFIX}x")
        records.append(record)
    if not records:
        raise ValueError("it has no complete line of NCCL Inspector")
    return records, damaged_count


def _note_unknown_ranks(result: Result) -> Result:
    if not isinstance(result, Recorded):
        return result
    return replace(result, lost="; ".join(filter(None, [result.lost, UNKNOWN_RANKS])))


def _store(
    writer: RunWriter, records: Sequence[_Record], ranks: dict[tuple[str, int], int]
) -> None:
    members = _find_members(records, ranks)
    by_process: dict[tuple[str, int], list[_Record]] = {}
    for record in records:
        by_process.setdefault(record.process, []).append(record)
    for (host, pid), rows in by_process.items():
        rank = ranks.get((host, pid))
        process = f"inspector-{pid if rank is None else rank}-{secrets.token_hex(4)}"
        columns = _make_columns(rows, process, host, rank, members)
        writer.append("collective_calls", columns)
        writer.put_process(
            ProcessInfo(
                process=process,
                node=host,
                pid=pid,
                parent_pid=0,
                role="main",
                rank=rank,
                started_ns=int(columns["t_ns"].min()),
                ended_ns=int(columns["t_ns"].max()),
                facts=[msgspec.to_builtins(ImportedFact(form=NCCL_INSPECTOR))],
            )
        )


def _find_ranks(records: Iterable[_Record]) -> dict[tuple[str, int], int]:
    """Find the rank of each process: that in a communicator of the largest size that has all of the
    processes, each at a rank of its own. Without one the ranks are unknown, and the result empty.
    """
    positions: dict[tuple[int, str], dict[tuple[str, int], int]] = {}
    for record in records:
        header = record.header
        positions.setdefault((header.n_ranks, header.id), {})[record.process] = header.rank
    processes = {process for ranks in positions.values() for process in ranks}
    largest = max(size for size, _ in positions)
    for (size, _), ranks in positions.items():
        if size == largest and ranks.keys() == processes and len({*ranks.values()}) == len(ranks):
            return ranks
    return {}


def _find_members(
    records: Iterable[_Record], ranks: dict[tuple[str, int], int]
) -> dict[str, str | None]:
    """Find the ranks of each communicator in the job, if they are known and the log of each of them
    is there."""
    by_group: dict[str, dict[int, int]] = {}
    sizes: dict[str, int] = {}
    for record in records if ranks else ():
        group = record.header.id
        by_group.setdefault(group, {})[record.header.rank] = ranks[record.process]
        sizes[group] = record.header.n_ranks
    return {
        group: ",".join(str(rank) for _, rank in sorted(ranks_by_position.items()))
        if len(ranks_by_position) == sizes[group]
        else None
        for group, ranks_by_position in by_group.items()
    }


def _make_columns(
    rows: Sequence[_Record],
    process: str,
    host: str,
    rank: int | None,
    members: dict[str, str | None],
) -> dict[str, Any]:
    count = len(rows)
    kinds = [_name_kind(row.coll_perf.coll) for row in rows]
    sizes = DictColumn.encode(str(row.coll_perf.coll_msg_size_bytes) for row in rows)
    no_text = DictColumn.constant("", count)
    written_us = [row.metadata.dump_timestamp_us for row in rows]
    return {
        "node": DictColumn.constant(host, count),
        "process": DictColumn.constant(process, count),
        "log": DictColumn.encode(
            INSPECTOR_LOG if row.called_us else UNTIMED_INSPECTOR_LOG for row in rows
        ),
        "seq": np.arange(count, dtype=np.int64),
        "t_ns": 1000
        * np.array(
            [
                row.called_us or written - round(row.coll_perf.coll_exec_time_us)
                for row, written in zip(rows, written_us, strict=True)
            ],
            dtype=np.int64,
        ),
        "rank": np.ma.MaskedArray(np.full(count, rank or 0, dtype=np.int32), mask=rank is None),
        "group": DictColumn.encode(row.header.id for row in rows),
        "group_description": DictColumn.encode([None] * count),
        "group_ranks": DictColumn.encode(members.get(row.header.id) for row in rows),
        "kind": DictColumn.encode(kinds),
        "backend": DictColumn.constant("nccl", count),
        "number": np.array([row.coll_perf.coll_sn for row in rows], dtype=np.int64),
        "is_p2p": np.array([kind in TRANSFERS for kind in kinds], dtype=np.int16),
        "input_sizes": sizes,
        "input_dtypes": DictColumn.constant("Byte", count),
        "output_sizes": no_text,
        "output_dtypes": no_text,
        "started_ns": _mask_zero([row.started_us for row in rows]),
        "ended_ns": _mask_zero([row.ended_us for row in rows]),
        "state": DictColumn.constant("ended", count),
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
