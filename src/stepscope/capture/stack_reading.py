"""Frames of a thread, without what they belong to; the start-up hook loads this module."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType

    FrameState = tuple[CodeType, int, int]
    """Code, line and instruction of a frame."""

MAX_DEPTH = 1000
"""Limit on the frames of one thread."""
_STANDARD_LIBRARY = os.path.dirname(getattr(os, "__file__", "")) + os.sep
_FROZEN_IMPORT = "<frozen importlib"
_IMPORT_FILES = frozenset(
    f"{_STANDARD_LIBRARY}importlib{os.sep}{name}"
    for name in ("__init__.py", "_bootstrap.py", "_bootstrap_external.py", "util.py")
)
_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Any allocation may run the collector; later versions only run it between two instructions."""
_HOOK, _IMPORT, _LIBRARY, _USER = range(4)
_kinds: dict[str, int] = {}
"""Kinds of files: the import hook of stepscope, import machinery, libraries, and user code."""


def is_import(code: CodeType) -> bool:
    """Return True for code of Python's import machinery."""
    return _kind_of(code.co_filename) == _IMPORT


def _kind_of(file: str) -> int:
    kind = _kinds.get(file)
    if kind is None:
        if file == _HOOK_FILE:
            kind = _HOOK
        elif file.startswith(_FROZEN_IMPORT) or file in _IMPORT_FILES:
            kind = _IMPORT
        elif file.startswith((_STANDARD_LIBRARY, "<frozen")) or "-packages" + os.sep in file:
            kind = _LIBRARY
        else:
            kind = _USER
        _kinds[file] = kind
    return kind


def read_frames(frame: FrameType | None, limit: int = MAX_DEPTH) -> list[FrameState]:
    """Return a frame and its callers, innermost first; those of the import machinery that follow
    each other are one.

    Lines are those of the innermost frame and of user code, 0 for others: to find the line of a
    large module takes long.
    """
    frames: list[FrameState] = []
    is_importing = False
    while frame is not None and len(frames) < limit:
        code = frame.f_code
        kind = _kinds.get(code.co_filename)
        if kind is None:
            kind = _kind_of(code.co_filename)
        if kind == _IMPORT:
            if not is_importing:
                frames.append((code, 0, frame.f_lasti))
            is_importing = True
        elif kind != _HOOK:
            # Some instructions have no line.
            line = (frame.f_lineno or 0) if kind == _USER or not frames else 0
            frames.append((code, line, frame.f_lasti))
            is_importing = False
        frame = frame.f_back
    return frames


_HOOK_FILE = os.path.join(
    os.path.dirname(read_frames.__code__.co_filename), "import_hooks.py"
)  # a frame between those of the import machinery


def walk_thread(target: int) -> list[FrameState]:
    """Return the frames of a thread; none for one that has ended. See `frames` for its rules."""
    collects = _COLLECTS_ANYWHERE and gc.isenabled()
    if collects:
        gc.disable()
    frame = None
    try:
        frame = sys._current_frames().get(target)
        return read_frames(frame)
    finally:
        frame = None
        if collects:
            gc.enable()
