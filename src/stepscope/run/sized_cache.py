"""Cache of values up to a total size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT", bound=Sized)


class SizedCache(Generic[ValueT]):
    """Values by key. The least recently used are dropped, and made again on demand.

    Args:
        max_size: limit of the sum of the lengths of the values.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._values: OrderedDict[str, ValueT] = OrderedDict()
        self._size = 0

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, make: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key, made if it is not in the cache."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = self._values[key] = make()
        self._size += len(value)
        while self._size > self._max_size and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self._size -= len(dropped)
        return value
