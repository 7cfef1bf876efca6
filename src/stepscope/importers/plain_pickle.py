"""Pickles of plain data: numbers, texts, lists, tuples and dictionaries, and nothing else.

A pickle is a program, and one that builds objects can run any code
(https://docs.python.org/3/library/pickle.html). PyTorch's recorders write pickles of plain data, so
everything that only objects need is refused.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
from typing import Any, NoReturn

from stepscope import quantities

PICKLE = re.compile(rb"\x80[\x02-\x05]")
"""Start of a pickle."""
PLAIN_OPCODES = frozenset(
    {
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK"),
        *("MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "PUT", "GET"),
        *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2"),
        *("LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
    }
)
"""Opcodes that need no class and call nothing; names as in `pickletools`."""
_CONTAINERS = (list, tuple, dict)
DAMAGE = (
    pickle.UnpicklingError,
    *(EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, MemoryError, RecursionError, struct.error),
)
"""Errors of a pickle that is cut or damaged."""


class NotPlainError(ValueError):
    """A pickle holds something other than plain data; the text names it."""


class _PlainUnpickler(pickle.Unpickler):  # noqa: S301 - it looks up no class
    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlainError(f"it builds an object of {module}.{name}")

    def persistent_load(self, _identifier: Any) -> NoReturn:
        raise NotPlainError("it refers to an object outside")


def load_plain(data: bytes) -> Any:
    """Load a pickle that a process of this job has written.

    No class is looked up, so that no object is built and nothing is called.

    Raises:
        NotPlainError: it holds more than plain data.
        ValueError: it is cut or damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except NotPlainError:
        raise
    except DAMAGE as error:
        raise ValueError(f"it is cut or damaged ({error})") from error


def check_plain(data: bytes, *, max_values: int | None = None) -> None:
    """Walk the opcodes of a pickle from elsewhere, without running them.

    Args:
        data: the pickle.
        max_values: limit of its opcodes, each of which makes at most one value; None for none.

    Raises:
        NotPlainError: one of them is not needed for plain data.
        ValueError: the pickle is cut or damaged, or has more opcodes.
    """
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name not in PLAIN_OPCODES:
                raise NotPlainError(f"it builds objects (opcode {opcode.name})")
            # The memo is an array. Pickle numbers its entries one after the other.
            is_memo = opcode.name.endswith("PUT")
            if is_memo and isinstance(argument, int) and argument > len(data):
                raise ValueError(f"the number {argument} in its memo is out of range")
            if max_values is not None and count >= max_values:
                raise ValueError(f"it has more than {quantities.count(max_values)} values")
    except NotPlainError:
        raise
    except DAMAGE as error:
        raise ValueError(f"it is cut or damaged ({error})") from error


def check_expanded(value: Any, max_values: int) -> None:
    """Count the values of plain data as if each repetition of a list or dictionary were a copy,
    which is what a conversion to typed values makes of it.

    Raises:
        ValueError: there are more, or a list or dictionary is a part of itself.
    """
    counts: dict[int, int | None] = {}
    """By id of a list or dictionary; None while its parts are counted."""
    pending = [value] if isinstance(value, _CONTAINERS) else []
    while pending:
        part = pending[-1]
        items = part.values() if isinstance(part, dict) else part
        inner = [item for item in items if isinstance(item, _CONTAINERS)]
        if id(part) not in counts:
            counts[id(part)] = None
            if any(counts.get(id(item), 0) is None for item in inner):
                raise ValueError("a part of it contains itself")
            pending += [item for item in inner if id(item) not in counts]
            continue
        pending.pop()
        if counts[id(part)] is None:
            count = len(part) + sum(counts[id(item)] or 0 for item in inner)
            if count > max_values:
                raise ValueError(
                    f"with its repetitions it has more than {quantities.count(max_values)} values"
                )
            counts[id(part)] = count
