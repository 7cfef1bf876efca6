"""Writer of one thread's log.

The hot path is a few memory stores; everything that can fail happens once per segment, in `roll`.
Callers inline the hot path (see `capture.marks`), so `cursor` is public:

    next_index, words = log.cursor
    i = next_index()
    if i >= ROLL_WORD:
        words, i = log.roll(words, i)
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from itertools import count, repeat

from stepscope.spool._hot import LogBase, native
from stepscope.spool.page import LIMIT_REACHED
from stepscope.spool.record import (
    ANCHOR_EPOCH_WORD,
    ANCHOR_MONOTONIC_WORD,
    FIRST_SEQUENCE_WORD,
    FORMAT_VERSION,
    HEADER_WORDS,
    MAGIC,
    RECORD_WORDS,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    THREAD_WORD,
)
from stepscope.spool.tree import LogName, SpoolFullError, SpoolTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.spool.page import DropCounts

    Cursor = tuple[Callable[[], int], memoryview]

_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)  # Linux; unnamed before Python 3.10
RETRY_NS = 100_000_000
"""Delay before a log that found the spool full tries again."""

END_WORD = HEADER_WORDS + SEGMENT_RECORDS * RECORD_WORDS
ROLL_WORD = END_WORD - 64 * RECORD_WORDS
"""From this index on, the next segment is prepared. Records that a signal handler writes during
the preparation go into the remainder of the current segment."""

MAX_PREPARING = 2
"""Limit on nested preparations: a signal handler that interrupts the creation of a log's first
segment may create one too, but a handler that interrupts that one may not, because signals can
arrive faster than segments are created."""


class SpanLog(LogBase):
    """Append-only log of one thread, in segments that the monitor removes after reading them.

    `cursor` is a function that returns the word index of the next record, and the words that the
    index refers to. The function is one C call and both are read together, so a signal handler or
    garbage-collection callback that records in between gets a separate record, even if it is the
    one that switches to a new segment. At an index of `ROLL_WORD` or more the caller calls
    `roll()`, which prepares the next segment and switches to it in time. If the spool has no
    room, records go to a scratch buffer and are counted as dropped; earlier records are kept.

    Args:
        tree: the spool.
        directory: directory of the process in the spool.
        thread: native id of the thread.
        log_class: coarse or fine; see `tree`.
        drops: counts the dropped records of the process.
        numbers: counter of segment numbers. A later thread with the same native id continues the
            numbering of the earlier one.
    """

    __slots__ = (
        "_class",
        "_directory",
        "_drop_cause",
        "_dropped",
        "_drops",
        "_next",
        "_numbers",
        "_preparing",
        "_retry_ns",
        "_scratch",
        "_thread",
        "_tree",
    )

    def __init__(
        self,
        tree: SpoolTree,
        directory: str,
        thread: int,
        log_class: str,
        drops: DropCounts,
        *,
        numbers: count[int] | None = None,
    ) -> None:
        self._tree = tree
        self._directory = directory
        self._thread = thread
        self._class = log_class
        self._numbers = count() if numbers is None else numbers
        self._drops = drops
        self._drop_cause = errno.EINTR  # signals that arrive faster than segments are created
        self._dropped = 0
        self._retry_ns = 0
        self._scratch = memoryview(bytearray(8 * RECORD_WORDS)).cast("Q")
        self._preparing = 0
        self._next: Cursor | None = None
        self.cursor: Cursor = repeat(END_WORD).__next__, self._scratch

    @property
    def dropped_count(self) -> int:
        """Records dropped so far because the spool was full or could not be written."""
        return self._dropped

    def roll(self, words: memoryview, i: int) -> tuple[memoryview, int]:
        """Prepare the next segment, and switch to it when the current one is full. Never raises.

        Args:
            words: words of the cursor that returned the index.
            i: the returned index.

        Returns:
            The words and the index to write to. If the spool has no room, they belong to a scratch
            buffer and the record is counted as dropped.
        """
        if self._next is None and self._preparing < MAX_PREPARING:
            self._prepare()
        while i >= END_WORD:
            # A signal handler may have switched segments since: read the cursor again.
            cursor = next_index, words = self.cursor
            i = next_index()
            if i >= END_WORD:
                next_cursor, self._next = self._next, None
                if next_cursor is not None:
                    self.cursor = next_cursor
                elif self.cursor is cursor:
                    return self._drop()
        return words, i

    def write(self, meta: int, start_ns: int, end_ns: int, value: int = 0) -> None:
        """Append one record with known start and end, in monotonic nanoseconds."""
        next_index, words = self.cursor
        i = next_index()
        if i >= ROLL_WORD:
            words, i = self.roll(words, i)
        words[i + 1] = end_ns
        words[i + 2] = meta
        words[i + 3] = value
        words[i] = start_ns

    def _prepare(self) -> None:
        now = time.monotonic_ns()
        if now < self._retry_ns:
            return
        self._preparing += 1
        try:
            cursor = self._open_segment(now)
            if self._next is None:
                self._next = cursor
        except OSError as error:
            is_full = isinstance(error, SpoolFullError)
            self._drop_cause = LIMIT_REACHED if is_full else error.errno or errno.EIO
            self._retry_ns = now + RETRY_NS
        finally:
            self._preparing -= 1

    def _drop(self) -> tuple[memoryview, int]:
        self._dropped += 1
        self._drops.add(self._drop_cause)
        return self._scratch, 0

    def _open_segment(self, now: int) -> Cursor:
        self._tree.reserve(self._class)
        number = next(self._numbers)
        path = f"{self._directory}/{LogName(self._thread, self._class, number).file_name}"
        words = _map_new_file(path + ".new")
        words[1] = FORMAT_VERSION
        words[FIRST_SEQUENCE_WORD] = number * SEGMENT_RECORDS
        words[THREAD_WORD] = self._thread
        words[ANCHOR_MONOTONIC_WORD] = now
        words[ANCHOR_EPOCH_WORD] = time.time_ns()
        words[0] = MAGIC
        os.rename(path + ".new", path)
        if native is not None:
            return native.Counter(words, ROLL_WORD), words
        return count(HEADER_WORDS, RECORD_WORDS).__next__, words


def _map_new_file(path: str) -> memoryview:
    """Map a new zeroed file as native 64-bit words.

    Blocks are allocated first: a write to a hole of a full file system raises SIGBUS, which kills
    the process.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, SEGMENT_BYTES)
        flags = mmap.MAP_SHARED | _MAP_POPULATE
        return memoryview(mmap.mmap(descriptor, SEGMENT_BYTES, flags=flags)).cast("Q")
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
