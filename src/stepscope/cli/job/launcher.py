"""Launcher of the job's command, and the end of its monitor.

The job stays in our process group, so a terminal's Ctrl-C reaches it without us; we only
forward signals that another process sent to us. A rule that fires, or a user of the web UI,
can stop it: with SIGTERM, as if another process had sent that, and after a grace period with
SIGKILL to all its processes. Companion processes are restarted if they die.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from stepscope import budget, errors
from stepscope.cli.job.forking import POLL_S, Process
from stepscope.cli.output import locate, say, suggest
from stepscope.monitor import Handshake, JobExit, StopSignal, last_line
from stepscope.spool import is_suspended
from stepscope.watch import read_stop_request

if TYPE_CHECKING:
    import psutil

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_SIGNALS = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2)
WATCHED_SIGNALS = (*PASSED_SIGNALS, signal.SIGCHLD)
TICK_S = 1.0
COMPANION_STARTS = 5
"""Limit of starts of one companion in `COMPANION_PERIOD_S`: one that dies at once stays away."""
COMPANION_PERIOD_S = 3600.0
STOP_GRACE_S = 30.0
"""Time between SIGTERM and SIGKILL."""


@contextmanager
def deferring_signals() -> Iterator[None]:
    """Defer signals during the body, from threads that it starts for good.

    A thread of a library that takes signals would take those that the launcher waits for: the end
    of the job would be noticed late, and SIGTERM would end the launcher in place of the job.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for stop requests that come from rules or from the web UI."""

    request_path: Path
    """File of the stop request."""
    grace_s: float = STOP_GRACE_S
    by_people: bool = False
    """True if requests of users count, not only those of rules."""


class Companion:
    """A process of stepscope that runs next to the job.

    Args:
        start: given the job's pid, starts it; None, or an exception, when that is not possible.
        prepare: imports what it needs, before it is forked.
        is_early: whether it starts with the job, and not after the first tick.
    """

    def __init__(
        self,
        start: Callable[[int], Process | None],
        prepare: Callable[[], None] = lambda: None,
        *,
        is_early: bool = True,
    ) -> None:
        self._start = start
        self.prepare = prepare
        self.is_early = is_early
        self._starts_s: deque[float] = deque(maxlen=COMPANION_STARTS)
        self.process: Process | None = None

    @property
    def is_running(self) -> bool:
        """True if it has started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def keep(self, job_pid: int) -> None:
        """Start it unless it is running or has died too often in the last hour."""
        if self.is_running:
            return
        now_s, starts_s = time.monotonic(), self._starts_s
        if len(starts_s) < COMPANION_STARTS or now_s - starts_s[0] >= COMPANION_PERIOD_S:
            starts_s.append(now_s)
            try:
                self.process = self._start(job_pid)
            except Exception:  # noqa: BLE001 - the job runs; its records stay in the spool
                self.process = None


class Launcher:
    """Runs one command to its end.

    Args:
        handshake: reports the exit status to the monitor; None without a spool.
        companions: processes that run next to the job.
        stopping: settings for stop requests; None to ignore them.
        on_tick: called about once a second while the job runs.
    """

    def __init__(
        self,
        *,
        handshake: Handshake | None = None,
        companions: Sequence[Companion] = (),
        stopping: Stopping | None = None,
        on_tick: Callable[[], None] | None = None,
    ) -> None:
        self._handshake = handshake
        self._companions = companions
        self._stopping = stopping
        self._kill_at: float | None = None
        self._descendants: list[psutil.Process] = []
        """Descendants of the job, but not its daemons, when it was asked to stop."""
        self._on_tick = on_tick
        self._ignored: set[signal.Signals] = set()
        self.stop: StopSignal | None = None
        """First reason for which the job was asked to stop."""

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> JobExit:
        """Run the command and return its exit status.

        Raises:
            UsageError: it cannot be started.
        """
        # Blocked until exit: after the end of the job only `exit_like` decides the exit status.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it takes the exit status away
        self._ignored = {s for s in PASSED_SIGNALS if signal.getsignal(s) == signal.SIG_IGN}
        try:
            pid = _spawn(command, environment, mask)
        except errors.UsageError:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        for companion in self._companions:
            if companion.is_early:
                self._keep(companion, pid)
        job_exit = JobExit.of(self._wait(pid))
        self._end_descendants()
        if self._handshake is not None:
            self._tell(lambda handshake: handshake.write_exit(job_exit))
        return job_exit

    def _wait(self, pid: int) -> int:
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
            if self._handle_signal(pid) == signal.SIGCHLD:
                continue
            self._check_stop_request(pid)
            for companion in self._companions:
                self._keep(companion, pid)
            self._tick()

    def _keep(self, companion: Companion, pid: int) -> None:
        """Start a companion unless it is running; signals reach the job meanwhile."""
        if not companion.is_running:
            with self._handling_signals(pid), suppress(Exception):  # its start meets the same error
                companion.prepare()
            budget.release_memory()  # once for all processes that are forked
            companion.keep(pid)

    @contextmanager
    def _handling_signals(self, pid: int) -> Iterator[None]:
        """Handle signals in a thread during the body, after which there is no other thread."""
        is_over = False

        def handle() -> None:
            while not is_over:
                self._handle_signal(pid)

        thread = threading.Thread(target=handle)
        thread.start()
        try:
            yield
        finally:
            is_over = True
            os.kill(os.getpid(), signal.SIGCHLD)  # ends its wait
            thread.join()
            # A thread that is joined has left Python, and ends a moment later. A fork needs that.
            while Path(f"/proc/self/task/{thread.native_id}").exists():
                time.sleep(POLL_S)

    def _handle_signal(self, pid: int) -> int | None:
        """Wait for a signal, pass it on to the job, and return its number; None after a tick."""
        received = signal.sigtimedwait(WATCHED_SIGNALS, TICK_S)
        if received is None:
            return None
        if received.si_signo in set(PASSED_SIGNALS) - self._ignored:
            self._pass_on(pid, received)
        return received.si_signo

    def _tick(self) -> None:
        if self._on_tick is not None:
            try:
                self._on_tick()
            except Exception:  # noqa: BLE001 - a status line is not worth a running job
                self._on_tick = None

    def _pass_on(self, pid: int, received: signal.struct_siginfo) -> None:
        if received.si_signo in STOP_SIGNALS:
            self._note_stop(StopSignal(signal=received.si_signo))
        sent_by_a_process = received.si_code <= 0
        if sent_by_a_process:
            os.kill(pid, received.si_signo)

    def _check_stop_request(self, pid: int) -> None:
        """Stop the job on an accepted request: with SIGTERM, then SIGKILL."""
        if self._stopping is None:
            return
        if self._kill_at is None:
            request = self._read_request(self._stopping)
            if request is not None:
                from stepscope.cli.job.descendants import list_job_processes

                self._note_stop(request)
                self._kill_at = time.monotonic() + self._stopping.grace_s
                self._descendants = list_job_processes(pid)
                os.kill(pid, signal.SIGTERM)
        elif time.monotonic() > self._kill_at:
            from stepscope.cli.job.descendants import kill_tree

            kill_tree(pid)

    def _end_descendants(self) -> None:
        """Kill what a job that was asked to stop leaves behind after the grace period, such as a
        worker that hangs: it does not notice that its parent has ended."""
        if self._kill_at is not None and self._descendants:
            from stepscope.cli.job.descendants import kill_remaining

            timeout_s = max(0.0, self._kill_at - time.monotonic())
            kill_remaining(self._descendants, timeout_s)

    def _read_request(self, stopping: Stopping) -> StopSignal | None:
        """Read an accepted request of this node, or that another node has accepted."""
        request = read_stop_request(stopping.request_path)
        if request is not None and (request.rule is not None or stopping.by_people):
            return StopSignal(signal=signal.SIGTERM, rule=request.rule, by=request.by)
        return None if self._handshake is None else self._handshake.read_stop_elsewhere()

    def _note_stop(self, request: StopSignal) -> None:
        if self.stop is None:
            self.stop = request
            self._tell(lambda handshake: handshake.write_stop(request))

    def _tell(self, say: Callable[[Handshake], None]) -> None:
        if self._handshake is not None:
            try:
                say(self._handshake)
            except OSError:  # spool full or gone: the run will report an unknown exit status
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
        raise errors.UsageError(f"Cannot start {command[0]!r}: {error.strerror}.") from None


def stop_is_pending() -> bool:
    """Return True if a stop signal is pending after the end of the job."""
    return bool(signal.sigpending() & set(STOP_SIGNALS))


def exit_like(job_exit: JobExit) -> NoReturn:
    """End this process the way the job ended, signal deaths included."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader is gone
            pass
    if job_exit.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core dump is the job's
        if job_exit.signal != signal.SIGKILL:
            signal.signal(job_exit.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {job_exit.signal})
        os.kill(os.getpid(), job_exit.signal)
        os._exit(128 + job_exit.signal)  # the signal was blocked from outside
    os._exit(job_exit.exit_code or 0)


MONITOR_TIMEOUT_S = 60.0
"""Time that the monitor gets to store the last records before it is left running."""


def await_monitor(
    monitor: Process | None, log: int, spool: Path, location: str | Path
) -> bool | None:
    """Wait until the recording is in the run: True when it is complete, False while the monitor
    is still storing records, None when it needs `stepscope recover`."""
    if monitor is None:
        recover = suggest("recover", locate(location))
        say(f"The recording is still in {spool}. Store it in the run with: {recover}")
        return None
    code = _wait_for_monitor(monitor, spool)
    if code is None and is_suspended(monitor.pid):
        say(
            f"The last records are not in the run, because the monitor is suspended. Resume "
            f"it: kill -CONT {monitor.pid}"
        )
        return None
    if code is None:
        say(
            "Recording continues in the background. The verdict so far follows; for the final "
            f"one: {suggest('diagnose', locate(location))}"
        )
        return False
    if code == 0:
        return True
    say(explain_monitor_failure(log, spool, location))
    return None


def _wait_for_monitor(monitor: Process, spool: Path) -> int | None:
    """Wait for the monitor; its exit status, or None if it stays with processes of the job."""
    if is_suspended(monitor.pid):
        say(f"Resuming the monitor, process {monitor.pid}, which was suspended.")
        monitor.send_signal(signal.SIGCONT)
    handshake = Handshake(spool)
    deadline = time.monotonic() + MONITOR_TIMEOUT_S
    while time.monotonic() < deadline and not handshake.is_detached():
        if stop_is_pending():
            return None
        try:
            return monitor.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    return None


def explain_monitor_failure(log: int, spool: Path, location: str | Path) -> str:
    """Say why the monitor has failed, by its log, and where the records are."""
    failure = f"The monitor failed ({last_line(log)})."
    if not spool.exists():
        return (
            f"{failure} The spool {spool} was deleted, and with it the records that were not in "
            "the run yet."
        )
    return (
        f"{failure} The records are safe in {spool}; fix the cause, then store them in the run "
        f"with: {suggest('recover', locate(location))}"
    )
