"""Writer of a node's part of a run: tables, process manifests, status.

Used by the monitor, every few seconds, and by `stepscope recover`, once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

import _duckdb as duckdb
import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import budget, errors, masking, schema, spool, store
from stepscope.monitor.config import Handshake, JobExit, MonitorConfig, StopSignal
from stepscope.monitor.deaths import (
    FAILURE_STATUS,
    MAX_FAILURE_AGE_NS,
    DeathRecorder,
    find_last_failure,
)
from stepscope.monitor.drain import TABLES as DRAINED_TABLES, SpoolDrain
from stepscope.monitor.hang_watch import HangWatch
from stepscope.monitor.incarnations import IncarnationCounter
from stepscope.monitor.process_logs import ProcessLogs
from stepscope.monitor.registration import LeaseKeeper
from stepscope.monitor.samplers.processes import JobTree
from stepscope.monitor.stuck_watch import StuckWatch
from stepscope.monitor.uploading import Uploader
from stepscope.quantities import memory

MAX_TRIES = 5
RETRY_S = 0.5


class NodeWriter:
    """Writer of one node's part of a run.

    Args:
        location: location of the run, which exists.
        info: the node; its clock anchors define the node's epoch times.
        tree: spool to drain.
        max_bytes: size of the node's recorded tables from which the oldest are rounded; None for
            no limit.
        launcher: launcher of the node in a run that several nodes write.
        keeps_lease: the job is running, so that this node may evaluate its rules.
        uploader: uploads the run to an object store; None if it stays where it is.
    """

    def __init__(
        self,
        location: str,
        info: schema.NodeInfo,
        tree: spool.SpoolTree,
        *,
        max_bytes: int | None = None,
        launcher: schema.LauncherInfo | None = None,
        keeps_lease: bool = True,
        uploader: Uploader | None = None,
    ) -> None:
        self._uploader = uploader
        self.info = info
        self._is_node_stored = False
        self._writer = store.RunWriter(location, info.node)
        self._reader = store.open_run(location)
        self._keeps_output = self._reader.info.options.get("error_output", True)
        self._deaths = DeathRecorder(keeps_output=self._keeps_output)
        self._spool = tree.root
        self._compactor = _Compactor(location, info.node, max_bytes)
        self._incarnations = IncarnationCounter(
            location, info, launcher, self._reader.processes() if self._reader.statuses() else ()
        )
        is_shared = launcher is not None and keeps_lease
        self._lease = LeaseKeeper(location, info.node) if is_shared else None
        self.drain = SpoolDrain(
            tree,
            node=info.node,
            epoch_offset_ns=info.epoch_offset_ns,
            stored=_StoredSequences(self._reader),
        )

    @classmethod
    def of_monitor(
        cls,
        config: MonitorConfig,
        info: schema.NodeInfo,
        tree: spool.SpoolTree,
        uploader: Uploader | None,
    ) -> Self:
        """Make the writer of the monitor of a running job."""
        writer = cls(
            config.run,
            info,
            tree,
            max_bytes=config.max_run_bytes,
            launcher=config.launcher,
            uploader=uploader,
        )
        writer._deaths = DeathRecorder(config, keeps_output=writer._keeps_output)
        return writer

    @property
    def notes(self) -> list[str]:
        """Sentences about the size of the run, about ranks, clocks and the object store."""
        notes = list(self._incarnations.notes)
        if self._uploader is not None:
            notes += self._uploader.notes
        if self._lease is not None and self._lease.note is not None:
            notes.append(self._lease.note)
        limit_bytes = self._compactor.max_bytes
        if limit_bytes is None or not self._compactor.is_above_limit:
            return notes
        return [
            *notes,
            f"the run is above its limit of {memory(limit_bytes)} (--max-run-size), because "
            "nothing is left to round",
        ]

    def put_node(self, info: schema.NodeInfo) -> None:
        """Replace the node's manifest; the clock anchors stay.

        Raises:
            OSError: the run cannot be written.
        """
        self._writer.put_node(info)
        self.info = info
        self._is_node_stored = True

    def put_status(self, status: schema.JobStatus) -> None:
        """Write the job's status on this node."""
        refusals = spool.read_refusals(self._spool) or status.refusals
        incarnation = max(status.incarnation, self._incarnations.latest)
        self._writer.put_status(
            msgspec.structs.replace(status, refusals=refusals, incarnation=incarnation)
        )
        if self._lease is not None and not status.state.is_final:
            self._lease.poll()

    def watch_progress(self, stuck_after_s: float, job: JobTree) -> StuckWatch:
        """Make the watch that stores an account of the node's processes when they make no progress.

        Args:
            job: the processes.
        """
        info = self.info

        def put(account: schema.StuckNode) -> None:
            self._writer.put_document(schema.STUCK, info.node, account)

        def read() -> dict[str, schema.StuckNode]:
            return self._reader.documents(schema.STUCK, schema.StuckNode)

        return StuckWatch(
            info.node,
            stuck_after_s,
            info.epoch_offset_ns,
            write=put,
            read=read,
            incarnation_of=self._incarnations.of,
            hangs=HangWatch(
                info.node,
                stuck_after_s,
                info.epoch_offset_ns,
                job=job,
                read_names=self.drain.read_journal,
            ),
        )

    def flush(self, *, final: bool = False) -> int:
        """Move all new records from the spool into the run; returns the number of rows.

        While too much waits for the object store, they stay in the spool, within its limit.

        Args:
            final: all processes have ended.

        Raises:
            OSError: the run cannot be written; records that were not stored stay in the spool.
        """
        if self._uploader is not None:
            if final:
                self._uploader.end_recording()
            elif self._uploader.is_full:
                return 0
        try:
            return self._flush(final=final)
        except duckdb.Error as error:  # damaged segments, or out of memory
            raise OSError(str(error)) from error

    def final_status(
        self, status: schema.JobStatus, handshake: Handshake, *, notes: Iterable[str] = ()
    ) -> schema.JobStatus:
        """Create the final status of the job, from the exit status in the handshake, and store how
        a job that has not succeeded has ended.

        Without one, the state is unknown, unless the process of the command has recorded that an
        exception ended it.

        Args:
            status: last status of the running job.
        """
        job_exit = handshake.read_exit()
        elapsed_ns = status.duration_ns
        if job_exit is not None and job_exit.ended_monotonic_ns is not None:
            ended_ns = job_exit.ended_monotonic_ns + self.info.epoch_offset_ns
            elapsed_ns = max(0, ended_ns - status.started_ns)  # a short job ends before its monitor
        stop = handshake.read_stop()
        state, reason = self._judge_end(status, job_exit, stop)
        if state is not schema.JobState.COMPLETED:
            processes = list(self.drain.processes.values())
            death = self._deaths.describe(self.info, self._spool, processes, job_exit, stop)
            with suppress(OSError):  # the status, written by the same means, says the rest
                self._writer.put_document(schema.DEATHS, self.info.node, death)
        return msgspec.structs.replace(
            status,
            state=state,
            heartbeat_ns=time.time_ns(),
            ended_ns=status.heartbeat_ns if elapsed_ns is None else status.started_ns + elapsed_ns,
            elapsed_ns=elapsed_ns,
            exit_code=None if job_exit is None else job_exit.exit_code,
            signal=None if job_exit is None else job_exit.signal,
            reason=reason,
            notes=list(notes),
        )

    def _judge_end(
        self, status: schema.JobStatus, job_exit: JobExit | None, stop: StopSignal | None
    ) -> tuple[schema.JobState, str | None]:
        """Return the final state of a job, and the reason if it needs one."""
        if job_exit is None:
            images = [p for p in self.drain.processes.values() if p.pid == status.pid]
            return _explain_end(max(images, key=lambda image: image.key, default=None))
        if stop is not None:
            return schema.JobState.STOPPED, stop.reason
        if job_exit.signal is not None:
            return schema.JobState.FAILED, f"signal {job_exit.signal} ended the job"
        if job_exit.exit_code != 0:
            reason = f"the job exited with status {job_exit.exit_code}"
            return schema.JobState.FAILED, reason + self._describe_failure(status, job_exit)
        return schema.JobState.COMPLETED, None

    def _describe_failure(self, status: schema.JobStatus, job_exit: JobExit) -> str:
        """Describe the uncaught exception at the end of a job; empty without one.

        One of another process than that of the command is from the end of the job if Python's exit
        status after an exception was passed on. One that the job has survived is long ago.
        """
        failure = find_last_failure(self._spool)
        if failure is None or job_exit.exit_code != FAILURE_STATUS:
            return ""
        message = masking.mask_text(failure["message"])
        text = f"{failure['exception']}: {message}" if message else failure["exception"]
        if failure["pid"] == status.pid:
            return f": {text}"
        age_ns = (job_exit.ended_monotonic_ns or time.monotonic_ns()) - failure["t_ns"]
        is_last = age_ns < MAX_FAILURE_AGE_NS
        return f"; process {failure['pid']} ended with {text}" if is_last else ""

    def close(self) -> None:
        """Wait for the compaction; DuckDB must not be running when the process ends."""
        self._compactor.join()

    def _flush(self, *, final: bool) -> int:
        if not self._is_node_stored:  # the run could not be written when the monitor started
            self.put_node(self.info)
        row_count = 0
        for table, rows in self.drain.collect(final=final).items():
            if rows:
                for key, content in self.drain.elements(table, rows):
                    self._writer.put_tensor(key, content)
                row_count += self._writer.append(table, self.drain.columns(table, rows))
                self.drain.commit(rows)
        self._incarnations.assign(self.drain.processes.values())
        for process in self.drain.processes.values():
            if process.changed:
                incarnation = self._incarnations.of(process)
                self._writer.put_process(_make_process_info(process, self.info, incarnation))
                process.changed = False
        self.drain.remove_drained()
        if not final:
            self._compactor.start()
        return row_count


def explain_unwritable(error: OSError) -> str:
    """Say that the run cannot be written, and why."""
    return f"the run cannot be written at the moment: {errors.explain_os_error(error)}"


def retry(write: Callable[[], None]) -> None:
    """Write into the run; try again for two seconds if that fails, as an error of the disk may be
    over after a moment.

    Raises:
        OSError: the last attempt failed, too.
    """
    for _ in range(MAX_TRIES - 1):
        try:
            return write()
        except OSError:
            time.sleep(RETRY_S)
    return write()


class _Compactor:
    """Merging and rounding of segments, and release of memory, in a thread of its own: a wide merge
    takes longer than a sampling tick."""

    def __init__(self, location: str, node: str, max_bytes: int | None) -> None:
        self._location = location
        self._node = node
        self.max_bytes = max_bytes
        self.is_above_limit = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to merge segments, unless a merge is running."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait for a running merge: DuckDB must not be running when the process ends."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with store.RunWriter(self._location, self._node) as writer:
                for table in schema.TABLES:
                    writer.compact(table)
                if self.max_bytes is not None:
                    self.is_above_limit = not writer.limit_size(self.max_bytes)
        except OSError:  # the next flush meets the same error and reports it
            pass
        budget.release_memory()


class _StoredSequences:
    """Lookup of the records of the spool that the store already has."""

    def __init__(self, reader: store.RunReader) -> None:
        self._reader = reader
        self._empty = {table: not reader.has(table) for table in DRAINED_TABLES}

    def __call__(
        self, table: str, process: str, log: str, first: int, count: int
    ) -> NDArray[np.int64]:
        if self._empty[table]:  # the drain knows the records that this process has stored
            return np.empty(0, dtype=np.int64)
        stored = self._reader.table(
            table,
            columns=["seq"],
            condition="process = ? AND log = ? AND seq >= ? AND seq < ?",
            parameters=(process, log, first, first + count),
        )
        return np.asarray(stored["seq"], dtype=np.int64)


def _explain_end(command: ProcessLogs | None) -> tuple[schema.JobState, str]:
    """Return the state, and the reason, of a job without an exit status.

    Args:
        command: last image of the process of the command; None if it recorded nothing.
    """
    reason = "the exit status is unknown: stepscope was killed before it saw the end of the job"
    if command is None or command.end is None:
        return schema.JobState.UNKNOWN, reason
    exception = command.end["exception"]
    if exception is None:
        return schema.JobState.UNKNOWN, f"{reason}; the script ended without an uncaught exception"
    return schema.JobState.FAILED, f"the script ended with an uncaught {exception}"


def _make_process_info(
    process: ProcessLogs, node: schema.NodeInfo, incarnation: int
) -> schema.ProcessInfo:
    description, offset_ns = process.description, node.epoch_offset_ns
    versions = {"python": description["python"]} if "python" in description else {}
    for fact in schema.decode_facts(process.facts, schema.VersionsFact):
        versions |= fact.versions
    ranks = {name: description.get(name) for name in ("rank", "world_size")}
    for late in schema.decode_facts(process.facts, schema.RankFact):
        ranks = {"rank": late.rank, "world_size": late.world_size}
    return schema.ProcessInfo(
        process=process.name,
        node=node.node,
        pid=process.pid,
        parent_pid=description.get("parent_pid", 0),
        role=process.role,
        rank=ranks["rank"],
        local_rank=description.get("local_rank"),
        world_size=ranks["world_size"],
        incarnation=incarnation,
        started_ns=description["started_monotonic_ns"] + offset_ns
        if "started_monotonic_ns" in description
        else description.get("started_ns", 0),  # a spool of an earlier version, or the monitor
        launched_ns=shift_time(description.get("launched_monotonic_ns"), offset_ns),
        ready_ns=shift_time(description.get("ready_monotonic_ns"), offset_ns),
        ended_ns=_end_of(process) + offset_ns if process.ended else None,
        command=masking.mask(description.get("command", [])),
        versions=versions,
        facts=[
            _shift_fact(_mask_fact(fact), offset_ns)
            for fact in process.facts
            if fact.get("fact") != "versions"
        ],
        notes=process.notes,
        dropped_count=sum(process.dropped.values()),
        dropped_by_cause=process.dropped,
        refusal=process.refusal,
    )


def _shift_fact(fact: dict[str, Any], offset_ns: int) -> dict[str, Any]:
    return {**fact, "t_ns": fact["t_ns"] + offset_ns} if "t_ns" in fact else fact


def shift_time(t_ns: int | None, offset_ns: int) -> int | None:
    """Convert a monotonic time to the clock of a node's records."""
    return None if t_ns is None else t_ns + offset_ns


def _end_of(process: ProcessLogs) -> int:
    """Return the monotonic time at which an ended process ended, as far as it is known."""
    t_ns: int | None = None if process.end is None else process.end.get("t_ns")
    return time.monotonic_ns() if t_ns is None else t_ns


def _mask_fact(fact: dict[str, Any]) -> dict[str, Any]:
    """Mask the text of a fact: a line of the user's source may contain a secret."""
    return {**fact, "text": masking.mask_text(fact["text"])} if "text" in fact else fact
