"""Runs the job's command and stands aside: signals pass through, the exit status is the job's.

The job stays in our process group, so a terminal's Ctrl-C reaches it without us, and is sent
only those signals that another process sent to us. A rule that fires, or somebody in the web UI,
may have it stopped: with SIGTERM, as if somebody had sent us that, and after a grace period by
killing all of it. The processes beside it are started again if they die.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from stepscope.errors import UsageError
from stepscope.monitor import Handshake, JobExit, StopSignal
from stepscope.watch import read_stop_request

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_SIGNALS = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2)
WATCHED_SIGNALS = (*PASSED_SIGNALS, signal.SIGCHLD)
TICK_S = 1.0
COMPANION_STARTS = 5
"""One that dies this often is left alone."""
STOP_GRACE_S = 30.0
"""How long a job that is to be stopped may take to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """How a job is stopped by whoever is neither the user at the terminal nor the system."""

    wish: Path
    """The file in which they say so."""
    grace_s: float = STOP_GRACE_S
    by_people: bool = False
    """Whether anybody but rules is heard."""


class Companion:
    """A process of ours beside the job.

    Args:
        start: given the job's pid, starts it; None, or an exception, when that is not possible.
    """

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes] | None]) -> None:
        self._start = start
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def keep(self, job_pid: int) -> None:
        """Start it unless it runs, or has died too often."""
        if self.process is not None and self.process.poll() is None:
            return
        if self._starts < COMPANION_STARTS:
            self._starts += 1
            try:
                self.process = self._start(job_pid)
            except Exception:  # noqa: BLE001 - the job runs; what it records waits in the spool
                self.process = None


class Launcher:
    """Runs one command to its end.

    Args:
        exchange: where the monitor learns how the command ended; None without a spool.
        companions: what runs beside the job.
        stopping: how the job may be stopped; None when nobody may.
        on_tick: called about once a second while the job runs.
    """

    def __init__(
        self,
        *,
        exchange: Handshake | None = None,
        companions: Sequence[Companion] = (),
        stopping: Stopping | None = None,
        on_tick: Callable[[], None] | None = None,
    ) -> None:
        self._exchange = exchange
        self._companions = companions
        self._stopping = stopping
        self._kill_at: float | None = None
        self._on_tick = on_tick
        self._ignored: set[signal.Signals] = set()
        self.stop: StopSignal | None = None
        """What the job was asked to stop for, first."""

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
        self._keep_companions(pid)
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
            self._heed_wish(pid)
            self._keep_companions(pid)
            self._tick()

    def _tick(self) -> None:
        if self._on_tick is not None:
            try:
                self._on_tick()
            except Exception:  # noqa: BLE001 - a status line is not worth a running job
                self._on_tick = None

    def _pass_on(self, pid: int, arrived: signal.struct_siginfo) -> None:
        if arrived.si_signo in STOP_SIGNALS:
            self._note_stop(StopSignal(signal=arrived.si_signo))
        sent_by_a_process = arrived.si_code <= 0
        if sent_by_a_process:
            os.kill(pid, arrived.si_signo)

    def _heed_wish(self, pid: int) -> None:
        """Stop the job when somebody wants that who may: gracefully, then hard."""
        if self._stopping is None:
            return
        if self._kill_at is None:
            wish = read_stop_request(self._stopping.wish)
            if wish is not None and (wish.rule is not None or self._stopping.by_people):
                self._note_stop(StopSignal(signal=signal.SIGTERM, rule=wish.rule, by=wish.by))
                self._kill_at = time.monotonic() + self._stopping.grace_s
                os.kill(pid, signal.SIGTERM)
        elif time.monotonic() > self._kill_at:
            _kill_tree(pid)

    def _note_stop(self, request: StopSignal) -> None:
        if self.stop is None:
            self.stop = request
            self._tell(lambda exchange: exchange.write_stop(request))

    def _keep_companions(self, pid: int) -> None:
        for companion in self._companions:
            companion.keep(pid)

    def _tell(self, say: Callable[[Handshake], None]) -> None:
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


def _kill_tree(pid: int) -> None:
    """Kill a process and all that came of it; ranks must not go on without their launcher."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return
    for member in members:
        try:
            member.kill()
        except psutil.Error:
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
