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
MAX_PARTS = 16
"""Longer lists are samples, not datasets."""

_now = time.monotonic_ns
_watched: dict[int, _Member] = {}
_wrapped_classes: set[type] = set()


class _Member:
    """One member of a chain and the time spent in it since it was last asked."""

    __slots__ = ("name", "running", "spent_ns", "transform")

    def __init__(self, name: str, transform: object) -> None:
        self.name = name
        self.transform = transform  # kept alive, so that its id stays its own
        self.spent_ns = 0
        self.running = False


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
    return [_watch(chain, in_worker) for chain in _chains_of(dataset, MAX_DEPTH, set())]


def _chains_of(holder: object, depth: int, seen: set[int]) -> Iterator[list[Any] | tuple[Any, ...]]:
    """Chains in what an object holds. Looks at its `__dict__` alone, so no code of its runs."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    for value in list(_state(holder).values()):
        members = _members_of(value)
        if members is not None:
            yield members
        elif depth and _may_hold_a_chain(value):
            yield from _chains_of(value, depth - 1, seen)
        elif depth and type(value) in {list, tuple} and len(value) <= MAX_PARTS:
            for part in value:  # ConcatDataset and the like
                if _may_hold_a_chain(part):
                    yield from _chains_of(part, depth - 1, seen)


def _state(value: object) -> dict[str, Any]:
    if isinstance(value, type):
        return {}
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, dict) else {}


def _may_hold_a_chain(value: object) -> bool:
    """Another dataset, or torchvision's pair of transforms."""
    return hasattr(type(value), "__getitem__") or "transform" in _state(value)


def _members_of(value: object) -> list[Any] | tuple[Any, ...] | None:
    if not callable(value):
        return None
    for held in _state(value).values():
        if isinstance(held, list | tuple) and held and all(_is_transform(one) for one in held):
            return held
    return None


def _is_transform(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


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
    """Name of a function, also of one with some arguments given."""
    function = transform.func if isinstance(transform, functools.partial) else transform
    return str(getattr(function, "__name__", type(transform).__name__))


def _wrap_class(transform_class: type) -> bool:
    """Time the calls of a class's instances; False where the class is not written in Python."""
    if transform_class in _wrapped_classes:
        return True
    original: Any = transform_class.__call__

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        member = _watched.get(id(self))
        if member is None or member.running:  # a class and its base may both be wrapped
            return original(self, *args, **kwargs)
        member.running = True
        began = _now()
        try:
            return original(self, *args, **kwargs)
        finally:
            member.spent_ns += _now() - began
            member.running = False

    __call__._torchdynamo_inline = original  # type: ignore[attr-defined] # it may be a model's too
    try:
        transform_class.__call__ = __call__
    except (TypeError, AttributeError):  # a class written in C
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
