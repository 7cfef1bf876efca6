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
MAX_MEMO = 1 << 26
"""Largest number of a memo entry: the memo is an array."""
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


def check_plain(data: bytes) -> None:
    """Walk the opcodes of a pickle from elsewhere, without running them.

    Raises:
        NotPlainError: one of them is not needed for plain data.
        ValueError: the pickle is cut or damaged.
    """
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in PLAIN_OPCODES:
                raise NotPlainError(f"it builds objects (opcode {opcode.name})")
            if opcode.name.endswith("PUT") and isinstance(argument, int) and argument > MAX_MEMO:
                raise ValueError("a number of its memo is out of range")
    except NotPlainError:
        raise
    except DAMAGE as error:
        raise ValueError(f"it is cut or damaged ({error})") from error
