"""Waits for batches, as the iterators of frameworks are recorded."""

from __future__ import annotations

import time

from stepscope.capture.frameworks.progress import progress
from stepscope.spool import Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stepscope.capture.guard import Probe

UNKNOWN_COUNT = -1
"""Batches that are ready, where the iterator does not tell."""
_now = time.monotonic_ns


def take_batch(probe: Probe, name: str, take: Callable[[], Any]) -> Any:
    """Take a batch, and record the wait for it.

    Args:
        probe: records the wait.
        name: name of the loader.
        take: returns the batch; what it raises, the end of the batches too, is passed on.
    """
    progress.notify_work_start()
    start_ns = _now()
    span = probe.start(Kind.DATA_WAIT, name, UNKNOWN_COUNT)
    try:
        batch = take()
    except BaseException:
        probe.end(span, flags=Flag.NO_RESULT)
        raise
    finally:
        progress.data_wait_ns += _now() - start_ns
    probe.end(span)
    return batch


def start_iterator(probe: Probe, name: str, start: Callable[[], Any]) -> Any:
    """Start an iterator over batches, and record how long that takes; see `take_batch`."""
    progress.notify_work_start()
    start_ns = _now()
    span = probe.start(Kind.LOADER_START, name)
    try:
        return start()
    finally:
        probe.end(span)
        progress.data_wait_ns += _now() - start_ns
