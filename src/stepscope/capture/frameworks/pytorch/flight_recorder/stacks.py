"""Python stacks of the threads of this process, for the account of a job that is stuck."""

from __future__ import annotations

import sys
import threading
from typing import Any

from stepscope.capture.stacks import library_of

MAX_THREADS = 16
MAX_FRAMES = 60
OWN_THREADS = "stepscope-"
"""Start of the names of stepscope's threads."""


def read_stacks() -> list[dict[str, Any]]:
    """Read the stacks of all threads except those of stepscope, the main thread first.

    Returns:
        Name of each thread, whether it is the main thread, and its frames, innermost first: file,
        line, and name of the function.
    """
    main = threading.main_thread().ident
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    for ident, frames in _walk_all().items():
        name = threads.get(ident, str(ident))
        if not name.startswith(OWN_THREADS):
            stacks.append({"thread": name, "is_main": ident == main, "frames": frames})
    stacks.sort(key=lambda stack: not stack["is_main"])
    return stacks[:MAX_THREADS]


def _walk_all() -> dict[int, list[tuple[str, int, str]]]:
    """Walk all stacks. No frame outlives this function: a frame keeps objects of the job alive."""
    walked = {}
    frames = sys._current_frames()
    try:
        for ident, frame in frames.items():
            walked[ident] = _walk(frame)
    finally:
        frames.clear()
    return walked


def _walk(innermost: Any) -> list[tuple[str, int, str]]:
    frames: list[tuple[str, int, str]] = []
    frame = innermost
    while frame is not None and len(frames) < MAX_FRAMES:
        code = frame.f_code
        if library_of(code.co_filename) != "stepscope":  # a wrapper is no code of the job
            frames.append((code.co_filename, frame.f_lineno or 0, code.co_qualname))
        frame = frame.f_back
    return frames
