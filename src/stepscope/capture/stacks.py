"""Low-rate stack sampler for code without annotations, waits for a core, garbage collections.

A daemon thread wakes at a fixed period, walks the frames of the sampled thread and writes one
record. Frames and stacks are interned, so a sample costs tens of microseconds. The sampler stops
around a fork (Python warns when a process with several threads forks) and goes on in the parent.
It takes over from the samples of the start (`startup`), which go on when the sampled thread ends.

The sampler needs the global interpreter lock (GIL). With the default switch interval of 5 ms it
would mostly acquire the lock where the sampled thread releases it voluntarily, around copies and
reads, and hardly ever inside a pure-Python function that takes less than 5 ms: samples would be
biased towards the wrong lines. So while a sampler runs, the switch interval is `SWITCH_INTERVAL_S`,
unless the job has set its own interval. Only threads that compete for the lock are affected.

Probe for Python's garbage collector, through `gc.callbacks`. A collection interrupts its thread at
any point: in a forward pass, between steps, or in the middle of a write to a span log, which the
logs are designed for. Training processes are watched from their first step on; forked children are
not, unless they train too. Most collections visit a few hundred new objects and take microseconds:
they are not timed.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from typing import Any

from stepscope.capture import session, startup
from stepscope.capture.frames import MAX_FRAMES, library_of, walk
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.capture.stack_texts import MARK_BITS, Budget, texts_of
from stepscope.capture.startup import (
    DEFAULT_SWITCH_INTERVAL_S,
    SWITCH_INTERVAL_S,
    change_switch_interval,
)
from stepscope.capture.thread_stacks import answer_question
from stepscope.spool import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.capture.stack_reading import FrameState

MAIN_PERIOD_S = 0.05
WORKER_PERIOD_S = 0.02
WORKER_DELAY_S = 0.5
"""A process that works for the job and ends earlier records nothing."""
JOIN_TIMEOUT_S = 0.2

_probe = Probe("stack samples")
_sampler: _Sampler | None = None
release_listeners: list[Callable[[], None]] = []
"""Called when a sampler ends, in any thread: another one may be needed."""
_worker = ""
"""What this process runs if it works for the job, as far as is known; '' if it trains."""


def watch_this_thread(period_s: float) -> None:
    """Sample the calling thread from now on, unless a sampler is running already. Never raises."""
    global _worker
    if _worker:  # it trains, maybe in another thread
        _probe.fact("worker_process", target=_worker, trains=True)
        _worker = ""
        _stop_protected()
    if _sampler is None:
        _start_protected(period_s)


def is_watching() -> bool:
    """Return True if `watch_this_thread` has nothing to do."""
    return _sampler is not None and not _worker


def watch_worker(target: str) -> None:
    """Sample the calling thread of a process that works for the job, once it has run for
    `WORKER_DELAY_S`. Never raises.

    Args:
        target: function that it runs, or the library that started it.
    """
    global _worker
    if _sampler is None and session.live:
        _worker = target
        _start_worker(target)


def watch_child_processes() -> None:
    """Sample the processes that this one starts by multiprocessing, from now on. Idempotent.

    Those of torch are left out: they load batches or train, and are sampled then.
    """
    process = sys.modules.get("multiprocessing.process")
    bootstrap = getattr(getattr(process, "BaseProcess", None), "_bootstrap", None)
    if process is not None and bootstrap is not None and not hasattr(bootstrap, "__wrapped__"):
        patch(process.BaseProcess, "_bootstrap", _watched_bootstrap)


def _watched_bootstrap(original: Callable[..., Any]) -> Callable[..., Any]:
    def _bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        _watch_process(self)
        return original(self, *args, **kwargs)

    return _bootstrap


@_probe.protect
def _watch_process(process: Any) -> None:
    target = getattr(process, "_target", None) or type(process).run
    module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
    if not module.startswith("torch."):
        watch_worker(f"{module}.{name}")


class _Sampler:
    def __init__(
        self, target: int, period_s: float, worker: str = "", native_id: int | None = None
    ) -> None:
        self.period_s = period_s
        self.worker = worker
        """What a process that works for the job runs; '' for a process that trains."""
        self._target = target
        self._stop = threading.Event()
        self._budget = Budget()
        self._native_id = threading.get_native_id() if native_id is None else native_id
        self._delay = RunQueueDelay(self._native_id)
        self._last_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name="stepscope-stacks", daemon=True)

    def start(self) -> None:
        with startup.SignalsBlocked():
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(JOIN_TIMEOUT_S)
        startup.wait_for_exit(self._thread.native_id or 0)

    def continued(self) -> _Sampler:
        """Return one that goes on where this one has stopped."""
        return _Sampler(self._target, self.period_s, self.worker, self._native_id)

    def _run(self) -> None:
        if self.worker and self._stop.wait(WORKER_DELAY_S):
            return
        if self.worker:
            _probe.fact("worker_process", target=self.worker, trains=False)
        _probe.fact(
            "stack_sampler",
            period_ns=int(self.period_s * 1e9),
            counts_delays=self._delay.is_available,
        )
        sample, answer = _probe.protect(self._sample), _probe.protect(self._answer)
        wait, period = self._stop.wait, self.period_s
        while not wait(period) and _probe.alive and not session.pause_at_end():
            sample(time.monotonic_ns())
            answer()
        self._delay.close()
        if _sampler is self:  # the sampled thread or the recording has ended, or the probe failed
            _release()
            startup.resume()

    @staticmethod
    def _answer() -> None:
        current = session.current()
        if current is not None:
            answer_question(current.directory)

    def _sample(self, now: int) -> None:
        if not session.live and session.is_open():  # paused: a new thread would need new logs
            self._last_ns = now
            self._delay.take_ns()
            return
        frames = walk(self._target)
        logs = session.thread_logs()
        if not frames or logs is None:
            self._stop.set()
            return
        self._record(frames, now, logs)
        self._record_delay(now, logs)

    def _record(self, frames: list[FrameState], now: int, logs: session.ThreadLogs) -> None:
        texts = texts_of(logs.session)
        waits = texts.libraries.is_waiting(frames)
        filler = texts.libraries.find_filler(self._target, frames) if waits else None
        names, user_line = texts.describe(frames, self._budget)
        text = ";".join(names)
        if filler is not None:
            names, line = texts.describe(filler.frames, self._budget)
            text = f"{text};<filled by>|{line}|{filler.count};{';'.join(names)}"
        key = (Kind.STACK, text, None)
        meta = logs.metas.get(key) or logs.session.meta(key)
        logs.fine.write(meta | MARK_BITS, now, 0, user_line << 32 | frames[0][1])

    def _record_delay(self, now: int, logs: session.ThreadLogs) -> None:
        """Record the time without a core since the last sample, or since the wait began."""
        last_ns, self._last_ns = self._last_ns, now
        delay_ns = self._delay.take_ns()
        if delay_ns:
            key = (Kind.RUN_QUEUE, "", None)
            meta = logs.metas.get(key) or logs.session.meta(key)
            logs.fine.write(meta, max(1, min(last_ns, now - delay_ns)), now, delay_ns)


def _start(period_s: float) -> None:
    global _sampler
    if session.live and session.current() is not None:
        startup.stop()
        sampler = _Sampler(threading.get_ident(), period_s)
        sampler.start()
        _sampler = sampler
        change_switch_interval(DEFAULT_SWITCH_INTERVAL_S, SWITCH_INTERVAL_S)


_start_protected = _probe.protect(_start)


@_probe.protect
def _start_worker(target: str) -> None:
    global _sampler
    startup.stop()
    sampler = _Sampler(threading.get_ident(), MAIN_PERIOD_S, target)
    sampler.start()
    _sampler = sampler


def stop() -> None:
    """Stop sampling; `watch_this_thread` starts it again."""
    sampler = _sampler
    if sampler is not None:
        _release()
        sampler.stop()


def _release() -> None:
    _forget()
    for listener in release_listeners:
        listener()
    change_switch_interval(SWITCH_INTERVAL_S, DEFAULT_SWITCH_INTERVAL_S)


def _forget() -> None:
    global _sampler
    _sampler = None


def _begin_child() -> None:
    global _worker
    _worker = ""
    _forget()


_forking: _Sampler | None = None
_fork_budget = startup.ForkBudget()


@_probe.protect
def _stop_to_fork() -> None:
    global _forking
    if _sampler is not None:
        with _fork_budget:
            _forking = _sampler
            stop()


@_probe.protect
def _restart() -> None:
    """Go on in the parent, unless it forks so often that this would take long: then at the job's
    next batch, module call or step."""
    global _forking, _sampler
    earlier, _forking = _forking, None
    if earlier is not None and _sampler is None and _fork_budget.has_room():
        with _fork_budget:
            sampler = earlier.continued()
            sampler.start()
            _sampler = sampler
            if not sampler.worker:
                change_switch_interval(DEFAULT_SWITCH_INTERVAL_S, SWITCH_INTERVAL_S)


# The sampler must not run during interpreter shutdown: objects it drops there may need the GIL.
_stop_protected = _probe.protect(stop)
atexit.register(_stop_protected)
os.register_at_fork(before=_stop_to_fork, after_in_parent=_restart, after_in_child=_begin_child)


MIN_DELAY_NS = 200_000
"""Shorter delays are added to the next ones: every thread has some of a few microseconds."""
_MAX_BYTES = 64


class RunQueueDelay:
    """Counter of one thread. The kernel counts a wait when it ends."""

    __slots__ = ("_descriptor", "_total_ns")

    def __init__(self, thread: int) -> None:
        """Open the counter of the thread with this native id."""
        self._total_ns = 0
        try:
            flags = os.O_RDONLY
            self._descriptor = os.open(f"/proc/self/task/{thread}/schedstat", flags)
            running_ns, self._total_ns, _ = self._read()
            if not running_ns:  # the counters are switched off
                self.close()
        except (OSError, ValueError):
            self._descriptor = -1

    @property
    def is_available(self) -> bool:
        """False on kernels that do not count."""
        return self._descriptor >= 0

    def take_ns(self) -> int:
        """Return the delay since the last call that did not return 0; 0 for less than
        `MIN_DELAY_NS`."""
        if self._descriptor < 0:
            return 0
        try:
            total_ns = self._read()[1]
        except (OSError, ValueError):  # the thread has ended
            self.close()
            return 0
        delay_ns = total_ns - self._total_ns
        if delay_ns < MIN_DELAY_NS:
            return 0
        self._total_ns = total_ns
        return delay_ns

    def close(self) -> None:
        """Close the file of the counter."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> tuple[int, int, int]:
        running_ns, waiting_ns, slice_count = os.pread(self._descriptor, _MAX_BYTES, 0).split()
        return int(running_ns), int(waiting_ns), int(slice_count)


MIN_DURATION_NS = 100_000
"""Shorter collections are not recorded."""
SMALL_THRESHOLD = 2000
"""A collection of this many objects takes less than `MIN_DURATION_NS`. Python's default is 700, and
2000 from Python 3.13 on."""

_garbage_probe = Probe("garbage collections", coarse=True)
_now = time.monotonic_ns
_start_ns = 0
_min_generation = 0


def watch_this_process() -> None:
    """Record collections from now on.

    Called after some of the steps, because the job may change the settings of the collector, and
    because a fork stops the probe.
    """
    global _min_generation
    is_small = gc.isenabled() and 0 < gc.get_threshold()[0] <= SMALL_THRESHOLD
    _min_generation = 1 if is_small else 0
    if _watch not in gc.callbacks and session.live:
        gc.callbacks.append(_watch)


def _watch(phase: str, info: dict[str, Any]) -> None:
    """Time one collection. The collector never runs concurrently: one start time is enough."""
    global _start_ns
    if info["generation"] < _min_generation:
        return
    if phase == "start":
        _start_ns = _now()
        return
    end_ns = _now()
    is_long = end_ns - _start_ns >= MIN_DURATION_NS
    if is_long and hasattr(session.local, "logs") and not sys.is_finalizing():
        _record(end_ns, info["generation"])


def _write(end_ns: int, generation: int) -> None:
    _garbage_probe.write(
        Kind.GARBAGE_COLLECTION, _user_location(), _start_ns, end_ns, value=generation
    )


_record = _garbage_probe.protect(_write)


def _user_location() -> str:
    """Return file and line of the innermost frame of user code; '' without one.

    No frame outlives this function: it would keep objects of the job alive.
    """
    frame = sys._getframe()
    for _ in range(MAX_FRAMES):
        caller = frame.f_back
        if caller is None:
            break
        frame = caller
        file = frame.f_code.co_filename
        if not library_of(file):
            return f"{file.rpartition('/')[2]}:{frame.f_lineno}"
    return ""


def _stop() -> None:
    if _watch in gc.callbacks:
        gc.callbacks.remove(_watch)


os.register_at_fork(after_in_child=_stop)
