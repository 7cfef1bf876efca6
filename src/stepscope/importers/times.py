"""Decimal microseconds as integer nanoseconds.

A double that holds microseconds since 1970 has lost the nanoseconds, so numbers are read as the
text they are. Digits below a nanosecond are rounded half up in magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

INVALID = np.int64(np.iinfo(np.int64).min)
"""What a text that is no number becomes."""
_LIMIT = 2**62
_EXACT_DECIMALS_US = 2**43
"""Up to here a double tells one nanosecond from the next: for three months."""
_NEARLY_HALF = 0.49
"""Three decimals of so large a double are off by less than this many nanoseconds."""


class InexactTimeError(ValueError):
    """A time that only its text says exactly."""


def nanoseconds(text: bytes) -> int:
    """One decimal number of microseconds; ValueError when it is none.

    >>> nanoseconds(b"4329280002211.731")
    4329280002211731
    """
    text = text.strip().strip(b'"')
    sign = -1 if text.startswith(b"-") else 1
    whole, _, fraction = text.lstrip(b"+-").partition(b".")
    if not (whole + fraction).isdigit():  # exponent notation, or no number
        value = float(text) * 1000
        if not abs(value) < _LIMIT:
            raise ValueError(f"{text!r} is no time")
        return round(value)
    padded = (fraction + b"0000")[:4]
    return sign * (int(whole or b"0") * 1000 + int(padded[:3]) + (padded[3:] >= b"5"))


def decimal_text(time_ns: int) -> bytes:
    """The number of microseconds that a time is.

    >>> decimal_text(-1234005)
    b'-1234.005'
    """
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 1000}.{abs(time_ns) % 1000:03}".encode()


def parse_times(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Many of them at once; INVALID where a text is no number.

    Kineto writes either integers or exactly three decimals, for a whole file: both are read
    without looking at single numbers. Everything else is read one by one.
    """
    if not texts:
        return np.empty(0, dtype=np.int64)
    joined = b" ".join(texts)
    digits = np.frombuffer(joined, dtype=np.uint8)
    places = np.flatnonzero((digits < 48) | (digits > 57))
    others = digits[places]
    count = len(texts)
    if len(places) == count - 1 and (others == 32).all():
        values = _split_integers(joined, count)
        if values is not None and abs(values).max() < _LIMIT // 1000:
            return values * 1000
    if len(places) == 2 * count - 1 and (others[0::2] == 46).all() and (others[1::2] == 32).all():
        ends = np.append(places[1::2], len(digits))
        if (ends - places[0::2] == 4).all():
            values = _split_integers(joined.replace(b".", b""), count)
            if values is not None and abs(values).max() < _LIMIT:
                return values
    return np.array([_one(bytes(text)) for text in texts], dtype=np.int64)


def read_times(values: Sequence[int | float]) -> NDArray[np.int64]:
    """Numbers of microseconds as nanoseconds; INVALID for NaN.

    Raises:
        InexactTimeError: the nanoseconds of one are not certain. Kineto's three decimals are
            within three months of its base, which it chooses so, and more decimals within a day.
    """
    given = np.array(values)
    if given.dtype.kind == "i":
        if given.min() <= -_LIMIT // 1000 or given.max() >= _LIMIT // 1000:
            raise InexactTimeError
        return given.astype(np.int64) * 1000
    if given.dtype.kind != "f":
        raise InexactTimeError
    known = np.nan_to_num(given)
    whole = np.floor(known)
    rest = (known - whole) * 1000
    nearest = np.rint(rest)
    if (abs(known) >= _EXACT_DECIMALS_US).any() or (abs(rest - nearest) > _NEARLY_HALF).any():
        raise InexactTimeError
    times = whole.astype(np.int64) * 1000 + nearest.astype(np.int64)
    return np.where(np.isnan(given), INVALID, times)


def _split_integers(joined: bytes, count: int) -> NDArray[np.int64] | None:
    values = np.fromstring(joined, dtype=np.int64, sep=" ")
    return values if len(values) == count else None  # an empty text among them


def _one(text: bytes) -> int:
    try:
        value = nanoseconds(text)
    except ValueError:
        return int(INVALID)
    return value if abs(value) < _LIMIT else int(INVALID)
