"""Rank of the process, which a script may set after the import of torch."""

from __future__ import annotations

import sys
from typing import Any

from stepscope.job_environment import read_ranks


def find_rank() -> int | None:
    """Return the rank of this process in `torch.distributed`, or else the one that its environment
    states; None without any."""
    distributed = _find_distributed()
    rank: int | None = read_ranks().rank if distributed is None else int(distributed.get_rank())
    return rank


def find_world_size() -> int | None:
    """Return the number of ranks, likewise."""
    distributed = _find_distributed()
    size: int | None = (
        read_ranks().world_size if distributed is None else int(distributed.get_world_size())
    )
    return size


def _find_distributed() -> Any:
    """Return `torch.distributed` if the process takes part in a job of several; None otherwise."""
    distributed: Any = sys.modules.get("torch.distributed")
    is_used = distributed is not None and distributed.is_available()
    return distributed if is_used and distributed.is_initialized() else None
