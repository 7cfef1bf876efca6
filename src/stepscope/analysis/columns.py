"""Columns as analyses take them: numbers as arrays, strings as codes into a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Strings(Protocol):
    """Row `i` holds `values[codes[i]]`, or null where the code is -1. Values are distinct."""

    @property
    def codes(self) -> NDArray[np.int32]:
        """One place in `values` per row."""

    @property
    def values(self) -> Sequence[str | None]:
        """The distinct strings."""


Columns = Mapping[str, Any]
"""Columns of a table by name, all of one length: integers and doubles as arrays, strings as
`Strings`. A missing integer is -1, a missing double NaN."""
