"""Frames of threads: of the sampled one, of the coroutine that it awaits, of what fills its waits.

While the sampled thread waits, in a blocking call of the standard library or in a C function that
may block, the other threads are looked at as well, and the stack of the one that fills the wait is
recorded behind its own. A thread fills it where a pool or an input pipeline runs code of the job in
it, or where that code uses what ends waits (`put`, `set`); a thread that the job joins may be any.

A frame keeps objects of the job alive, and the thread that drops the last reference runs their
destructors. So no frame outlives the functions here, and nothing in them releases the GIL. A
garbage collection would: before Python 3.12, access to a frame can trigger one, and code that it
runs lets the sampled thread continue and leave the frame being accessed. The interpreter would then
read freed memory, so the collector is disabled meanwhile.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import threading
from itertools import islice
from opcode import opname
from types import AsyncGeneratorType, CoroutineType, GeneratorType

from stepscope.capture.stack_reading import is_import, read_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import CodeType, FrameType
    from typing import Any, TypeVar

    from stepscope.capture.stack_reading import FrameState

    T = TypeVar("T")

MAX_FRAMES = 40
_OUTER_FRAMES = 16
_INNER_FRAMES = 12
_USER_FRAMES = 8
"""Frames that a longer stack keeps: outermost, innermost, and between them those of user code,
from the innermost on. The others are the innermost of the rest."""
MAX_THREADS = 32
"""Limit on the threads that are looked at in one sample."""
MAX_AWAITED = 20
"""Limit on the coroutines that one coroutine awaits through each other."""
_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Any allocation may run the collector; later versions only run it between two instructions."""
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SITE = ("site-packages" + os.sep, "dist-packages" + os.sep)
_BLOCKING_FILES = frozenset(
    (
        *("_base.py", "client.py", "connection.py", "pool.py", "popen_fork.py", "queue.py"),
        *("queues.py", "selectors.py", "socket.py", "ssl.py", "subprocess.py", "threading.py"),
    )
)
"""Files of the standard library whose functions block."""
_BLOCKING_NAMES = frozenset(["accept", "acquire", "get", "poll", "recv", "recv_into", "select"])
"""C functions that block; they have no frame."""
_POOLS = (
    os.path.join("concurrent", "futures", "thread.py"),
    os.path.join("multiprocessing", "pool.py"),
)
_NO_POOLS = frozenset(["", "python", "stepscope", "torch"])
"""Libraries whose threads run no code of the job; the standard library's do in `_POOLS`."""
_ENDS_WAITS = frozenset(
    ["put", "put_nowait", "set", "set_result", "notify", "notify_all", "release"]
)
"""Methods that end the wait of another thread."""
_CALLS = ("CALL", "PRECALL", "CACHE")
_THREAD_FRAMES = 4
"""Outermost frames that tell the purpose of a thread: two of its start, `run`, and the target."""
_SUSPENDED: dict[type, tuple[str, str]] = {
    AsyncGeneratorType: ("ag_frame", "ag_await"),
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
}
"""Types of what a coroutine awaits, with their attributes for the frame and what they await."""
_LOOP_FILE = os.path.join("asyncio", "base_events.py")


def library_of(path: str) -> str:
    """Return the library of a source file: '' for user code, 'python' for the standard library.

    >>> library_of("/usr/lib/python3/dist-packages/yaml/loader.py")
    'yaml'
    """
    for site in _SITE:
        _, separator, relative_path = path.rpartition(site)
        if separator:
            return relative_path.partition(os.sep)[0].removesuffix(".py")
    if path.startswith(_PACKAGE):
        return "stepscope"
    if path.startswith((_STANDARD_LIBRARY, "<frozen")):
        return "python"
    return ""


class Filler:
    """Thread that fills a wait of the sampled one."""

    __slots__ = ("count", "frames")

    def __init__(self, count: int, frames: list[FrameState]) -> None:
        self.count = count
        """Threads with the same purpose."""
        self.frames = frames
        """Innermost first."""


class Libraries:
    """Libraries of code objects, and the code that blocks."""

    def __init__(self) -> None:
        self._libraries: dict[int, tuple[str, CodeType]] = {}
        """By identity: the hash of a code object is computed from all of its constants."""

    def find(self, code: CodeType) -> str:
        """Return the library of a code object."""
        entry = self._libraries.get(id(code))
        if entry is None:
            entry = self._libraries[id(code)] = library_of(code.co_filename), code
        return entry[0]

    def is_waiting(self, frames: list[FrameState]) -> bool:
        """Return True if a thread may wait for another thread, a process or a service."""
        code, _, instruction = frames[0]
        library = self.find(code)
        if any(outer.co_filename.endswith("selectors.py") for outer, _, _ in frames[1:MAX_AWAITED]):
            return True  # an event loop, behind what it waits for
        if library == "python":
            return os.path.basename(code.co_filename) in _BLOCKING_FILES
        if library == "torch" or _BLOCKING_NAMES.isdisjoint(code.co_names):
            return False
        bytecode = code.co_code
        is_inside = 0 <= instruction < len(bytecode)
        return is_inside and opname[bytecode[instruction]].startswith(_CALLS)

    def find_filler(self, target: int, waiting: list[FrameState]) -> Filler | None:
        """Find the thread that fills the wait of a thread; None for no such thread.

        Of several, one that runs code of the job, and does not wait itself, comes first.
        """
        threads = walk_others(target)
        joins = any(code.co_name == "join" for code, _, _ in waiting[:3])
        purposes = [tuple(id(code) for code, _, _ in f[-_THREAD_FRAMES:]) for f in threads]
        filler = None
        for frames, purpose in zip(threads, purposes):
            runs_job = any(not self.find(code) for code, _, _ in frames)
            if not runs_job or not (joins or self._fills(frames)):
                continue
            is_waiting = self.is_waiting(frames)
            if filler is None or not is_waiting:
                filler = Filler(purposes.count(purpose), frames)
            if not is_waiting:
                break
        return filler

    def _fills(self, frames: list[FrameState]) -> bool:
        """Return True if a thread of a library runs code of the job, or a thread of the job uses
        what ends waits."""
        for code, _, _ in frames:
            library = self.find(code)
            if library == "" and not _ENDS_WAITS.isdisjoint(code.co_names):
                return True
            if library not in _NO_POOLS or (
                library == "python" and code.co_filename.endswith(_POOLS)
            ):
                return True
        return False


def shorten(frames: list[FrameState], libraries: Libraries) -> list[FrameState]:
    """Return at most `MAX_FRAMES` frames of a stack, with its innermost frame of user code, its
    outermost frames, and of the modules of a library that import each other the first and the last.

    Args:
        frames: innermost first.
        libraries: those of the code.
    """
    if len(frames) <= _OUTER_FRAMES:
        return frames
    frames = _join_imports(frames, libraries)
    count = len(frames)
    if count <= MAX_FRAMES:
        return frames
    middle = range(_INNER_FRAMES, count - _OUTER_FRAMES)
    users = [i for i in middle if not libraries.find(frames[i][0])][:_USER_FRAMES]
    selected = {*range(_INNER_FRAMES), *range(count - _OUTER_FRAMES, count), *users}
    rest = (i for i in middle if i not in selected)
    selected.update(list(islice(rest, MAX_FRAMES - len(selected))))
    return [frames[i] for i in sorted(selected)]


def _join_imports(frames: list[FrameState], libraries: Libraries) -> list[FrameState]:
    """Leave out the modules of a library that one of its modules imports and that import another
    one, with the frames of the import machinery before them."""
    joined: list[FrameState] = []
    importing: list[str] = []
    """Libraries of the frames of modules at the end of `joined`, '' for other frames."""
    for frame in frames:
        code = frame[0]
        library = ""
        if code.co_name == "<module>" and not is_import(code):
            library = libraries.find(code)
            # module, import, module, import, and now the module that imports them
            if (
                library
                and importing[-4:] == [library, "", library, ""]
                and all(is_import(joined[i][0]) for i in (-1, -3))
            ):
                del joined[-2:], importing[-2:]
        joined.append(frame)
        importing.append(library)
    return joined


def walk(target: int) -> list[FrameState]:
    """Return the frames of a thread, innermost first; while it runs an event loop of asyncio that
    waits, after those of the coroutine for which the loop runs."""
    collects = _COLLECTS_ANYWHERE and gc.isenabled()
    if collects:
        gc.disable()
    try:
        frame = sys._current_frames().get(target)
        frames, loop_frame = read_frames(frame), _find_loop(frame)
        if loop_frame is not None:
            frames = _read_awaited(loop_frame) + frames
        return frames
    finally:
        frame = loop_frame = None
        if collects:
            gc.enable()


def walk_others(target: int) -> list[list[FrameState]]:
    """Return the frames of the other threads of the job, innermost first."""
    skipped = {target, threading.get_ident()}
    threads = read_threads(lambda frame: read_frames(frame, MAX_FRAMES), skipped, MAX_THREADS)
    return list(threads.values())


def read_threads(
    read: Callable[[FrameType], T], skipped: Collection[int] = (), limit: int | None = None
) -> dict[int, T]:
    """Read the innermost frame of each thread.

    Args:
        read: reads a frame; it must neither keep it nor release the GIL.
        skipped: threads that are left out.
        limit: number of threads; None for all.
    """
    collects = _COLLECTS_ANYWHERE and gc.isenabled()
    if collects:
        gc.disable()
    current: dict[int, FrameType] = {}
    try:
        current = sys._current_frames()
        return {
            ident: read(current[ident]) for ident in islice(current, limit) if ident not in skipped
        }
    finally:
        current.clear()
        if collects:
            gc.enable()


def _find_loop(frame: FrameType | None) -> FrameType | None:
    """Find the frame of the event loop that waits in the thread with an innermost frame."""
    if frame is None or not frame.f_code.co_filename.endswith("selectors.py"):
        return None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "run_until_complete" and code.co_filename.endswith(_LOOP_FILE):
            return frame
        frame = frame.f_back
    return None


def _read_awaited(loop_frame: FrameType) -> list[FrameState]:
    """Return the frames of the coroutine that an event loop runs until it is complete, and of what
    it awaits, innermost first. Only objects of Python itself are read: others may run any code."""
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is None:
        return []
    frames: list[FrameState] = []
    awaited: Any = loop_frame.f_locals.get("future")
    while issubclass(type(awaited), tasks.Task) and len(frames) < MAX_AWAITED:
        frames = _read_coroutines(awaited.get_coro()) + frames
        awaited = getattr(awaited, "_fut_waiter", None)
        if type(awaited).__name__ == "_GatheringFuture":
            children = [c for c in awaited._children if issubclass(type(c), tasks.Task)]
            awaited = next((child for child in children if not child.done()), None)
    return frames


def _read_coroutines(coroutine: Any) -> list[FrameState]:
    """Return the frames of a coroutine and of those that it awaits, innermost first."""
    frames: list[FrameState] = []
    while type(coroutine) in _SUSPENDED and len(frames) < MAX_AWAITED:
        frame_name, awaited_name = _SUSPENDED[type(coroutine)]
        frame = getattr(coroutine, frame_name)
        if frame is None:
            break
        frames.append((frame.f_code, frame.f_lineno or 0, frame.f_lasti))
        coroutine = getattr(coroutine, awaited_name)
    return frames[::-1]
