"""Low-rate stack sampler for code without annotations, waits for a core, garbage collections.

A daemon thread wakes at a fixed period, walks the frames of the sampled thread and writes one
record. Frames and stacks are interned, so a sample costs tens of microseconds. The sampler stops
around a fork (Python warns when a process with several threads forks) and restarts at the job's
next batch, module call or step.

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
from itertools import islice
from opcode import opname
from types import CodeType
from typing import Any

from stepscope.capture import session
from stepscope.capture.frames import MAX_FRAMES, Libraries, library_of, walk
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.capture.frames import Filler, FrameState

MAIN_PERIOD_S = 0.05
WORKER_PERIOD_S = 0.02
WORKER_DELAY_S = 0.5
"""A process that works for the job and ends earlier records nothing."""
DEFAULT_SWITCH_INTERVAL_S = 0.005
SWITCH_INTERVAL_S = 0.000_25
MAX_SOURCE_LINES = 1000
MAX_CALLS = 20
"""Limit on the recorded calls of one line."""
MAX_FUNCTIONS = 300
MAX_NAMES = 100
"""Limit on the recorded names that one function uses."""
EXIT_TIMEOUT_S = 0.1
JOIN_TIMEOUT_S = 0.2

_probe = Probe("stack samples")
_MARK_BITS = Flag.MARK << 16
_GENERATOR = 0x20  # inspect.CO_GENERATOR
_RUNS_CODE = ("CALL", "PRECALL", "BINARY", "COMPARE", "CONTAINS")
"""Start of the names of instructions that run code of their operands, which may be in C."""

_sampler: _Sampler | None = None
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


def qualified_name(code: CodeType) -> str:
    """Return the name of a function with that of its class; before Python 3.11 without."""
    return getattr(code, "co_qualname", code.co_name)


class _Sampler:
    def __init__(self, target: int, period_s: float, worker: str = "") -> None:
        self.period_s = period_s
        self.worker = worker
        """What a process that works for the job runs; '' for a process that trains."""
        self._target = target
        self._stop = threading.Event()
        self._frames: dict[int, tuple[str, bool, CodeType]] = {}
        """By identity: the hash of a code object is computed from all of its constants."""
        self._sources: dict[tuple[str, int], list[str]] = {}
        """Texts of calls by file and line; the first one is the line itself."""
        self._calls: dict[tuple[int, int], str] = {}
        """Text of the frame of user code by code and instruction."""
        self._functions_left = MAX_FUNCTIONS
        self._libraries = Libraries()
        self._delay = RunQueueDelay(threading.get_native_id())
        self._last_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name="stepscope-stacks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(JOIN_TIMEOUT_S)
        # The kernel removes a thread slightly later than the interpreter does, and Python reads the
        # kernel's thread count when it forks.
        task = f"/proc/self/task/{self._thread.native_id}"
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while os.path.exists(task) and time.monotonic() < deadline:
            time.sleep(0.0001)

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
        sample = _probe.protect(self._sample)
        wait, period = self._stop.wait, self.period_s
        while not wait(period) and _probe.alive and not session.pause_at_end():
            sample(time.monotonic_ns())
        self._delay.close()
        if _sampler is self:  # the sampled thread or the recording has ended, or the probe failed
            _release()

    def _sample(self, now: int) -> None:
        frames = walk(self._target)
        if frames:
            waits = self._libraries.is_waiting(frames)
            filler = self._libraries.find_filler(self._target, frames) if waits else None
            self._record(frames, filler, now)
            self._record_delay(now)
        else:
            self._stop.set()

    def _record(self, frames: list[FrameState], filler: Filler | None, now: int) -> None:
        logs = session.thread_logs()
        if logs is None:
            return
        text, user_line = self._describe_stack(frames, logs.session)
        if filler is not None:
            filling, line = self._describe_stack(filler.frames, logs.session)
            text = f"{text};<filled by>|{line}|{filler.count};{filling}"
        key = (Kind.STACK, text, None)
        meta = logs.metas.get(key) or logs.session.meta(key)
        logs.fine.write(meta | _MARK_BITS, now, 0, user_line << 32 | frames[0][1])

    def _describe_stack(
        self, frames: list[FrameState], current: session.Session
    ) -> tuple[str, int]:
        """Return the text of a stack, and the line of its innermost frame of user code, 0 without
        one."""
        user_line = 0
        names: list[str] = []
        for code, line, instruction in frames:
            text, is_user, _ = self._frames.get(id(code)) or self._describe(code, current)
            if is_user and not user_line:
                user_line = line
                text = self._calls.get((id(code), instruction)) or self._mark_call(
                    current, code, line, instruction
                )
            if text:
                names.append(text)
        return ";".join(reversed(names)), user_line

    def _record_delay(self, now: int) -> None:
        """Record the time without a core since the last sample, or since the wait began."""
        last_ns, self._last_ns = self._last_ns, now
        delay_ns = self._delay.take_ns()
        logs = session.thread_logs()
        if delay_ns and logs is not None:
            key = (Kind.RUN_QUEUE, "", None)
            meta = logs.metas.get(key) or logs.session.meta(key)
            logs.fine.write(meta, max(1, min(last_ns, now - delay_ns)), now, delay_ns)

    def _describe(self, code: CodeType, current: session.Session) -> tuple[str, bool, CodeType]:
        library = self._libraries.find(code)
        if library == "stepscope":  # frames of the adapters are not work of the job
            return self._frames.setdefault(id(code), ("", False, code))
        suffix = "<generator>" if code.co_flags & _GENERATOR and code.co_name[0] != "<" else ""
        text = f"{qualified_name(code)}{suffix}|{code.co_filename}|{library}".replace(";", ",")
        description = self._frames[id(code)] = (text, not library, code)
        if not library and self._functions_left:
            # A function is told by what it uses: it opens files, or makes tensors.
            self._functions_left -= 1
            name, uses = qualified_name(code), list(code.co_names[:MAX_NAMES])
            current.fact("function", file=code.co_filename, name=name, uses=uses)
        return description

    def _mark_call(
        self, current: session.Session, code: CodeType, line: int, instruction: int
    ) -> str:
        """Return the text of a frame of user code with the number of the call that it runs, if that
        is known, and record the texts of line and call: findings quote them as evidence."""
        text = self._frames[id(code)][0]
        texts = self._sources.get((code.co_filename, line))
        if texts is None and len(self._sources) < MAX_SOURCE_LINES:
            import linecache

            texts = [linecache.getline(code.co_filename, line).strip()]
            self._sources[code.co_filename, line] = texts
            if texts[0]:
                current.fact(
                    "source", file=code.co_filename, line=line, call=0, text=texts[0][:200]
                )
        call = _read_call(code, instruction) if texts and texts[0] else ""
        if texts and call:
            if call not in texts[1:] and len(texts) <= MAX_CALLS:
                texts.append(call)
                current.fact(
                    "source",
                    file=code.co_filename, line=line, call=len(texts) - 1, text=call[:200],
                )  # fmt: skip
            if call in texts[1:]:
                number = texts.index(call, 1)
                name, separator, rest = text.partition("|")
                text = f"{name}<call {number}>{separator}{rest}"
        self._calls[id(code), instruction] = text
        return text


def _read_call(code: CodeType, instruction: int) -> str:
    """Return the source of the expression that an instruction evaluates; '' if it is no call or
    operation, for older versions of Python, and without the source."""
    positions = getattr(code, "co_positions", None)
    bytecode = code.co_code
    if positions is None or not 0 <= instruction < len(bytecode):
        return ""
    while instruction and opname[bytecode[instruction]] == "CACHE":  # of a call of Python code
        instruction -= 2
    if not opname[bytecode[instruction]].startswith(_RUNS_CODE):
        return ""
    start, end, column, end_column = next(islice(positions(), instruction // 2, None), [None] * 4)
    if start is None or end is None or column is None or end_column is None:
        return ""
    import linecache

    lines = [linecache.getline(code.co_filename, n).encode() for n in range(start, end + 1)]
    if not all(lines):
        return ""
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    return " ".join(b"".join(lines).decode(errors="replace").split())


def _start(period_s: float) -> None:
    global _sampler
    if session.live and session.current() is not None:
        sampler = _Sampler(threading.get_ident(), period_s)
        sampler.start()
        _sampler = sampler
        _change_switch_interval(DEFAULT_SWITCH_INTERVAL_S, SWITCH_INTERVAL_S)


_start_protected = _probe.protect(_start)


@_probe.protect
def _start_worker(target: str) -> None:
    global _sampler
    sampler = _Sampler(threading.get_ident(), MAIN_PERIOD_S, target)
    sampler.start()
    _sampler = sampler


def _change_switch_interval(old: float, new: float) -> None:
    """Change the interval from *old* to *new*; any other value was set by the job and stays."""
    if abs(sys.getswitchinterval() - old) < 1e-6:
        sys.setswitchinterval(new)


def stop() -> None:
    """Stop sampling; `watch_this_thread` starts it again."""
    sampler = _sampler
    if sampler is not None:
        _release()
        sampler.stop()


def _release() -> None:
    _forget()
    _change_switch_interval(SWITCH_INTERVAL_S, DEFAULT_SWITCH_INTERVAL_S)


def _forget() -> None:
    global _sampler
    _sampler = None


def _begin_child() -> None:
    global _worker
    _worker = ""
    _forget()


# The sampler must not run during interpreter shutdown: objects it drops there may need the GIL.
_stop_protected = _probe.protect(stop)
atexit.register(_stop_protected)
os.register_at_fork(before=_stop_protected, after_in_child=_begin_child)


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
            flags = os.O_RDONLY | os.O_CLOEXEC
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
