"""Workers of Ray Train: their ranks, which the environment does not state.

Ray starts its workers before it knows their ranks, and runs the training function in a thread. So
the rank is recorded at the first steps, whatever framework trains.
"""

from __future__ import annotations

import sys
from typing import Any

from stepscope.capture import session
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.sampling import watch_steps
from stepscope.capture.guard import Probe

_probe = Probe("ranks of Ray Train")


@_probe.protect
def install() -> None:
    """Record ranks and watch the training thread, from the first step on."""
    watch_steps()
    progress.on_some_boundaries(_probe.protect(_record_rank))


def _record_rank() -> None:
    current, ranks = session.current(), _find_ranks()
    if current is not None and ranks is not None and ranks[0] != current.rank:
        _probe.fact("rank", rank=ranks[0], world_size=ranks[1])


def _find_ranks() -> tuple[int, int] | None:
    """Return rank and world size of this worker; None for another process."""
    train: Any = sys.modules["ray.train"]
    try:
        context = train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # outside of a training function
        return None
    return None if rank is None else (int(rank), int(world_size))
