"""Waits for locks, from stacks and the running line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepscope.analysis.input_pipeline.code_stages import Frame, StagedStack, select_inside_fetch

MIN_RATIO = 0.1
"""Share of its time for which batch creation waits for a lock from which more workers would wait,
too."""
_LOCK_LIBRARIES = frozenset(["fasteners", "filelock", "portalocker"])
_LOCK = r"(?:(?:\b|_)[Rr]?(?:[Ll]ock|mutex)(?:s|_\w+)?|[a-z]Lock)\b"
_LOCK_LINE = re.compile(
    rf"^(?:async )?with\b.*{_LOCK}|\b(?:flock|lockf)\(|{_LOCK}(?:\(.*\))?\.acquire\("
)
"""Lines, and calls in them, that wait for a lock while no frame is below them."""
_SHARED_LOCKS = "/multiprocessing/synchronize.py"
_TAKES_LOCK = frozenset({"__enter__", "acquire"})


def is_waiting_for_lock(frames: Sequence[Frame], line: str) -> bool:
    """Return True if a thread waits for a lock that another thread or process holds.

    Args:
        frames: its stack, outermost first.
        line: text of the line that the innermost frame of user code runs, or of the call in it.
    """
    below = select_below_user(frames)
    if not below:
        return _LOCK_LINE.search(line) is not None
    first = below[0]
    return first.library in _LOCK_LIBRARIES or (
        first.file.endswith(_SHARED_LOCKS) and first.bare_function in _TAKES_LOCK
    )


def select_below_user(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Select the frames below the innermost function of user code; all without any."""
    users = [index for index, frame in enumerate(frames) if not frame.library]
    return frames[users[-1] + 1 :] if users else frames


def classify_lock(frames: Sequence[Frame], line: str = "") -> StagedStack | None:
    """Classify a stack inside the creation of a batch that waits for a lock, named after the
    function that takes it; None for any other. Arguments are those of `is_waiting_for_lock`."""
    inside = select_inside_fetch(frames)
    if not inside or not is_waiting_for_lock(inside, line):
        return None
    users = [frame.function for frame in inside if not frame.library]
    return StagedStack("lock", users[-1] if users else inside[0].function)
