"""The monitor's life: sample, flush, say that it is alive, and finish when the job has."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from stepscope.monitor.config import MonitorConfig
from stepscope.monitor.exchange import Exchange
from stepscope.monitor.host import node_info
from stepscope.monitor.own_log import SampleLog
from stepscope.monitor.recording import NodeRecording, final_status
from stepscope.monitor.samplers import Sample, Sampler, build_samplers
from stepscope.monitor.samplers.processes import JobTree, children_of
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.service import WindowService
from stepscope.schema import JobState, JobStatus, NodeInfo
from stepscope.spool import SPOOL_VARIABLE, SpoolTree, process_start_ticks, segment_bytes
from stepscope.store import RunReader, open_run

FIRST_FLUSH_S = 2.0
FULL_SHARE = 0.5
"""A spool filled to this share of its limit is flushed at once."""
EXIT_GRACE_S = 5.0
"""How long to wait, once the command is gone, for word of how it ended."""
ASK_S = 0.2
"""How often a script that records itself is asked whether it is over."""
LINGER_S = 6.0
"""How long other processes of the job may take to end after the command before they count as
detached. DataLoader workers look for their parent every five seconds."""


class Monitor:
    """One node's monitor of one job.

    Args:
        config: what it is told.
        peer: answers libkineto in the job's processes; None where it cannot be had.
    """

    def __init__(self, config: MonitorConfig, peer: KinetoPeer | None = None) -> None:
        self._config = config
        self._interval_s = config.interval_ms / 1000
        self._first_flush_s = min(FIRST_FLUSH_S, config.flush_s)
        self._tree = SpoolTree(config.spool, config.spool_limit_bytes)
        self._exchange = Exchange(Path(config.spool))
        self._root_ticks = process_start_ticks(config.job_pid)
        self._asked_to_finish = False
        own = {os.getpid(), *([config.launcher_pid] if config.launcher_pid else [])}
        self._own_processes = own
        self._job = JobTree(config.job_pid, self._registered_pids, self._own_pids)
        self._samplers, missing = build_samplers(self._job)
        reader = open_run(config.run)
        info = self._node_info(reader, missing)
        self._recording = NodeRecording(config.run, info, self._tree)
        self._log = SampleLog(self._tree)
        self._status = JobStatus(
            state=JobState.IN_PROGRESS,
            heartbeat_ns=time.time_ns(),
            started_ns=self._started_ns(reader, info.node),
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
            started_ns=self._status.started_ns,
        )
        self._last_sample_ns = self._last_sample_of_predecessor(reader, info)
        self._failures: dict[str, str] = {}
        self._heirs: dict[int, int] = {}
        self._spool_sizes: dict[str, tuple[int, int]] = {}

    def run(self) -> bool:
        """Monitor until the job has ended.

        Returns:
            True when everything of it is in the run; False when the monitor was asked to finish
            before the job had, and the rest is still in the spool.
        """
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._recording.put_node()
        self._put_status()
        self._follow_command()
        self._follow_detached()
        return self._finish()

    def _follow_command(self) -> None:
        begun = next_tick = time.monotonic()
        next_flush = begun + self._first_flush_s
        with _ProcessEnd(self._config.job_pid) as end:
            while self._command_alive() and not self._asked_to_finish:
                self._sample()
                next_tick = max(next_tick + self._interval_s, time.monotonic())
                while True:
                    now = time.monotonic()
                    if now >= next_flush or self._spool_is_filling():
                        self._flush()
                        early = now < begun + 20
                        next_flush = now + (self._first_flush_s if early else self._config.flush_s)
                    self._wait_for_tick(end, min(next_tick, next_flush))
                    if time.monotonic() >= next_tick or not self._command_alive():
                        break
        self._wait_until(lambda: self._exchange.read_exit() is not None, EXIT_GRACE_S)

    def _wait_for_tick(self, end: _ProcessEnd, next_tick: float) -> None:
        """Wait until the next sample is due, or the job is over.

        A script that records itself may say that it is over and go on, so it is asked, too.
        """
        if self._config.launcher_pid is not None:
            end.wait(next_tick - time.monotonic())
            return
        while (rest := next_tick - time.monotonic()) > 0 and self._command_alive():
            end.wait(min(rest, ASK_S))
            if self._exchange.read_exit() is not None:
                self._asked_to_finish = True
                return

    def _follow_detached(self) -> None:
        """Stay with processes that outlive the command: daemons train too."""
        self._heirs = processes_with_environment(SPOOL_VARIABLE, self._config.spool)
        self._wait_until(lambda: not self._outliving(), LINGER_S)
        if self._outliving() and not self._asked_to_finish:
            self._note_detached()
            self._flush()
            self._exchange.write_detached()
        next_flush = time.monotonic() + self._config.flush_s
        while self._outliving() and not self._asked_to_finish:
            self._sample()
            if time.monotonic() >= next_flush:
                self._note_detached()
                self._flush()
                next_flush = time.monotonic() + self._config.flush_s
            time.sleep(self._interval_s)
        self._failures.pop("detached", None)

    def _finish(self) -> bool:
        ended = self._exchange.read_exit() is not None or not (
            self._command_alive() or self._outliving()
        )
        self._sample()
        try:
            self._flush(final=ended)
            left = self._windows.finish()
        finally:
            self._recording.close()
        if ended and left:
            raise OSError(f"{left} detailed windows could not be stored; they are in the spool")
        if ended:
            status = final_status(self._status, self._exchange, notes=self._notes())
            self._recording.put_status(status)
        return ended

    def _sample(self) -> None:
        now = time.monotonic_ns()
        samples: list[Sample] = []
        if self._last_sample_ns:
            missed = round((now - self._last_sample_ns) / (self._interval_s * 1e9)) - 1
            if missed > 0:
                samples.append(Sample("missed_samples", "", missed))
        self._last_sample_ns = now
        self._job.refresh(now)
        for sampler in self._samplers:
            samples.extend(self._ask(sampler, now))
        try:
            self._log.write(samples, now)
        except OSError as error:
            self._failures["samples"] = f"some samples of the node are missing: {error}"

    def _ask(self, sampler: Sampler, now: int) -> list[Sample]:
        try:
            return list(sampler.sample(now))
        except OSError as error:
            self._failures[sampler.group] = f"{sampler.group} could not be sampled: {error}"
            return []

    def _flush(self, *, final: bool = False) -> None:
        try:
            self._recording.flush(final=final)
            self._put_status()
            self._failures.pop("store", None)
        except OSError as error:  # the spool keeps everything; the next flush tries again
            if final:
                raise
            self._failures["store"] = f"the run could not be written for a while: {error}"

    def _put_status(self) -> None:
        stop = self._exchange.read_stop()
        self._status = JobStatus(
            state=JobState.IN_PROGRESS if stop is None else JobState.STOPPING,
            heartbeat_ns=time.time_ns(),
            started_ns=self._status.started_ns,
            pid=self._status.pid,
            monitor_pid=self._status.monitor_pid,
            reason=None if stop is None else stop.reason,
            notes=self._notes(),
        )
        self._recording.put_status(self._status)

    def _notes(self) -> list[str]:
        return [*self._windows.notes, *self._failures.values()]

    def _own_pids(self) -> set[int]:
        """Processes of ours, which are not of the job."""
        launcher = self._config.launcher_pid
        beside = set(children_of(launcher)) - {self._config.job_pid} if launcher else set()
        return self._own_processes | self._windows.processes | beside

    def _note_detached(self) -> None:
        listed = ", ".join(str(pid) for pid in sorted(self._outliving()))
        self._failures["detached"] = f"the command has ended; process {listed} of it goes on"

    def _command_alive(self) -> bool:
        ticks = process_start_ticks(self._config.job_pid)
        return ticks is not None and ticks == self._root_ticks

    def _registered_pids(self) -> list[int]:
        return [
            process.pid
            for process in self._recording.drain.processes.values()
            if not process.over and process.pid not in self._own_processes
        ]

    def _outliving(self) -> set[int]:
        """Processes of the job that are still there."""
        self._job.refresh(time.monotonic_ns())
        registered = {
            process.pid
            for process in self._recording.drain.processes.values()
            if process.pid not in self._own_processes and process.alive()
        }
        heirs = {pid for pid, ticks in self._heirs.items() if process_start_ticks(pid) == ticks}
        return (registered | heirs | set(self._job.processes)) - self._own_processes

    def _spool_is_filling(self) -> bool:
        """Whether a flush is due before its time. Asked at every tick, so only directories that
        have changed are listed."""
        sizes: dict[str, tuple[int, int]] = {}
        for path in self._tree.process_directories().values():
            try:
                changed_ns = Path(path).stat().st_mtime_ns
            except FileNotFoundError:
                continue
            known = self._spool_sizes.get(path)
            if known is None or known[0] != changed_ns:
                known = changed_ns, segment_bytes(path)
            sizes[path] = known
        self._spool_sizes = sizes
        used = sum(size for _, size in sizes.values())
        return used > FULL_SHARE * self._config.spool_limit_bytes

    def _wait_until(self, condition: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not condition() and time.monotonic() < deadline and not self._asked_to_finish:
            time.sleep(0.02)

    def _on_terminate(self, signum: int, frame: FrameType | None) -> None:
        self._asked_to_finish = True

    def _node_info(self, reader: RunReader, missing: dict[str, str]) -> NodeInfo:
        """This node; a monitor that replaces one keeps its clock anchors."""
        info = node_info(
            sample_interval_ns=self._config.interval_ms * 1_000_000,
            spool=self._config.spool,
            job_pid=self._config.job_pid,
            metrics_missing=missing,
        )
        return reader.nodes().get(info.node, info)

    def _started_ns(self, reader: RunReader, node: str) -> int:
        earlier = reader.statuses().get(node)
        return earlier.started_ns if earlier else time.time_ns()

    def _last_sample_of_predecessor(self, reader: RunReader, info: NodeInfo) -> int:
        """Monotonic time of the last sample in the run, 0 when this monitor is the first."""
        earlier = reader.statuses().get(info.node)
        if earlier is None:
            return 0
        offset = info.clock_anchor_epoch_ns - info.clock_anchor_monotonic_ns
        return earlier.heartbeat_ns - offset


def processes_with_environment(variable: str, value: str) -> dict[int, int]:
    """Start ticks by pid of the processes that were started with this in their environment.

    A daemon has cut all ties to the command that started it, but it inherited its environment.
    """
    wanted = f"{variable}={value}".encode()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        ticks = process_start_ticks(entry.name) if wanted in words else None
        if ticks is not None:
            found[int(entry.name)] = ticks
    return found


class _ProcessEnd:
    """Waits for the end of a process that is not our child."""

    def __init__(self, pid: int) -> None:
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError:  # gone already, or a kernel without pidfds
            self._descriptor = -1

    def __enter__(self) -> _ProcessEnd:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or as soon as the process has ended."""
        if seconds <= 0:
            return
        if self._descriptor < 0:
            time.sleep(seconds)
        else:
            select.select([self._descriptor], [], [], seconds)
