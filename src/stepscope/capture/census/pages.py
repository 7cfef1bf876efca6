"""Private copies of pages that a forked process has shared with its parent.

A process that reads an object counts a reference to it, which writes to its page: the kernel copies
the page for this process. A worker that reads a long list of objects copies all of it in the end,
without making one object. The census takes the addresses of some items from the memory of the list,
without a reference to them, and asks the kernel which of their pages are mapped by this process
alone: bit 56 of /proc/self/pagemap (https://docs.kernel.org/admin-guide/mm/pagemap.html).
"""

from __future__ import annotations

import os
import sys
from struct import unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIN_ITEMS = 10_000
MAX_SEQUENCES = 8
SAMPLE_COUNT = 4096
NS_PER_ITEM = 50
"""Estimate of the time to read the address of an item."""
_PRESENT = 1 << 63
_EXCLUSIVE = 1 << 56
_LIST_ITEMS, _TUPLE_ITEMS = 24, 24
"""Offsets of the pointer to the items, and of the items, in builds with an interpreter lock."""
_WORD = 8
_ITEM_TYPES = (str, bytes, int, float, tuple, list, dict)


class SharedPages:
    """State of the pages of a long list or tuple.

    Args:
        exclusive_ratio: share of its sampled items whose pages only this process maps.
        total_bytes: estimate of the memory of its items.
        item_type: name of the type of its first item; '' if it is none of Python's own.
    """

    __slots__ = ("exclusive_ratio", "item_type", "total_bytes")

    def __init__(self, exclusive_ratio: float, total_bytes: float, item_type: str) -> None:
        self.exclusive_ratio = exclusive_ratio
        self.total_bytes = total_bytes
        self.item_type = item_type


def can_read() -> bool:
    """Return True where the items of a list are at the offsets that are known here."""
    is_plain = "t" not in sys.abiflags and not hasattr(sys, "gettotalrefcount")
    return is_plain and sys.implementation.name == "cpython" and sys.maxsize > 1 << 32


def _read_words(descriptor: int, address: int, count: int) -> tuple[int, ...]:
    """Read words of this process through procfs, where a wrong address is an error and no signal:
    another thread may change a list meanwhile.

    Raises:
        OSError: there is no memory.
    """
    data = os.pread(descriptor, count * _WORD, address)
    if len(data) < count * _WORD:
        raise OSError("cut off")
    return unpack(f"={count}Q", data)


def read_pages(sequence: Any) -> SharedPages | None:
    """Read the state of the pages of the items of a list or tuple; None where it is unknown."""
    count = len(sequence)
    if type(sequence) is tuple and sys.version_info >= (3, 14):
        return None  # its items are elsewhere
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        address = id(sequence) + _TUPLE_ITEMS
        if type(sequence) is list:
            (address,) = _read_words(memory, id(sequence) + _LIST_ITEMS, 1)
        items = _read_words(memory, address, count)
        (type_address,) = _read_words(memory, items[0] + _WORD, 1)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(memory)
    sample = sorted({items[i * count // SAMPLE_COUNT] for i in range(SAMPLE_COUNT)})
    if len(sample) < SAMPLE_COUNT // 2:
        return None
    gaps = sorted(abs(items[i + 1] - items[i]) for i in range(0, count - 1, max(1, count // 512)))
    item_bytes = gaps[len(gaps) // 2]
    page = os.sysconf("SC_PAGE_SIZE")
    pages = sorted({item // page for item in sample})
    exclusive = present = 0
    try:
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY)
    except OSError:
        return None
    try:
        for number in pages:
            (entry,) = unpack("=Q", os.pread(descriptor, _WORD, number * _WORD))
            present += bool(entry & _PRESENT)
            exclusive += bool(entry & _EXCLUSIVE)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    if not present:
        return None
    types = {id(cls): cls.__name__ for cls in _ITEM_TYPES}
    item_type = types.get(type_address, "")
    return SharedPages(exclusive / len(pages), count * min(item_bytes, 65536), item_type)
