"""Waits for batches, as the iterators of frameworks are recorded."""

from __future__ import annotations

from stepscope.spool import Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stepscope.capture.guard import Probe

UNKNOWN_COUNT = -1
"""Batches that are ready, where the iterator does not tell."""


def take_batch(probe: Probe, name: str, take: Callable[[], Any]) -> Any:
    """Take a batch, and record the wait for it.

    Args:
        probe: records the wait.
        name: name of the loader.
        take: returns the batch; what it raises, the end of the batches too, is passed on.
    """
    span = probe.start(Kind.DATA_WAIT, name, UNKNOWN_COUNT)
    try:
        batch = take()
    except BaseException:
        probe.end(span, flags=Flag.NO_RESULT)
        raise
    probe.end(span)
    return batch
