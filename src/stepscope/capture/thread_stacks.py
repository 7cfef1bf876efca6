"""Stacks of all threads of this process, for the monitor of a job that makes no progress.

The monitor puts a question into the directory of the process. The sampler that runs looks for it
once a second, which is one call of the system, and answers it: a thread of stepscope can run while
those of the job wait.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from stepscope.capture.frames import library_of, read_threads
from stepscope.capture.stack_texts import qualified_name
from stepscope.spool import read_question, write_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_THREADS = 16
MAX_FRAMES = 60
OWN_THREADS = "stepscope-"
"""Start of the names of stepscope's threads."""
LOOK_INTERVAL_NS = 1_000_000_000

_next_ns = 0


def answer_question(directory: str) -> None:
    """Answer the question of the monitor, if there is one. Looks once a second."""
    global _next_ns
    now_ns = time.monotonic_ns()
    if now_ns < _next_ns:
        return
    _next_ns = now_ns + LOOK_INTERVAL_NS
    number = read_question(directory)
    if number is not None:
        with suppress(OSError):  # the spool is full: the monitor reads the stacks from outside
            write_answer(directory, number, read_stacks())


def read_stacks() -> list[dict[str, Any]]:
    """Read the stacks of all threads except those of stepscope, the main thread first.

    Returns:
        Name and native id of each thread, whether it is the main thread, and its frames, innermost
        first: file, line, and name of the function.
    """
    main = threading.main_thread().ident
    threads = {thread.ident: thread for thread in threading.enumerate()}
    stacks = []
    for ident, frames in read_threads(_walk).items():
        thread = threads.get(ident)
        name = str(ident) if thread is None else thread.name
        if frames and not name.startswith(OWN_THREADS):
            stacks.append(
                {
                    "thread": name,
                    "native_id": getattr(thread, "native_id", None),
                    "is_main": ident == main,
                    "frames": frames,
                }
            )
    stacks.sort(key=lambda stack: not stack["is_main"])
    return stacks[:MAX_THREADS]


def _walk(innermost: Any) -> list[tuple[str, int, str]]:
    """Walk a stack, with the lines of all frames."""
    frames: list[tuple[str, int, str]] = []
    frame = innermost
    while frame is not None and len(frames) < MAX_FRAMES:
        code = frame.f_code
        if library_of(code.co_filename) != "stepscope":  # a wrapper is no code of the job
            frames.append((code.co_filename, frame.f_lineno or 0, qualified_name(code)))
        frame = frame.f_back
    return frames
