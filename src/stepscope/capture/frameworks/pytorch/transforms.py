"""Timing of the members of a Compose-like transform chain.

A chain is a callable object with a list or tuple of callables that a dataset refers to: Compose of
torchvision and albumentations, and custom equivalents. The chain object and its members keep their
identity. An instance is timed by patching `__call__` of its class; a plain function is replaced in
the list, but only in a worker process, which has a copy of the list.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

MAX_DEPTH = 4
MAX_PARTS = 16
"""Longer lists contain samples, not datasets."""

_now = time.monotonic_ns
_watched: dict[int, _Member] = {}
_wrapped_classes: set[type] = set()


class _Member:
    """A member of a chain, and the time spent in it since `ChainTimes.start`."""

    __slots__ = ("name", "paused", "running", "spent_ns", "transform")

    def __init__(self, name: str, transform: object) -> None:
        self.name = name
        self.transform = transform  # a reference, so that its id is not reused
        self.spent_ns = 0
        self.running = False
        self.paused = True


class ChainTimes:
    """Times of the members of one chain."""

    def __init__(self, members: list[_Member]) -> None:
        self._members = members

    def start(self) -> None:
        """Time the members from now on."""
        for member in self._members:
            member.spent_ns = 0
            member.paused = False

    def take_times(self) -> Iterator[tuple[str, int]]:
        """Stop timing; yield name and nanoseconds of each member that ran since `start`."""
        for member in self._members:
            member.paused = True
            if member.spent_ns:
                yield member.name, member.spent_ns


def watch_chains(dataset: object, *, in_worker: bool) -> list[ChainTimes]:
    """Find the chains that a dataset refers to and time their members from now on."""
    return [_watch(chain, in_worker) for chain in _chains_of(dataset, MAX_DEPTH, set())]


def _chains_of(
    owner: object, depth: int, visited: set[int]
) -> Iterator[list[Any] | tuple[Any, ...]]:
    """Yield the chains that an object refers to. Reads its `__dict__` only: runs no code of it."""
    if id(owner) in visited:
        return
    visited.add(id(owner))
    for value in list(_attributes(owner).values()):
        members = _members_of(value)
        if members is not None:
            yield members
        elif depth and _may_have_chain(value):
            yield from _chains_of(value, depth - 1, visited)
        elif depth and type(value) in {list, tuple} and len(value) <= MAX_PARTS:
            for part in value:  # ConcatDataset and similar datasets
                if _may_have_chain(part):
                    yield from _chains_of(part, depth - 1, visited)


def _attributes(value: object) -> dict[str, Any]:
    if isinstance(value, type):
        return {}
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _may_have_chain(value: object) -> bool:
    """Return True for a dataset, and for torchvision's pair of transforms."""
    return hasattr(type(value), "__getitem__") or "transform" in _attributes(value)


def _members_of(value: object) -> list[Any] | tuple[Any, ...] | None:
    if not callable(value):
        return None
    members: list[Any] | tuple[Any, ...]
    for members in _attributes(value).values():
        is_list = issubclass(type(members), list | tuple)
        if is_list and members and all(map(_is_transform, members)):
            return members
    return None


def _is_transform(value: object) -> bool:
    return callable(value) and not issubclass(type(value), type)


def _watch(chain: list[Any] | tuple[Any, ...], in_worker: bool) -> ChainTimes:
    members = []
    for position, transform in enumerate(chain):
        member = _watched.get(id(transform))
        if member is None:
            if _wrap_class(type(transform)):
                member = _Member(type(transform).__name__, transform)
                _watched[id(transform)] = member
            elif in_worker and isinstance(chain, list):
                member = _Member(_name_of(transform), transform)
                chain[position] = _timed(transform, member)
                _watched[id(chain[position])] = member
        if member is not None:
            members.append(member)
    return ChainTimes(members)


def _name_of(transform: Any) -> str:
    """Return the name of a function or of a `functools.partial`."""
    function = transform.func if isinstance(transform, functools.partial) else transform
    return str(getattr(function, "__name__", type(transform).__name__))


def _wrap_class(transform_class: type) -> bool:
    """Time the calls of instances of a class; False if the class is not written in Python."""
    if transform_class in _wrapped_classes:
        return True
    original: Any = transform_class.__call__

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        member = _watched.get(id(self))
        if (
            member is None or member.paused or member.running
        ):  # a class and its base class may both be wrapped
            return original(self, *args, **kwargs)
        member.running = True
        start_ns = _now()
        try:
            return original(self, *args, **kwargs)
        finally:
            member.spent_ns += _now() - start_ns
            member.running = False

    __call__._torchdynamo_inline = original  # type: ignore[attr-defined] # models may call it too
    try:
        transform_class.__call__ = __call__
    except (TypeError, AttributeError):  # a class implemented in C
        return False
    _wrapped_classes.add(transform_class)
    return True


def _timed(function: Callable[..., Any], member: _Member) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if member.paused:
            return function(*args, **kwargs)
        start_ns = _now()
        try:
            return function(*args, **kwargs)
        finally:
            member.spent_ns += _now() - start_ns

    return timed
