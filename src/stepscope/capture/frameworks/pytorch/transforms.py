"""The members of a Compose-like chain, timed one by one.

A chain is a callable object that holds a list or tuple of callables and that a dataset refers
to: torchvision's and albumentations' Compose, and the many that people write. The chain and its
members stay what they are. A member that is an instance is timed where its class defines the
call; a plain function has no class of its own, so it is wrapped in its list, but only inside a
worker process, where the list is a copy.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

MAX_DEPTH = 4

_now = time.monotonic_ns
_watched: dict[int, _Member] = {}
_wrapped_classes: set[type] = set()


class _Member:
    """One member of a chain and the time spent in it since it was last asked."""

    __slots__ = ("name", "spent_ns", "transform")

    def __init__(self, name: str, transform: object) -> None:
        self.name = name
        self.transform = transform  # kept alive, so that its id stays its own
        self.spent_ns = 0


class ChainTimes:
    """Times of the members of one chain."""

    def __init__(self, members: list[_Member]) -> None:
        self._members = members

    def take(self) -> Iterator[tuple[str, int]]:
        """Name and nanoseconds of each member that ran since the last call."""
        for member in self._members:
            if member.spent_ns:
                yield member.name, member.spent_ns
                member.spent_ns = 0


def watch_chains(dataset: object, *, in_worker: bool) -> list[ChainTimes]:
    """Find the chains that a dataset refers to and time their members from now on."""
    return [_watch(chain, in_worker) for chain in _chains_of(dataset, MAX_DEPTH)]


def _chains_of(holder: object, depth: int) -> Iterator[list[Any] | tuple[Any, ...]]:
    for value in list(getattr(holder, "__dict__", {}).values()):
        members = _members_of(value)
        if members is not None:
            yield members
        elif depth and _may_hold_a_chain(value):
            yield from _chains_of(value, depth - 1)
        elif isinstance(value, list | tuple) and depth and len(value) <= 16:
            for part in value:  # ConcatDataset and the like
                if _may_hold_a_chain(part):
                    yield from _chains_of(part, depth - 1)


def _may_hold_a_chain(value: object) -> bool:
    """Another dataset, or torchvision's pair of transforms."""
    kind = type(value)
    return (hasattr(kind, "__getitem__") and hasattr(value, "__dict__")) or (
        hasattr(value, "transform") and hasattr(value, "__dict__")
    )


def _members_of(value: object) -> list[Any] | tuple[Any, ...] | None:
    if not callable(value) or isinstance(value, type) or not hasattr(value, "__dict__"):
        return None
    for held in vars(value).values():
        if isinstance(held, list | tuple) and held and all(_is_transform(one) for one in held):
            return held
    return None


def _is_transform(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


def _watch(chain: list[Any] | tuple[Any, ...], in_worker: bool) -> ChainTimes:
    members = []
    for position, transform in enumerate(chain):
        known = _watched.get(id(transform))
        if known is not None:
            members.append(known)
        elif hasattr(transform, "__dict__") and not hasattr(transform, "__code__"):
            member = _Member(type(transform).__name__, transform)
            if _wrap_class(type(transform)):
                _watched[id(transform)] = member
                members.append(member)
        elif in_worker and isinstance(chain, list):
            member = _Member(getattr(transform, "__name__", repr(transform)), transform)
            chain[position] = _timed(transform, member)
            _watched[id(chain[position])] = member
            members.append(member)
    return ChainTimes(members)


def _wrap_class(transform_class: type) -> bool:
    if transform_class in _wrapped_classes:
        return True
    original: Any = transform_class.__call__

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        member = _watched.get(id(self))
        if member is None:
            return original(self, *args, **kwargs)
        began = _now()
        try:
            return original(self, *args, **kwargs)
        finally:
            member.spent_ns += _now() - began

    try:
        transform_class.__call__ = __call__  # type: ignore[assignment]
    except TypeError:  # a class written in C
        return False
    _wrapped_classes.add(transform_class)
    return True


def _timed(function: Callable[..., Any], member: _Member) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = _now()
        try:
            return function(*args, **kwargs)
        finally:
            member.spent_ns += _now() - began

    return timed
