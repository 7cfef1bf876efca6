"""What a node's spool becomes in its run: tables, process manifests, status.

Both the monitor, every few seconds, and `stepscope recover`, once, write through this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import duckdb
import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.monitor.drain import ProcessLogs, SpoolDrain
from stepscope.monitor.exchange import Exchange
from stepscope.monitor.masking import mask, mask_text
from stepscope.schema import (
    TABLES,
    DataLoaderWorkerFact,
    JobState,
    JobStatus,
    NodeInfo,
    ProcessInfo,
    VersionsFact,
    decode_facts,
)
from stepscope.spool import SpoolTree
from stepscope.store import RunReader, RunWriter, open_run


class NodeRecording:
    """One node's part of a run, while it is being written.

    Args:
        location: the run, which exists.
        info: the node; its clock anchors define the node's epoch times.
        tree: the spool to drain.
    """

    def __init__(self, location: str, info: NodeInfo, tree: SpoolTree) -> None:
        self.info = info
        self._writer = RunWriter(location, info.node)
        self._reader = open_run(location)
        self._compactor = _Compactor(location, info.node)
        self.drain = SpoolDrain(
            tree,
            node=info.node,
            epoch_offset_ns=info.clock_anchor_epoch_ns - info.clock_anchor_monotonic_ns,
            stored=_StoredSequences(self._reader),
        )

    def put_node(self) -> None:
        """Write the node's manifest."""
        self._writer.put_node(self.info)

    def put_status(self, status: JobStatus) -> None:
        """Write the job's status on this node."""
        self._writer.put_status(status)

    def flush(self, *, final: bool = False) -> int:
        """Move everything new from the spool into the run; returns the number of rows.

        Args:
            final: every process is over.

        Raises:
            OSError: the run cannot be written; the spool keeps what was not stored.
        """
        try:
            return self._flush(final=final)
        except duckdb.Error as error:  # what was read back is damaged, or memory ran out
            raise OSError(str(error)) from error

    def close(self) -> None:
        """Wait for what goes on beside; DuckDB must not be at work when the process ends."""
        self._compactor.join()

    def _flush(self, *, final: bool) -> int:
        moved = 0
        for table, rows in self.drain.collect(final=final).items():
            if rows:
                moved += self._writer.append(table, self.drain.columns(table, rows))
                self.drain.commit(rows)
        for process in self.drain.processes.values():
            if process.changed:
                self._writer.put_process(_process_info(process, self.info.node))
                process.changed = False
        self.drain.forget_ended()
        if not final:
            self._compactor.start()
        return moved


class _Compactor:
    """Merges small segments on a thread of its own: a wide merge takes longer than a sample."""

    def __init__(self, location: str, node: str) -> None:
        self._location = location
        self._node = node
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Merge what can be merged, unless that is going on already."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for a merge under way: DuckDB must not be inside one when the process ends."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with RunWriter(self._location, self._node) as writer:
                for table in TABLES:
                    writer.compact(table)
        except OSError:  # the appends of the next flush meet the same trouble and report it
            pass


class _StoredSequences:
    """Asks the store, once per table, which records of the spool it holds already."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._empty = {t: not reader.has(t) for t in ("spans", "stacks", "scalars", "metrics")}

    def __call__(
        self, table: str, process: str, log: str, first: int, count: int
    ) -> NDArray[np.int64]:
        if self._empty[table]:  # what this very process stores, it remembers itself
            return np.empty(0, dtype=np.int64)
        held = self._reader.table(
            table,
            columns=["seq"],
            where="process = ? AND log = ? AND seq >= ? AND seq < ?",
            parameters=(process, log, first, first + count),
        )
        return np.asarray(held["seq"], dtype=np.int64)


def final_status(status: JobStatus, exchange: Exchange, *, notes: Iterable[str] = ()) -> JobStatus:
    """How the job ended, from what the launcher left behind."""
    job_exit, stop = exchange.read_exit(), exchange.read_stop()
    common: dict[str, Any] = {
        "heartbeat_ns": time.time_ns(),
        "started_ns": status.started_ns,
        "pid": status.pid,
        "monitor_pid": status.monitor_pid,
        "notes": list(notes),
    }
    if job_exit is None:
        return JobStatus(
            state=JobState.FAILED,
            ended_ns=status.heartbeat_ns,
            reason="the job and stepscope's launcher both vanished; nobody saw an exit status",
            **common,
        )
    if stop is not None:
        state, reason = JobState.STOPPED, stop.reason
    elif job_exit.exit_code == 0:
        state, reason = JobState.COMPLETED, None
    elif job_exit.signal is not None:
        state, reason = JobState.FAILED, f"signal {job_exit.signal} ended the job"
    else:
        state, reason = JobState.FAILED, f"the job exited with status {job_exit.exit_code}"
    return JobStatus(
        state=state,
        ended_ns=job_exit.ended_ns,
        exit_code=job_exit.exit_code,
        signal=job_exit.signal,
        reason=reason,
        **common,
    )


def _process_info(process: ProcessLogs, node: str) -> ProcessInfo:
    described = process.description
    versions = {"python": described["python"]} if "python" in described else {}
    for fact in decode_facts(process.facts, VersionsFact):
        versions.update({k: v for k, v in msgspec.to_builtins(fact).items() if k != "fact"})
    is_worker = bool(decode_facts(process.facts, DataLoaderWorkerFact))
    return ProcessInfo(
        process=process.name,
        node=node,
        pid=process.pid,
        parent_pid=described.get("parent_pid", 0),
        role="dataloader_worker" if is_worker else described.get("role", "main"),
        rank=described.get("rank"),
        local_rank=described.get("local_rank"),
        world_size=described.get("world_size"),
        started_ns=described.get("started_ns", 0),
        ended_ns=time.time_ns() if process.over else None,
        command=mask(described.get("command", [])),
        versions=versions,
        facts=[_masked(fact) for fact in process.facts if fact.get("fact") != "versions"],
        notes=process.notes,
        dropped_count=sum(process.dropped.values()),
    )


def _masked(fact: dict[str, Any]) -> dict[str, Any]:
    """A line of the user's source may hold a secret."""
    return {**fact, "text": mask_text(fact["text"])} if "text" in fact else fact
