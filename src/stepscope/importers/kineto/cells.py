"""Values of JSON as cells of tables."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np


def text_of(value: Any) -> str | None:
    """Text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def integers_of(values: list[int | None]) -> Any:
    """Integers, some of which are missing."""
    data = np.array([0 if value is None else value for value in values], dtype=np.int64)
    return np.ma.MaskedArray(data, mask=[value is None for value in values])
