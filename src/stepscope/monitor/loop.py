"""Main loop of the monitor: sample, flush, write heartbeats, and finish after the job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from stepscope import schema, store
from stepscope.monitor.attached import AttachedRecorder
from stepscope.monitor.config import KINETO_LINK, Handshake, JobExit, MonitorConfig
from stepscope.monitor.control import ProcessEnd, Reconfiguration, StopRelay, find_processes
from stepscope.monitor.host import resume_node_info
from stepscope.monitor.node_writer import NodeWriter, explain_unwritable, retry, shift_time
from stepscope.monitor.samplers import Sample
from stepscope.monitor.samplers.processes import JobTree, children_of
from stepscope.monitor.sampling import Sampling
from stepscope.monitor.spool_files import SampleLog, SpoolLock, SpoolSize
from stepscope.monitor.unrecorded import UnrecordedProcesses
from stepscope.monitor.uploading import Uploader
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.service import WindowService
from stepscope.quantities import duration
from stepscope.spool import SPOOL_VARIABLE, SpoolTree, find_launch_ns, process_start_ticks

EARLY_FLUSH_PERIOD_S = 20.0
"""Time from the start in which the first interval applies."""
HEARTBEAT_INTERVAL_S = 5.0
"""Maximum time between two heartbeats; each flush writes one, too."""
FLUSH_THRESHOLD = 0.5
"""Share of the spool's size limit at which it is flushed at once."""
CONFIGURATION_POLL_NS = 1_000_000_000
"""Interval at which the run is read for changes of the configuration."""
MIN_PAUSE_NS = 5_000_000_000
"""Time without a tick of this process from which it is noted."""
EXIT_STATUS_TIMEOUT_S = 5.0
"""Time to wait for the exit status of a command that has ended."""
EXIT_POLL_S = 0.2
"""Interval at which the handshake of a script that profiles itself is read."""
ORPHAN_GRACE_S = 6.0
"""Time that other processes of the job have to end after the command before they count as orphaned.
DataLoader workers check for their parent every five seconds."""


class Monitor:
    """One node's monitor of one job.

    Args:
        config: configuration.
        peer: daemon for libkineto in the job's processes; None if unavailable.
        uploader: uploads the run to an object store; None if it stays where it is.
        proc: mount point of the procfs that is sampled.
    """

    def __init__(
        self,
        config: MonitorConfig,
        peer: KinetoPeer | None = None,
        uploader: Uploader | None = None,
        *,
        proc: str = "/proc",
    ) -> None:
        self._config = config
        self._first_flush_s = min(config.first_flush_s, config.flush_s)
        self._next_flush_s = time.monotonic() + self._first_flush_s
        self._early_until_s = time.monotonic() + EARLY_FLUSH_PERIOD_S
        self._next_heartbeat_s = 0.0
        self._tree = SpoolTree(config.spool, config.spool_limit_bytes, config.node)
        self._lock = SpoolLock(Path(config.spool))
        was_deleted = self._lock_spool()  # before the run is read: `recover` may be storing records
        self._handshake = Handshake(Path(config.spool))
        self._root_ticks = process_start_ticks(config.job_pid)
        self._terminated = False
        self._own_processes = {os.getpid(), config.launcher_pid or os.getpid()}
        self._job = JobTree(config.job_pid, self._registered_pids, self._own_pids, proc=proc)
        self._sampling = Sampling(self._job, config, proc=proc)
        reader = store.open_run(config.run)
        info = resume_node_info(reader, config, self._sampling.missing)
        self._sampling.resume(info.configured_interval_ns)
        now_ns = time.monotonic_ns() + info.epoch_offset_ns
        self._interval_ns = info.interval_ns_at(now_ns)
        self._writer = NodeWriter.of_monitor(config, info, self._tree, uploader)
        self._log = SampleLog(self._tree)
        earlier = reader.statuses().get(info.node)
        self._status = schema.JobStatus(
            state=schema.JobState.IN_PROGRESS,
            heartbeat_ns=time.time_ns(),
            started_ns=now_ns if earlier is None else earlier.started_ns,
            launched_ns=shift_time(find_launch_ns(self._root_ticks), info.epoch_offset_ns),
            pid=config.job_pid,
            monitor_pid=os.getpid(),
        )
        self._windows = WindowService(
            config.windows,
            self._tree,
            run=config.run,
            node=info.node,
            peer=peer,
            job_pid=config.job_pid,
            started_ns=self._status.started_ns - info.epoch_offset_ns,
        )
        self._attached = (
            None
            if config.attached is None
            else AttachedRecorder(config.attached, self._tree, self._job, peer)
        )
        self._reconfiguration = Reconfiguration(config.run, self._windows)
        self._stuck = self._writer.watch_progress(config.stuck_after_s, self._job)
        self._stops = StopRelay(config.run, config.launcher, self._handshake)
        self._next_poll_ns = self._last_sample_ns = 0
        if earlier is not None:  # of the monitor that this one replaces
            self._last_sample_ns = (earlier.end_ns or earlier.started_ns) - info.epoch_offset_ns
        self._last_tick_ns = time.monotonic_ns()
        self._max_pause_ns = earlier.max_pause_ns if earlier else 0
        self._next_sample_ns = time.monotonic_ns()
        self._expected_ns = self._last_sample_ns and self._last_sample_ns + self._interval_ns
        """Time of the next sample if none is missed; 0 before the first."""
        self._problems: dict[str, str] = {}
        self._losses: dict[str, str] = {text: text for text in earlier.losses} if earlier else {}
        if was_deleted:
            self._note_deletion()
        self._unrecorded = UnrecordedProcesses(
            self._tree, earlier, is_hooked=config.launcher_pid is not None, proc=proc
        )
        self._orphans: dict[int, int] = {}
        self._spool_size = SpoolSize(self._tree)

    def run(self) -> bool:
        """Monitor until the job has ended.

        Returns:
            True if all data of the job are in the run; False if the monitor was terminated before
            the end of the job, with the rest of the data in the spool.
        """
        signal.signal(signal.SIGTERM, self._on_terminate)
        try:
            self._writer.put_node(self._writer.info)
            self._put_status()
            # The budget may have led the monitor before this one to another interval.
            self._adopt_interval("the monitor was started again")
        except OSError as error:
            self._note_unwritable_run(error)
        self._prepare_spool()
        self._follow_command()
        self._follow_orphans()
        return self._finish()

    def _prepare_spool(self) -> None:
        """Open what is in the spool, so that nothing of it is lost if somebody deletes it."""
        try:
            self._log.open()
        except OSError as error:
            self._note_unwritable(error)
        self._writer.drain.prepare()

    def _follow_command(self) -> None:
        self._next_sample_ns = time.monotonic_ns()
        with ProcessEnd(self._config.job_pid) as end:
            while self._is_command_alive() and not self._terminated:
                self._sample()
                while True:
                    self._reconfigure()
                    self._write_if_due()
                    next_ns = min(self._next_sample_ns, self._next_poll_ns)
                    next_write_s = min(self._next_flush_s, self._next_heartbeat_s)
                    self._wait_for_tick(end, min(next_ns / 1e9, next_write_s))
                    is_due = time.monotonic_ns() >= self._next_sample_ns
                    if is_due or not self._is_command_alive():
                        break
            self._await_exit_status(end)

    def _await_exit_status(self, end: ProcessEnd) -> None:
        """Wait until the launcher has reported the exit status; if it is gone, report in its place
        what the kernel tells."""
        self._wait_until(
            lambda: self._handshake.read_exit() is not None or not self._is_launcher_alive(),
            EXIT_STATUS_TIMEOUT_S,
        )
        if self._handshake.read_exit() is not None or self._is_command_alive():
            return
        status = end.read_wait_status()
        if status is not None:
            with suppress(OSError):  # the spool is full: the exit status stays unknown
                self._handshake.write_exit(JobExit.of(status))

    def _wait_for_tick(self, end: ProcessEnd, next_tick_s: float) -> None:
        """Wait until the next sample is due, or the job has ended.

        A script that profiles itself may report the end of the job and continue, so its handshake
        is read as well.
        """
        if self._config.launcher_pid is not None:
            end.wait(next_tick_s - time.monotonic())
            return
        while (remaining_s := next_tick_s - time.monotonic()) > 0 and self._is_command_alive():
            end.wait(min(remaining_s, EXIT_POLL_S))
            if self._handshake.read_exit() is not None:
                self._terminated = True
                return

    def _follow_orphans(self) -> None:
        """Continue with orphaned processes of the command: daemons may train, too."""
        self._orphans = find_processes(SPOOL_VARIABLE, self._config.spool)
        self._wait_until(lambda: not self._remaining_processes(), ORPHAN_GRACE_S)
        if self._remaining_processes() and not self._terminated:
            self._note_orphans()
            self._flush()
            with suppress(OSError):  # the spool is full: the launcher waits for its time limit
                self._handshake.write_detached()
        while self._remaining_processes() and not self._terminated:
            self._reconfigure()
            if time.monotonic_ns() >= self._next_sample_ns:
                self._sample()
                self._note_orphans()
            self._write_if_due()
            next_ns = min(self._next_sample_ns, self._next_poll_ns)
            time.sleep(max(0.0, next_ns / 1e9 - time.monotonic()))
        self._problems.pop("orphans", None)

    def _finish(self) -> bool:
        has_ended = self._handshake.read_exit() is not None or not (
            self._is_command_alive() or self._remaining_processes()
        )
        self._sample()
        self._record_attached(AttachedRecorder.finish)
        with suppress(OSError):
            retry(self._stops.poll)
        try:
            if has_ended:
                retry(self._store_rest)
            else:
                self._flush()
            failed_count = self._windows.finish()
        finally:
            self._writer.close()
        if has_ended and failed_count:
            raise OSError(
                f"{failed_count} detailed windows could not be stored and stay in the spool"
            )
        if has_ended:
            status = self._writer.final_status(self._status, self._handshake, notes=self._notes())
            with suppress(OSError):  # the status is written by the same means
                self._stuck.finish(self._writer.drain.processes.values(), status.state)
            retry(lambda: self._writer.put_status(status))
        return has_ended

    def _sample(self) -> None:
        self._restore_spool()
        self._measure_pause()
        now_ns = time.monotonic_ns()
        samples: list[Sample] = []
        missed = round((now_ns - self._expected_ns) / self._interval_ns)
        if self._expected_ns and missed > 0:
            samples.append(Sample("missed_samples", "", missed))
        self._last_sample_ns = now_ns
        self._expected_ns = now_ns + self._interval_ns
        self._next_sample_ns = max(self._next_sample_ns + self._interval_ns, now_ns)
        self._keep_budget()
        self._sampling.refresh_job(now_ns, self._elapsed_ns())
        if self._config.attached is None:
            self._unrecorded.look(self._job.processes, now_ns)
        self._record_attached(AttachedRecorder.poll)
        samples += self._sampling.read(now_ns, self._elapsed_ns())
        try:
            self._log.write(samples, now_ns)
        except OSError as error:
            self._note_unwritable(error)

    def _measure_pause(self) -> None:
        """Note the longest time in which this process did not run, and so did not read the
        spool."""
        now_ns = time.monotonic_ns()
        pause_ns = now_ns - self._last_tick_ns - CONFIGURATION_POLL_NS
        self._last_tick_ns = now_ns
        self._max_pause_ns = max(self._max_pause_ns, pause_ns)
        if self._max_pause_ns >= MIN_PAUSE_NS:
            self._problems["pause"] = (
                f"the monitor did not run for {duration(self._max_pause_ns)}, in which the node "
                "was not sampled"
            )

    def _lock_spool(self) -> bool:
        """Take the lock of the spool; True if somebody has deleted it, and it is created again.

        Raises:
            OSError: it cannot be created.
        """
        is_missing = self._lock.create_directory()
        spool, sockets = Path(self._config.spool), self._config.windows.kineto_directory
        if sockets and not (spool / KINETO_LINK).is_symlink():  # else none has a file
            (spool / KINETO_LINK).symlink_to(sockets)
        self._lock.take(wait=True)
        return is_missing

    def _restore_spool(self) -> None:
        """Continue in a new directory if somebody has deleted the spool or a part of it: a cleaner
        of temporary files, or systemd at the end of the user's last session (RemoveIPC)."""
        try:
            is_deleted = self._lock.is_lost()
            if is_deleted:
                self._lock_spool()
                self._windows.restore()
            if self._writer.drain.restore() or is_deleted:
                self._note_deletion()
        except OSError as error:
            self._note_unwritable(error)

    def _note_unwritable(self, error: OSError) -> None:
        self._losses["spool"] = (
            f"the spool {self._config.spool} could not be written: {error.strerror}"
        )

    def _note_unwritable_run(self, error: OSError) -> None:
        self._problems["store"] = explain_unwritable(error)

    def _note_deletion(self) -> None:
        self._losses["deletion"] = (
            f"the spool {self._config.spool} was deleted while the job ran; records that were not "
            "stored yet may be missing"
        )

    def _record_attached(self, record: Callable[[AttachedRecorder], None]) -> None:
        """Record the processes of a job that was running already."""
        if self._attached is not None:
            try:
                record(self._attached)
            except OSError as error:
                self._problems["attached"] = f"processes of the job could not be recorded: {error}"

    def _write_if_due(self) -> None:
        """Flush if due or if the spool is filling up; otherwise write a heartbeat if due."""
        now_s = time.monotonic()
        self._measure_pause()
        is_filling = self._spool_size.measure() > FLUSH_THRESHOLD * self._config.spool_limit_bytes
        if is_filling or now_s >= self._next_flush_s:
            self._flush()
            self._last_tick_ns = time.monotonic_ns()  # writing to a slow disk is no pause
            is_early = now_s < self._early_until_s
            flush_s = self._first_flush_s if is_early else self._sampling.throttle.flush_s
            self._next_flush_s = now_s + flush_s
        elif now_s >= self._next_heartbeat_s:
            with suppress(OSError):  # the next flush meets the same error and notes it
                self._put_status()

    def _reconfigure(self) -> None:
        """Apply new changes of the configuration."""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_poll_ns:
            return
        self._next_poll_ns = now_ns + CONFIGURATION_POLL_NS
        try:
            self._reconfiguration.poll(self._set_interval)
            self._problems.pop("configuration", None)
        except OSError as error:
            problem = f"the configuration cannot be changed at the moment: {error}"
            self._problems["configuration"] = problem
        with suppress(OSError):  # the run cannot be written: the next flush notes it
            self._stops.poll()
            self._writer.drain.find_processes()
            self._stuck.poll(self._writer.drain.processes.values())

    def _set_interval(self, interval_ms: int) -> None:
        """Configure the sampling interval, and record the change.

        Raises:
            OSError: the run cannot be written.
        """
        throttle = self._sampling.throttle
        throttle.configure(interval_ms * 1_000_000)
        self._adopt_interval(throttle.reason if throttle.level.factor > 1 else None)

    def _keep_budget(self) -> None:
        """Measure this process once per period, and record less or more."""
        if not self._sampling.keep_budget(self._elapsed_ns()):
            return
        try:
            self._adopt_interval(self._sampling.throttle.reason)
        except OSError:  # the next period tries again
            pass

    def _adopt_interval(self, reason: str | None) -> None:
        """Sample at the interval of the throttle, and record a change with its reason.

        Raises:
            OSError: the run cannot be written.
        """
        interval_ns, info = self._sampling.throttle.interval_ns, self._writer.info
        if interval_ns == self._interval_ns:
            return
        now_ns = time.monotonic_ns()
        t_ns = now_ns + info.epoch_offset_ns
        has_missed = now_ns > self._last_sample_ns + 1.5 * self._interval_ns
        change = schema.IntervalChange(t_ns=t_ns, interval_ns=interval_ns, reason=reason)
        changes = [*info.interval_changes, change]
        self._writer.put_node(msgspec.structs.replace(info, interval_changes=changes))
        self._interval_ns = interval_ns
        # Counted from the last sample, which is no sample too many and none too few.
        due_ns = self._last_sample_ns + interval_ns
        self._next_sample_ns = max(due_ns, now_ns)
        if self._expected_ns:  # after a pause, in which samples were missed, that was long ago
            self._expected_ns = due_ns if has_missed else self._next_sample_ns

    def _flush(self) -> None:
        try:
            self._writer.flush()
            self._put_status()
            self._problems.pop("store", None)
        except OSError as error:  # the data stay in the spool; the next flush tries again
            self._note_unwritable_run(error)

    def _store_rest(self) -> None:
        """Store all records of a job that has ended.

        Raises:
            OSError: the run cannot be written.
        """
        self._writer.flush(final=True)
        self._problems.pop("store", None)
        self._put_status()

    def _put_status(self) -> None:
        self._next_heartbeat_s = time.monotonic() + HEARTBEAT_INTERVAL_S
        stop = self._handshake.read_stop()
        self._status = schema.JobStatus(
            state=schema.JobState.IN_PROGRESS if stop is None else schema.JobState.STOPPING,
            heartbeat_ns=time.time_ns(),
            started_ns=self._status.started_ns,
            launched_ns=self._status.launched_ns,
            elapsed_ns=self._elapsed_ns(),
            pid=self._status.pid,
            monitor_pid=self._status.monitor_pid,
            reason=None if stop is None else stop.reason,
            notes=self._notes(),
            losses=list(self._losses.values()),
            unrecorded=self._unrecorded.sentences,
            max_pause_ns=self._max_pause_ns,
        )
        self._sampling.store()
        self._writer.put_status(self._status)

    def _notes(self) -> list[str]:
        attached = [] if self._attached is None else self._attached.notes
        notes = [*attached, *self._writer.notes, *self._windows.notes]
        return [*notes, *self._problems.values(), *self._sampling.notes]

    def _own_pids(self) -> set[int]:
        """List the processes of stepscope, which are not part of the job."""
        launcher = self._config.launcher_pid
        children = set(children_of(launcher)) - {self._config.job_pid} if launcher else set()
        attached = set() if self._attached is None else self._attached.child_pids
        return self._own_processes | self._windows.child_pids | children | attached

    def _note_orphans(self) -> None:
        pids = ", ".join(str(pid) for pid in sorted(self._remaining_processes()))
        self._problems["orphans"] = f"the command has ended, but its process {pids} is running"

    def _is_command_alive(self) -> bool:
        ticks = process_start_ticks(self._config.job_pid)
        return ticks is not None and ticks == self._root_ticks

    def _is_launcher_alive(self) -> bool:
        pid = self._config.launcher_pid
        return pid is not None and process_start_ticks(pid) is not None

    def _registered_pids(self) -> list[int]:
        return [
            process.pid
            for process in self._writer.drain.processes.values()
            if not process.ended and process.pid not in self._own_processes
        ]

    def _remaining_processes(self) -> set[int]:
        """Find the processes of the job that are still running."""
        self._sampling.refresh_job(time.monotonic_ns(), self._elapsed_ns())
        registered = {
            process.pid
            for process in self._writer.drain.processes.values()
            if process.pid not in self._own_processes and process.is_alive()
        }
        orphans = {pid for pid, ticks in self._orphans.items() if process_start_ticks(pid) == ticks}
        return (registered | orphans | set(self._job.processes)) - self._own_processes

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < deadline and not self._terminated:
            time.sleep(0.02)

    def _on_terminate(self, signum: int, frame: FrameType | None) -> None:
        self._terminated = True

    def _elapsed_ns(self) -> int:
        """Return the time since the start of the job."""
        now_ns = time.monotonic_ns() + self._writer.info.epoch_offset_ns
        return now_ns - self._status.started_ns
