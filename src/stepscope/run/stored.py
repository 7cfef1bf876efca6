"""Names of `store` for the packages above `run`, which do not import `store` themselves."""

from __future__ import annotations

from stepscope.store import (
    DictColumn,
    RequestState,
    RequestStatus,
    RunReader,
    UnreachableError,
    cache_home,
    literal,
    size_of,
)

__all__ = [
    "DictColumn",
    "RequestState",
    "RequestStatus",
    "RunReader",
    "UnreachableError",
    "cache_home",
    "literal",
    "size_of",
]
