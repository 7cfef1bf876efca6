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
import sysconfig
import threading
import time
from itertools import islice
from opcode import opname
from types import CodeType
from typing import Any

from stepscope.capture import session
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

MAIN_PERIOD_S = 0.05
WORKER_PERIOD_S = 0.02
DEFAULT_SWITCH_INTERVAL_S = 0.005
SWITCH_INTERVAL_S = 0.000_25
MAX_FRAMES = 40
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
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Any allocation may run the collector; later versions only run it between two instructions."""
_GENERATOR = 0x20  # inspect.CO_GENERATOR
_RUNS_CODE = ("CALL", "PRECALL", "BINARY", "COMPARE", "CONTAINS")
"""Start of the names of instructions that run code of their operands, which may be in C."""
_SITE = ("site-packages" + os.sep, "dist-packages" + os.sep)

_sampler: _Sampler | None = None


def watch_this_thread(period_s: float) -> None:
    """Sample the calling thread from now on, unless a sampler is running already. Never raises."""
    if _sampler is None:
        _start_protected(period_s)


def library_of(path: str) -> str:
    """Return the library of a source file: '' for user code, 'python' for the standard library.

    >>> library_of("/usr/lib/python3/dist-packages/yaml/loader.py")
    'yaml'
    """
    for site in _SITE:
        _, separator, relative_path = path.rpartition(site)
        if separator:
            return relative_path.partition(os.sep)[0].removesuffix(".py")
    if path.startswith(_OWN_PACKAGE):
        return "stepscope"
    if path.startswith((_STANDARD_LIBRARY, "<frozen")):
        return "python"
    return ""


def qualified_name(code: CodeType) -> str:
    """Return the name of a function with that of its class; before Python 3.11 without."""
    return getattr(code, "co_qualname", code.co_name)


class _Sampler:
    def __init__(self, target: int, period_s: float) -> None:
        self.period_s = period_s
        self._target = target
        self._stop = threading.Event()
        self._frames: dict[int, tuple[str, bool, CodeType]] = {}
        """By identity: the hash of a code object is computed from all of its constants."""
        self._sources: dict[tuple[str, int], list[str]] = {}
        """Texts of calls by file and line; the first one is the line itself."""
        self._calls: dict[tuple[int, int], str] = {}
        """Text of the frame of user code by code and instruction."""
        self._functions_left = MAX_FUNCTIONS
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
        frames = _walk(self._target)
        if frames:
            self._record(frames, now)
            self._record_delay(now)
        else:
            self._stop.set()

    def _record(self, frames: list[tuple[CodeType, int, int]], now: int) -> None:
        logs = session.thread_logs()
        if logs is None:
            return
        user_line = 0
        names: list[str] = []
        for code, line, instruction in frames:
            text, is_user, _ = self._frames.get(id(code)) or self._describe(code, logs.session)
            if is_user and not user_line:
                user_line = line
                text = self._calls.get((id(code), instruction)) or self._mark_call(
                    logs.session, code, line, instruction
                )
            if text:
                names.append(text)
        key = (Kind.STACK, ";".join(reversed(names)), None)
        meta = logs.metas.get(key) or logs.session.meta(key)
        logs.fine.write(meta | _MARK_BITS, now, 0, user_line << 32 | frames[0][1])

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
        library = library_of(code.co_filename)
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


def _walk(target: int) -> list[tuple[CodeType, int, int]]:
    """Return code, line and instruction of the frames of a thread, innermost first.

    A frame keeps objects of the job alive, and the thread that drops the last reference runs their
    destructors. So no frame outlives this function, and nothing in it releases the GIL. A garbage
    collection would: before Python 3.12, access to a frame can trigger one, and code that it runs
    lets the sampled thread continue and leave the frame being accessed. The interpreter would then
    read freed memory, so the collector is disabled during the walk.
    """
    frames: list[tuple[CodeType, int, int]] = []
    collects = _COLLECTS_ANYWHERE and gc.isenabled()
    if collects:
        gc.disable()
    try:
        frame = sys._current_frames().get(target)
        while frame is not None and len(frames) < MAX_FRAMES:
            # Some instructions have no line.
            frames.append((frame.f_code, frame.f_lineno or 0, frame.f_lasti))
            frame = frame.f_back
    finally:
        if collects:
            gc.enable()
    return frames


def _start(period_s: float) -> None:
    global _sampler
    if session.live and session.current() is not None:
        sampler = _Sampler(threading.get_ident(), period_s)
        sampler.start()
        _sampler = sampler
        _change_switch_interval(DEFAULT_SWITCH_INTERVAL_S, SWITCH_INTERVAL_S)


_start_protected = _probe.protect(_start)


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


# The sampler must not run during interpreter shutdown: objects it drops there may need the GIL.
atexit.register(_probe.protect(stop))
os.register_at_fork(before=_probe.protect(stop), after_in_child=_forget)


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
