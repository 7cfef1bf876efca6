"""A low-rate stack sampler: what a thread is doing, for code that nobody annotated.

One daemon thread wakes at a steady period, looks at the frames of the thread it watches and
writes one record. Frames and stacks are interned, so a sample costs some tens of microseconds.
It stops around a fork (a process with one thread more is one that Python warns about when it
forks) and starts again at the job's next piece of work.

To look, the sampler needs the interpreter lock. Left to itself it would mostly get the lock where
the watched thread gives it up of its own accord, around copies and reads, and hardly ever inside
a pure-Python function that is done before the lock's 5 ms are over: the samples would accuse the
wrong lines. So while a sampler runs, waiting for the lock times out after `SWITCH_INTERVAL_S`,
unless the job has chosen an interval of its own. Only threads that compete for the lock notice.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import sysconfig
import threading
import time
from types import CodeType

from stepscope.capture import session
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

MAIN_PERIOD_S = 0.05
WORKER_PERIOD_S = 0.02
DEFAULT_SWITCH_INTERVAL_S = 0.005
SWITCH_INTERVAL_S = 0.000_25
MAX_FRAMES = 40
MAX_SOURCE_LINES = 1000
GONE_TIMEOUT_S = 0.1
JOIN_TIMEOUT_S = 0.2

_probe = Probe("the stack sampler")
_MARK_BITS = Flag.MARK << 16
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Any allocation may run the collector; later versions run it between two instructions."""
_GENERATOR = 0x20  # inspect.CO_GENERATOR
_SITE = ("site-packages" + os.sep, "dist-packages" + os.sep)

_sampler: _Sampler | None = None


def watch_this_thread(period_s: float) -> None:
    """Sample the calling thread from now on, unless one is being sampled already. Never raises."""
    if _sampler is None:
        _start_protected(period_s)


def library_of(path: str) -> str:
    """The library that a source file belongs to: '' for the user's code, 'python' for Python's.

    >>> library_of("/usr/lib/python3/dist-packages/yaml/loader.py")
    'yaml'
    """
    for site in _SITE:
        _, found, inside = path.rpartition(site)
        if found:
            return inside.partition(os.sep)[0].removesuffix(".py")
    if path.startswith(_OWN_PACKAGE):
        return "stepscope"
    if path.startswith((_STANDARD_LIBRARY, "<frozen")):
        return "python"
    return ""


class _Sampler:
    def __init__(self, target: int, period_s: float) -> None:
        self.period_s = period_s
        self._target = target
        self._stop = threading.Event()
        self._frames: dict[CodeType, tuple[str, bool]] = {}
        self._sources: set[tuple[CodeType, int]] = set()
        self._thread = threading.Thread(target=self._run, name="stepscope-stacks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(JOIN_TIMEOUT_S)
        # The interpreter has done with a thread a moment before the kernel has, whom Python asks
        # how many there are when it forks.
        task = f"/proc/self/task/{self._thread.native_id}"
        latest = time.monotonic() + GONE_TIMEOUT_S
        while os.path.exists(task) and time.monotonic() < latest:
            time.sleep(0.0001)

    def _run(self) -> None:
        _probe.fact("stack_sampler", period_ns=int(self.period_s * 1e9))
        look = _probe.protect(self._look)
        wait, period = self._stop.wait, self.period_s
        while not wait(period) and _probe.alive:
            look(time.monotonic_ns())
        if _sampler is self:  # the thread that it watched is gone, or the probe switched off
            _let_go()

    def _look(self, now: int) -> None:
        places = _walk(self._target)
        if places:
            self._record(places, now)
        else:
            self._stop.set()

    def _record(self, places: list[tuple[CodeType, int]], now: int) -> None:
        logs = session.thread_logs()
        if logs is None:
            return
        user_line = 0
        names: list[str] = []
        for code, line in places:
            text, is_user = self._frames.get(code) or self._describe(code)
            if is_user and not user_line:
                user_line = line
                self._keep_source(logs.session, code, line)
            if text:
                names.append(text)
        key = (Kind.STACK, ";".join(reversed(names)), None)
        meta = logs.metas.get(key) or logs.session.meta(key)
        logs.fine.write(meta | _MARK_BITS, now, 0, user_line << 32 | places[0][1])

    def _describe(self, code: CodeType) -> tuple[str, bool]:
        library = library_of(code.co_filename)
        if library == "stepscope":  # our adapters are not what the job does
            return self._frames.setdefault(code, ("", False))
        mark = "<generator>" if code.co_flags & _GENERATOR and code.co_name[0] != "<" else ""
        text = f"{code.co_qualname}{mark}|{code.co_filename}|{library}".replace(";", ",")
        described = self._frames[code] = (text, not library)
        return described

    def _keep_source(self, current: session.Session, code: CodeType, line: int) -> None:
        """Keep the text of a line of the user's that was seen running: it is evidence."""
        place = (code, line)
        if place in self._sources or len(self._sources) >= MAX_SOURCE_LINES:
            return
        self._sources.add(place)
        import linecache

        text = linecache.getline(code.co_filename, line).strip()
        if text:
            current.fact("source", file=code.co_filename, line=line, text=text[:200])


def _walk(target: int) -> list[tuple[CodeType, int]]:
    """Code and line of the frames of a thread, innermost first.

    A frame keeps the job's objects alive and lets them die on the thread that drops it last, so
    no frame outlives this function, and nothing in it gives the interpreter lock away. A collection
    would: before Python 3.12 asking for a frame can begin one, and what that runs lets the watched
    thread go on and leave the frame that is being asked for. The interpreter then reads memory that
    is no frame any more, so nothing is collected until the walk is over.
    """
    places: list[tuple[CodeType, int]] = []
    collects = _COLLECTS_ANYWHERE and gc.isenabled()
    if collects:
        gc.disable()
    try:
        frame = sys._current_frames().get(target)
        while frame is not None and len(places) < MAX_FRAMES:
            places.append((frame.f_code, frame.f_lineno or 0))  # some instructions are of no line
            frame = frame.f_back
    finally:
        if collects:
            gc.enable()
    return places


def _start(period_s: float) -> None:
    global _sampler
    if session.live and session.current() is not None:
        sampler = _Sampler(threading.get_ident(), period_s)
        sampler.start()
        _sampler = sampler
        _change_switch_interval(DEFAULT_SWITCH_INTERVAL_S, SWITCH_INTERVAL_S)


_start_protected = _probe.protect(_start)


def _change_switch_interval(old: float, new: float) -> None:
    """Change it from *old* to *new*; another value was chosen by the job and stays."""
    if abs(sys.getswitchinterval() - old) < 1e-6:
        sys.setswitchinterval(new)


def stop() -> None:
    """Stop sampling; `watch_this_thread` starts it again."""
    sampler = _sampler
    if sampler is not None:
        _let_go()
        sampler.stop()


def _let_go() -> None:
    _forget()
    _change_switch_interval(SWITCH_INTERVAL_S, DEFAULT_SWITCH_INTERVAL_S)


def _forget() -> None:
    global _sampler
    _sampler = None


# A thread of ours must not meet the interpreter's end: what it would drop there may need the lock.
atexit.register(_probe.protect(stop))
os.register_at_fork(before=_probe.protect(stop), after_in_child=_forget)
