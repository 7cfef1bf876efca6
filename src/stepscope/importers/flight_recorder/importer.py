"""Importer of dumps of PyTorch's flight recorder, as pickles or JSON.

NCCL's watchdog writes one pickle per rank when a collective has timed out
(TORCH_NCCL_DUMP_ON_TIMEOUT). Its opcodes are examined before anything of it is read: see
`plain_pickle`. The calls become rows of `collective_calls`, and the last ones an account of the
ranks, from which `stepscope diagnose` names those that have not arrived.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Result,
    read_content,
    refuse,
)
from stepscope.importers.flight_recorder.dump import (
    FlightDump,
    RecordedCall,
    make_call_columns,
    make_called_collective,
    parse_flight_dump,
)
from stepscope.importers.memory_snapshot import is_memory_snapshot
from stepscope.importers.plain_pickle import PICKLE, check_expanded, check_plain, load_plain

FORMAT = Format(
    name="flight recorder",
    tables=("collective_calls",),
    file="dump",
    event="collective",
    sentence="{files} of the flight recorder, {events} in {run}",
    view="distributed",
)
LOG = "import"
MAX_VALUES = 10_000_000
"""Largest number of values in a pickle, which take 1 GB: a recorder of 20,000 calls with stacks of
30 frames has 2 million."""
MAX_CALLS = 48
"""Latest calls of a rank in the account."""
_JSON = re.compile(rb'\s*\{.{0,3000}"(collective_seq_id|comm_lib_version|pg_status)"', re.DOTALL)
_TRAILING_NUMBER = re.compile(r"(\d+)(?:\.\w+)*$")
"""Rank at the end of a name such as nccl_trace_rank_3, as the watchdog names its files."""


class FlightRecorderImporter:
    """Importer of dumps; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a pickle of anything but memory, and for a file that begins like a dump
        in JSON."""
        is_pickle = PICKLE.match(head) and not is_memory_snapshot(head)
        return bool(is_pickle or _JSON.match(head))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import dumps one after the other; see `registry.Importer.import_files`."""
        results: list[Result] = []
        dumps: list[tuple[int, FlightDump]] = []
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                try:
                    dump = _read(path)
                except (OSError, EOFError, zlib.error, ValueError) as error:
                    results.append(refuse(path, error))
                else:
                    rank = _find_rank(path)
                    _store(writer, node, rank, dump)
                    if rank is not None:
                        dumps.append((rank, dump))
                    count = len(dump.calls)
                    results.append(Recorded(name=path.name, form=FORMAT.name, event_count=count))
                progress(index, 1.0)
            if dumps:
                writer.put_document(schema.STUCK, node, _make_account(node, dumps))
        return results


def _read(path: Path) -> FlightDump:
    """Read a file.

    Raises:
        OSError, EOFError, zlib.error: it cannot be read.
        ValueError: it is no complete dump, or holds more than plain data.
    """
    content = read_content(path)
    if PICKLE.match(content):
        check_plain(content, max_values=MAX_VALUES)
        data = load_plain(content)
        check_expanded(data, MAX_VALUES)
        return parse_flight_dump(data)
    try:
        return parse_flight_dump(msgspec.json.decode(content))
    except schema.MALFORMED_JSON as error:
        raise ValueError(f"it is cut or damaged ({error})") from error


def _find_rank(path: Path) -> int | None:
    rank = schema.rank_in_name(path.name)
    match = _TRAILING_NUMBER.search(path.name)
    return rank if rank is not None or match is None else int(match[1])


def _store(writer: store.RunWriter, node: str, rank: int | None, dump: FlightDump) -> None:
    count = len(dump.calls)
    name = "unknown" if rank is None else str(rank)
    process = f"flight-{name}-{secrets.token_hex(4)}"
    rows: dict[str, Any] = {
        "node": store.DictColumn.constant(node, count),
        "process": store.DictColumn.constant(process, count),
        "log": store.DictColumn.constant(LOG, count),
        "seq": np.array([call.record_id for call in dump.calls], dtype=np.int64),
        **make_call_columns(dump.calls, rank=rank, groups=dump.groups),
    }
    writer.append("collective_calls", rows)
    times = [call.time_created_ns for call in dump.calls]
    writer.put_process(
        schema.ProcessInfo(
            process=process,
            node=node,
            pid=0,
            parent_pid=0,
            role="main",
            rank=rank,
            started_ns=min(times, default=0),
            ended_ns=max(times, default=0),
            facts=[msgspec.to_builtins(schema.ImportedFact(form=FORMAT.name))],
        )
    )


def _make_account(node: str, dumps: Sequence[tuple[int, FlightDump]]) -> schema.StuckNode:
    """Make the account of the ranks when they were dumped."""
    calls = [call for _, dump in dumps for call in dump.calls]
    last_ns = max((call.time_created_ns for call in calls), default=0)
    return schema.StuckNode(
        node=node,
        since_ns=last_ns,
        seen_ns=last_ns,
        has_ended=True,
        limit_ns=0,
        groups={name: ranks for _, dump in dumps for name, ranks in dump.groups.items()},
        descriptions={call.process_group[0]: call.process_group[1] for call in calls},
        ranks=[_describe_rank(rank, dump) for rank, dump in dumps],
    )


def _describe_rank(rank: int, dump: FlightDump) -> schema.RankAccount:
    last = dump.calls[-1] if dump.calls else None
    return schema.RankAccount(
        rank=rank,
        process="",
        pid=0,
        state=schema.RankState.ANSWERED,
        frames=[] if last is None else _make_frames(last),
        calls=[
            make_called_collective(call, dump.groups)
            for call in dump.calls[-MAX_CALLS:]
            if not call.is_p2p or call.peer is not None
        ],
        is_last_read=True,
    )


def _make_frames(call: RecordedCall) -> list[schema.StackFrame]:
    return [
        schema.StackFrame(file=frame.filename, line=frame.line, function=frame.name)
        for frame in call.frames
    ]
