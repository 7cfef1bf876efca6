"""Values of JSON as cells of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

ABSENT = -1
"""Value of a missing integer in memory."""


def text_of(value: Any) -> str | None:
    """Return text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def integers_of(values: Sequence[int | None]) -> Any:
    """Return integers as an array with the missing ones masked."""
    data = np.array([0 if value is None else value for value in values], dtype=np.int64)
    return np.ma.MaskedArray(data, mask=[value is None for value in values])


def int64(values: Sequence[int]) -> NDArray[np.int64]:
    """Return integers of any size as an array; values of more than 64 bits become absent."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except OverflowError:  # unsigned 64 bits, such as an address or a wrapped size
        wrapped = [(value if -(2**63) <= value < 2**64 else ABSENT) % 2**64 for value in values]
        return np.array(wrapped, dtype=np.uint64).view(np.int64)
