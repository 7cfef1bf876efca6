"""Decimal microseconds as integer nanoseconds.

A double that holds microseconds since 1970 has lost the nanoseconds, so numbers are read as text.
Digits below a nanosecond are rounded half up in magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

INVALID = np.int64(np.iinfo(np.int64).min)
"""Value of a text that is not a number."""
_LIMIT = 2**62
_EXACT_DECIMALS_US = 2**43
"""Up to here, three months, a double distinguishes single nanoseconds."""
_NEARLY_HALF = 0.49
"""Error bound, in nanoseconds, of three decimals of such a double."""


class InexactTimeError(ValueError):
    """Time that only its text holds exactly."""


def nanoseconds(text: bytes) -> int:
    """Convert one decimal number of microseconds; ValueError for any other text.

    >>> nanoseconds(b"4329280002211.731")
    4329280002211731
    """
    text = text.strip().strip(b'"')
    sign = -1 if text.startswith(b"-") else 1
    integer, _, fraction = text.lstrip(b"+-").partition(b".")
    if not (integer + fraction).isdigit():  # exponent notation, or no number
        value = float(text) * 1000
        if not abs(value) < _LIMIT:
            raise ValueError(f"{text!r} is not a time")
        return round(value)
    padded = (fraction + b"0000")[:4]
    return sign * (int(integer or b"0") * 1000 + int(padded[:3]) + (padded[3:] >= b"5"))


def decimal_text(time_ns: int) -> bytes:
    """Return a time as a decimal number of microseconds.

    >>> decimal_text(-1234005)
    b'-1234.005'
    """
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 1000}.{abs(time_ns) % 1000:03}".encode()


def parse_times(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Convert many texts at once; INVALID where a text is not a number.

    Kineto writes either integers or exactly three decimals in a file: both are converted without
    looking at single numbers. Everything else is converted one by one.
    """
    if not texts:
        return np.empty(0, dtype=np.int64)
    joined = b" ".join(texts)
    digits = np.frombuffer(joined, dtype=np.uint8)
    separators = np.flatnonzero((digits < 48) | (digits > 57))
    characters = digits[separators]
    count = len(texts)
    if len(digits) == count - 1:  # all are missing
        return np.full(count, INVALID)
    if len(separators) == count - 1 and (characters == 32).all():
        values = _split_integers(joined, count)
        if values is not None and abs(values).max() < _LIMIT // 1000:
            return values * 1000
    if (
        len(separators) == 2 * count - 1
        and (characters[0::2] == 46).all()
        and (characters[1::2] == 32).all()
    ):
        ends = np.append(separators[1::2], len(digits))
        if (ends - separators[0::2] == 4).all():
            values = _split_integers(joined.replace(b".", b""), count)
            if values is not None and abs(values).max() < _LIMIT:
                return values
    return np.array([_one(bytes(text)) for text in texts], dtype=np.int64)


def read_times(values: Sequence[int | float]) -> NDArray[np.int64]:
    """Convert numbers of microseconds to nanoseconds; INVALID for NaN.

    Raises:
        InexactTimeError: the nanoseconds of a number are not certain. Kineto's three decimals are
            certain within three months of its base, which it chooses so, more decimals within a
            day.
    """
    array = np.array(values)
    if array.dtype.kind == "i":
        if array.min() <= -_LIMIT // 1000 or array.max() >= _LIMIT // 1000:
            raise InexactTimeError
        return array.astype(np.int64) * 1000
    if array.dtype.kind != "f":
        raise InexactTimeError
    microseconds = np.nan_to_num(array)
    integers = np.floor(microseconds)
    rest = (microseconds - integers) * 1000
    nearest = np.rint(rest)
    if (abs(microseconds) >= _EXACT_DECIMALS_US).any() or (
        abs(rest - nearest) > _NEARLY_HALF
    ).any():
        raise InexactTimeError
    times = integers.astype(np.int64) * 1000 + nearest.astype(np.int64)
    return np.where(np.isnan(array), INVALID, times)


def _split_integers(joined: bytes, count: int) -> NDArray[np.int64] | None:
    values = np.fromstring(joined, dtype=np.int64, sep=" ")
    return values if len(values) == count else None  # one of the texts is empty


def _one(text: bytes) -> int:
    try:
        value = nanoseconds(text)
    except ValueError:
        return int(INVALID)
    return value if abs(value) < _LIMIT else int(INVALID)
