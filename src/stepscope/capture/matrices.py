"""Small matrices with named rows and columns on their way to the spool."""

from __future__ import annotations

import time
from array import array

from stepscope.capture import session
from stepscope.spool import TENSOR_VALUES, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NAME_SHIFT = 32
MAX_DIGITS = 18
"""Digits of a number that fits in 64 bits in any case."""


class Matrix:
    """Matrix with names.

    Args:
        name: name of the tensor.
        collection: its collection.
        rows: names of the rows, each once.
        columns: names of the columns, each once.
        values: numbers row by row; NaN where one is not defined.
    """

    __slots__ = ("collection", "columns", "name", "rows", "values")

    def __init__(
        self,
        name: str,
        collection: str,
        *,
        rows: Sequence[str],
        columns: Sequence[str],
        values: Iterable[float],
    ) -> None:
        self.name = name
        self.collection = collection
        self.rows = rows
        self.columns = columns
        self.values = array("d", values)


def write_matrices(
    matrices: Sequence[Matrix], *, step: int, mode: str, t_ns: int | None = None
) -> None:
    """Write the numbers of matrices, a row each.

    Args:
        step: number of steps of the process before this one.
        mode: TRAIN, EVAL or PREDICT.
        t_ns: monotonic time; now by default.
    """
    current = session.current()
    if current is None or not any(matrix.values for matrix in matrices):
        return
    tensors, rows, columns, values = array("q"), array("q"), array("q"), array("d")
    for matrix in matrices:
        tensor = intern(current, matrix.name, {"collection": matrix.collection})
        titles = [_encode_name(current, title) for title in matrix.columns]
        for row in matrix.rows:
            rows.extend([_encode_name(current, row)] * len(titles))
            columns.extend(titles)
        tensors.extend([tensor] * len(matrix.values))
        values.extend(matrix.values)
    names = (("tensor", tensors), ("row", rows), ("column", columns))
    content = [(name, "q", 1, numbers.tobytes()) for name, numbers in names]
    current.row_log.write(
        len(values),
        [*content, ("value", "d", 1, values.tobytes())],
        table=TENSOR_VALUES,
        t_ns=time.monotonic_ns() if t_ns is None else t_ns,
        step=step,
        mode=mode,
    )


def _encode_name(current: session.Session, text: str) -> int:
    """Return the number of a row or column: the number `n` as -1 - n, other texts interned.

    A vocabulary has more tokens than a session has names.
    """
    is_number = text.isdecimal() and len(text) <= MAX_DIGITS and text == str(int(text))
    return -1 - int(text) if is_number else intern(current, text)


def intern(current: session.Session, text: str, labels: dict[str, object] | None = None) -> int:
    """Return the number of a text in a session; 0 if it cannot be journalled."""
    import json

    key = (Kind.TENSOR, text, None if labels is None else json.dumps(labels))
    return (current.metas.get(key) or current.meta(key)) >> _NAME_SHIFT
