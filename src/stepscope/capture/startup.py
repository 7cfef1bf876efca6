"""Stack samples of the main thread from the start of the interpreter on.

They show what a job does before its first step, and what processes do that never train: launchers,
and scripts that prepare data. A thread samples the main thread until the step sampler of `stacks`
takes over, or the interpreter ends. A process that records nothing else and ends within
`PROGRAM_AGE_NS` writes nothing; until then the samples are in memory.

The start-up hook loads this module into every Python process of a job. So it imports nothing, and
leaves the description of stacks to `stack_texts`, which its thread imports. A fork waits until the
thread has ended, so that no child inherits a lock that it holds.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # loads no enumerations, as signal does
import _thread
import atexit
import os
import sys
import time

from stepscope.capture import session
from stepscope.capture.guard import STRICT, Probe
from stepscope.capture.stack_reading import walk_thread
from stepscope.spool import START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepscope.capture.stack_reading import FrameState
    from stepscope.capture.stack_texts import SampleWriter

DENSE_PERIOD_S = 0.02
DENSE_NS = 10_000_000_000
"""Time for which samples are dense."""
PERIOD_S = 0.05
MAX_PERIOD_S = 0.5
UNCHANGED_SHARE = 0.01
"""The period is at most this share of the time since the stack has changed, but for `PERIOD_S`."""
PROGRAM_AGE_NS = 1_000_000_000
"""A process that records nothing itself is recorded from this age on."""
WRITING_NS = 1_000_000_000
"""Time for which samples are in memory, to be written together."""
REPEAT_NS = 1_000_000_000
"""Of equal successive stacks, the first and the last are recorded, and one in this time."""
FORK_SHARE = 0.01
"""Share of the life of a process that may be spent on ending and starting samplers at its forks."""
FORK_ALLOWANCE_NS = 250_000_000
FORK_TIMEOUT_S = 5.0
"""The thread may be importing a module, whose lock a child must not inherit."""
STOP_TIMEOUT_S = 0.5
EXIT_TIMEOUT_S = 0.1
DEFAULT_SWITCH_INTERVAL_S = 0.005
SWITCH_INTERVAL_S = 0.000_25

SWITCH_VARIABLE = "STEPSCOPE_START_SAMPLES"
"""Environment variable that is `off` for jobs that need a process of one thread, as `unshare` and
`setns` of user namespaces do."""

# Bound now: libraries of coroutines replace them.
_now = time.monotonic_ns
_sleep = time.sleep
_allocate_lock = _thread.allocate_lock
_start_new_thread = _thread.start_new_thread
_probe = Probe("stack samples of the start")


def change_switch_interval(old: float, new: float) -> None:
    """Change the interval from *old* to *new*; any other value was set by the job and stays."""
    if abs(sys.getswitchinterval() - old) < 1e-6:
        sys.setswitchinterval(new)


class SignalsBlocked:
    """Context in which a thread starts that leaves the signals of the process to those of the job:
    one that the job blocks, to wait for it, must not be delivered to another thread."""

    __slots__ = ("_mask",)

    def __enter__(self) -> None:
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())

    def __exit__(self, *_: object) -> None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)


def wait_for_exit(thread: int) -> None:
    """Wait until the kernel has removed a thread, slightly later than the interpreter does: Python
    reads the kernel's thread count when it forks."""
    task = f"/proc/self/task/{thread}"
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while os.path.exists(task) and time.monotonic() < deadline:
        _sleep(0.0001)


class ForkBudget:
    """Time that was spent on ending and starting a sampler at the forks of the process."""

    __slots__ = ("_begin_ns", "_first_ns", "_spent_ns")

    def __init__(self) -> None:
        self._first_ns = _now()
        self._begin_ns = self._spent_ns = 0

    def __enter__(self) -> None:
        self._begin_ns = _now()

    def __exit__(self, *_: object) -> None:
        self._spent_ns += _now() - self._begin_ns

    def has_room(self) -> bool:
        """Return True if the sampler may be started again."""
        return self._spent_ns < FORK_ALLOWANCE_NS + FORK_SHARE * (_now() - self._first_ns)


class _Sampler:
    """Sampler of the thread that creates it.

    Args:
        earlier: the one that a fork has ended, whose samples this one continues.
    """

    def __init__(self, target: int, earlier: _Sampler | None = None) -> None:
        self.target = target
        self._native_id = 0
        self._wake = _allocate_lock()
        self._running = _allocate_lock()
        self._samples: list[tuple[int, list[FrameState]]] = [] if not earlier else earlier._samples
        """Samples that are not written."""
        self._writer: SampleWriter | None = earlier._writer if earlier else None
        self._held: tuple[int, list[FrameState]] | None = earlier._held if earlier else None
        """Latest sample, if it is equal to the one before, which is written."""
        self._last: list[FrameState] = earlier._last if earlier else []
        self._written_ns: int = earlier._written_ns if earlier else 0
        self._changed_ns: int = earlier._changed_ns if earlier else _now()
        self._has_short_interval = False

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the limit of threads is reached.
        """
        self._wake.acquire()
        self._running.acquire()
        try:
            with SignalsBlocked():
                _start_new_thread(self._run, ())
        except RuntimeError:
            self._running.release()
            raise

    def stop(self, timeout_s: float) -> None:
        self._wake.release()
        if self._running.acquire(timeout=timeout_s) and self._native_id:
            wait_for_exit(self._native_id)

    def _run(self) -> None:
        try:
            self._native_id = _thread.get_native_id()
            while not self._wake.acquire(timeout=self._find_period_s()) and self._sample(_now()):
                pass
            self._write(is_last=True)
        except Exception as error:  # noqa: BLE001 - the guard
            if session.is_open() or STRICT:
                _probe.fail(error)
        finally:
            self._set_interval(is_short=False)
            self._running.release()

    def _find_period_s(self) -> float:
        now = _now()
        if now - _started_ns < DENSE_NS:
            return DENSE_PERIOD_S
        unchanged_s = (now - self._changed_ns) / 1e9
        return max(PERIOD_S, min(MAX_PERIOD_S, UNCHANGED_SHARE * unchanged_s))

    def _sample(self, now: int) -> bool:
        """Take a sample; False if it was the last."""
        frames = walk_thread(self.target)
        if not frames or not session.live:
            return False
        # With the default interval the sampler would mostly get the lock where the main thread
        # releases it, around reads. Threads of the job that compete for it keep the default.
        self._set_interval(is_short=_thread._count() == 1)
        self._add(now, frames)
        is_recorded = session.is_open() or now - _started_ns >= PROGRAM_AGE_NS
        if not is_recorded or not self._samples or now - self._samples[0][0] < WRITING_NS:
            return True
        return self._write()

    def _add(self, now: int, frames: list[FrameState]) -> None:
        if frames == self._last and now - self._written_ns < REPEAT_NS:
            self._held = now, frames
            return
        if self._held is not None and frames != self._last:
            self._samples.append(self._held)
        if frames != self._last:
            self._changed_ns = now
        self._held, self._last, self._written_ns = None, frames, now
        self._samples.append((now, frames))

    def _write(self, *, is_last: bool = False) -> bool:
        """Write the samples; False if that is impossible.

        Args:
            is_last: no sample follows. It does not begin to record the process.
        """
        if is_last and self._held is not None:
            self._samples.append(self._held)
            self._held = None
        if not self._samples:
            return True
        if is_last and not session.is_open():
            return False
        from stepscope.capture.stack_texts import SampleWriter

        current = session.begin()
        if current is None or session.is_over(current.end_ns):
            return False
        if self._writer is None or self._writer.session is not current:
            self._writer = SampleWriter(current, START)
        samples, self._samples = self._samples, []
        self._writer.write(samples)
        if not is_last:
            from stepscope.capture.thread_stacks import answer_question

            answer_question(current.directory)
        return True

    def _set_interval(self, *, is_short: bool) -> None:
        if is_short != self._has_short_interval:
            self._has_short_interval = is_short
            values = DEFAULT_SWITCH_INTERVAL_S, SWITCH_INTERVAL_S
            change_switch_interval(*(values if is_short else values[::-1]))


_sampler: _Sampler | None = None
_forking: _Sampler | None = None
"""The sampler that a fork has ended."""
_budget: ForkBudget
_started_ns = 0
_main_thread = 0
_pid = 0
"""Process that the thread is of: C code may fork without a word to Python."""


def start() -> None:
    """Sample the calling thread from now on. Idempotent."""
    global _budget, _started_ns, _main_thread, _pid
    may_be_daemon = getattr(_thread, "daemon_threads_allowed", None)  # not in a subinterpreter
    is_off = os.environ.get(SWITCH_VARIABLE) == "off"
    if _started_ns or is_off or (may_be_daemon is not None and not may_be_daemon()):
        return
    _started_ns, _main_thread, _pid = _now(), _thread.get_ident(), os.getpid()
    _budget = ForkBudget()
    _begin(_Sampler(_main_thread))
    # It must not run during interpreter shutdown: objects it drops there may need the GIL.
    atexit.register(stop)
    os.register_at_fork(before=_stop_to_fork, after_in_parent=_restart, after_in_child=_forget)


def resume() -> None:
    """Sample the main thread again, after a thread that another sampler has watched."""
    if _main_thread and _sampler is None and _probe.alive:
        _begin(_Sampler(_main_thread))


def _begin(sampler: _Sampler) -> None:
    global _sampler
    _sampler = sampler
    try:
        sampler.start()
    except (RuntimeError, MemoryError):  # the limit of threads
        _sampler = None


def stop() -> None:
    """End the samples: another sampler goes on, or the interpreter ends."""
    global _sampler, _forking
    sampler, _sampler, _forking = _sampler, None, None
    if sampler is not None and os.getpid() == _pid:
        sampler.stop(STOP_TIMEOUT_S)


def _stop_to_fork() -> None:
    global _sampler, _forking
    if _sampler is not None and os.getpid() == _pid:
        with _budget:
            _forking, _sampler = _sampler, None
            _forking.stop(FORK_TIMEOUT_S)


def _restart() -> None:
    """Go on in the parent, unless it forks so often that this would take long; then at a later
    fork."""
    global _forking
    if _forking is not None and _budget.has_room():
        with _budget:
            earlier, _forking = _forking, None
            _begin(_Sampler(earlier.target, earlier))


def _forget() -> None:
    global _sampler, _forking, _main_thread, _pid
    _sampler = _forking = None
    _pid = os.getpid()
    _main_thread = 0
