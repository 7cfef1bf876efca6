"""Runs the job's command and stands aside: signals pass through, the exit status is the job's.

The job stays in our process group, so a terminal's Ctrl-C reaches it without us, and is sent
only those signals that another process sent to us. The monitor is started again if it dies.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from stepscope.errors import UsageError
from stepscope.monitor.exchange import Exchange, JobExit, StopRequest

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_SIGNALS = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2)
WATCHED_SIGNALS = (*PASSED_SIGNALS, signal.SIGCHLD)
TICK_S = 1.0
MONITOR_STARTS = 5
"""A monitor that dies this often is left alone; `stepscope recover` has the rest."""

StartMonitor = Callable[[int], subprocess.Popen[bytes] | None]
"""Given the job's pid, start a monitor; None when there is nothing to monitor into."""


class Launcher:
    """Runs one command to its end.

    Args:
        exchange: where the monitor learns how the command ended; None without a spool.
        start_monitor: called once the job runs, and again when its monitor has died.
        on_tick: called about once a second while the job runs.
    """

    def __init__(
        self,
        *,
        exchange: Exchange | None,
        start_monitor: StartMonitor,
        on_tick: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._start_monitor = start_monitor
        self._on_tick = on_tick
        self._monitor_starts = 0
        self._ignored: set[signal.Signals] = set()
        self.monitor: subprocess.Popen[bytes] | None = None
        self.stopped_by: int | None = None

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> JobExit:
        """Start the command and return how it ended.

        Raises:
            UsageError: it cannot be started.
        """
        # Blocked for good: once the job has ended, only `exit_like` decides how we end.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
        self._ignored = {s for s in PASSED_SIGNALS if signal.getsignal(s) == signal.SIG_IGN}
        try:
            pid = _spawn(command, environment, mask)
        except UsageError:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        self._watch_monitor(pid)
        code = os.waitstatus_to_exitcode(self._wait(pid))
        job_exit = JobExit(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            ended_ns=time.time_ns(),
        )
        if self._exchange is not None:
            self._tell(lambda exchange: exchange.write_exit(job_exit))
        return job_exit

    def _wait(self, pid: int) -> int:
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
            arrived = signal.sigtimedwait(WATCHED_SIGNALS, TICK_S)
            if arrived is not None and arrived.si_signo in set(PASSED_SIGNALS) - self._ignored:
                self._pass_on(pid, arrived)
            self._watch_monitor(pid)
            self._tick()

    def _tick(self) -> None:
        try:
            self._on_tick()
        except Exception:  # noqa: BLE001 - a status line is not worth a running job
            self._on_tick = _nothing

    def _pass_on(self, pid: int, arrived: signal.struct_siginfo) -> None:
        if arrived.si_signo in STOP_SIGNALS:
            self.stopped_by = arrived.si_signo
            request = StopRequest(signal=arrived.si_signo)
            self._tell(lambda exchange: exchange.write_stop(request))
        sent_by_a_process = arrived.si_code <= 0
        if sent_by_a_process:
            os.kill(pid, arrived.si_signo)

    def _watch_monitor(self, pid: int) -> None:
        if self.monitor is not None and self.monitor.poll() is None:
            return
        if self._monitor_starts < MONITOR_STARTS:
            self._monitor_starts += 1
            try:
                self.monitor = self._start_monitor(pid)
            except Exception:  # noqa: BLE001 - the job runs; what it records waits in the spool
                self.monitor = None

    def _tell(self, say: Callable[[Exchange], None]) -> None:
        if self._exchange is not None:
            try:
                say(self._exchange)
            except OSError:  # a full or vanished spool: the run will say that nobody saw the end
                pass


def _spawn(command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> int:
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            dict(environment),
            setsigmask=mask,
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores these; the job must not
        )
    except OSError as error:
        raise UsageError(f"cannot start {command[0]!r}: {error.strerror}") from None


def _nothing() -> None:
    pass


def stop_is_pending() -> bool:
    """Whether somebody wants us to stop, now that the job has."""
    return bool(signal.sigpending() & set(STOP_SIGNALS))


def exit_like(job_exit: JobExit) -> NoReturn:
    """End this process the way the job ended, signal deaths included."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            pass
    if job_exit.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core dump is the job's
        if job_exit.signal != signal.SIGKILL:
            signal.signal(job_exit.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {job_exit.signal})
        os.kill(os.getpid(), job_exit.signal)
        os._exit(128 + job_exit.signal)  # the signal was blocked from outside
    os._exit(job_exit.exit_code or 0)
