"""Content of files, compressed or not, their times, and the results of an import.

Decimal microseconds as integer nanoseconds. A double that holds microseconds since 1970 has lost
the nanoseconds, so numbers are read as text. Digits below a nanosecond are rounded half up in
magnitude.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import errors, quantities

GZIP_MAGIC = b"\x1f\x8b"
SQLITE_MAGIC = b"SQLite format 3\0"
_HEAD_BYTES = 4096
UNPACKED_PREFIX = ".unpacked-"
"""Start of the name of the directory of unpacked files; see `documents`."""
MAX_INFLATED_BYTES = 2 << 30
"""Text of a compressed file that is read as a whole: a small file may inflate to a thousandfold."""


def is_compressed(path: Path) -> bool:
    """Return True for a gzip file, judged by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def read_head(path: Path) -> bytes:
    """Return the first 4 KiB of the content, or less; nothing of an unreadable file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(GZIP_MAGIC):
            return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return b""
    return head


def read_content(path: Path) -> bytes:
    """Return the whole content.

    Raises:
        OSError: the file cannot be read; as `gzip.BadGzipFile`, it is damaged.
        EOFError: the end of a compressed file is missing.
        zlib.error: a compressed file is damaged.
    """
    if not is_compressed(path):
        return path.read_bytes()
    with gzip.open(path) as file:
        content = file.read(MAX_INFLATED_BYTES + 1)
    if len(content) > MAX_INFLATED_BYTES:
        raise gzip.BadGzipFile(
            f"it holds more than {quantities.memory(MAX_INFLATED_BYTES)} of text"
        )
    return content


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


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of files, and what a run gets from it."""

    name: str
    """Name of the format, which is `Recorded.form` of its files unless it has `parts`."""
    parts: tuple[str, ...] = ()
    """`Recorded.form` of its kinds of files."""
    tables: tuple[str, ...]
    """Tables of the run that its files may fill."""
    file: str = "file"
    """A file, in words."""
    event: str
    """What `Recorded.event_count` counts."""
    sentence: str
    """What was imported, of {files}, {events} and, where there are some, {samples}, into {run}."""
    view: str | None = None
    """View to see first; None for the verdict."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that is in the run."""

    trace: int
    name: str
    rank: int | None
    event_count: int
    lost: str | None
    """The unreadable part, as the rest of a sentence."""
    execution_trace: str | None = None
    """Path of the execution trace that describes its operators."""
    described_count: int = 0
    """Operators that it describes."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A file of samples, spans, changes of memory or tensors that is in the run."""

    name: str
    form: str
    sample_count: int = 0
    event_count: int = 0
    lost: str | None = None
    """The unreadable part, as the rest of a sentence."""


class Refused(msgspec.Struct, frozen=True):
    """A file without readable content."""

    path: Path
    reason: str
    trace_starts: Sequence[int] = ()
    """Positions in its text at which traces start, if it has several; see `documents`."""


CopyForm = Literal["copy", "other format"]
"""Equal text, or the same recording in another format."""


class Copied(msgspec.Struct, frozen=True):
    """A file of a trace that another file of the import holds, too."""

    name: str
    original: str
    """Name of the other file, which counts."""
    form: CopyForm = "copy"

    @property
    def sentence(self) -> str:
        """Sentence that says so."""
        if self.form == "copy":
            return f"{self.name} has the same content as {self.original}: the trace counts once."
        return (
            f"{self.name} holds the recording of {self.original} in another format: it counts once."
        )


class SeveralTracesError(errors.UnreadableTraceError):
    """A file that holds several traces, one after the other."""

    def __init__(self, message: str, starts: Sequence[int]) -> None:
        super().__init__(message)
        self.starts = starts


class TraceImporter:
    """Base of importers of traces: a copy of a file counts once."""

    step_range: str | None = None
    """Name of the ranges that are steps, if the user states it."""


def refuse(path: Path, error: Exception) -> Refused:
    """Refuse a file that cannot be read, or with a ValueError one whose content is damaged."""
    if isinstance(error, ValueError):
        return Refused(path, f"{path} was not imported: {error}.")
    reason = getattr(error, "strerror", None) or error
    return Refused(path, f"{path} cannot be read: {reason}.")


Result = Imported | Recorded | Refused | Copied
ProgressCallback = Callable[[int, float], None]
"""Called with the index of a file in the list and the share of it that is done, 0 to 1."""


def ignore_progress(_index: int, _share: float) -> None:
    """Do nothing with the progress."""
