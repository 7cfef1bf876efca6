"""The writer of one thread's log.

The hot path is three memory stores; everything that can fail happens once per segment, in
`roll`. Callers inline the path (see `capture.marks`), which is why `place` is public:

    take, words = log.place
    i = take()
    if i >= ROLL_WORD:
        words, i = log.roll(words, i)
"""

from __future__ import annotations

import mmap
import os
import time
from itertools import count, repeat

from stepscope.spool.record import (
    ANCHOR_EPOCH_WORD,
    ANCHOR_MONOTONIC_WORD,
    DROPPED_WORD,
    FIRST_SEQUENCE_WORD,
    FORMAT_VERSION,
    HEADER_WORDS,
    MAGIC,
    RECORD_WORDS,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    THREAD_WORD,
)
from stepscope.spool.tree import LogName, SpoolTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Place = tuple[Callable[[], int], memoryview]

RETRY_NS = 100_000_000
"""How long a log that found the spool full waits before it asks again."""

END_WORD = HEADER_WORDS + SEGMENT_RECORDS * RECORD_WORDS
ROLL_WORD = END_WORD - 64 * RECORD_WORDS
"""From here on the next segment is made ready; what a signal handler records while that lasts
goes into the rest of this one."""

MAX_PREPARING = 2
"""A handler that interrupts the making of a log's first segment may make one too, but not one
that interrupts that: signals may arrive faster than segments are made."""


class SpanLog:
    """Append-only log of one thread, in segments that the monitor removes once read.

    `place` is a function that hands out the word index of the next record, and the words it
    belongs to. The function is one C call, and the two are read as one, so a signal handler or
    garbage-collection callback that records in between gets a record of its own, even where it
    is the one that goes on to a new segment. With an index of `ROLL_WORD` or more the caller
    asks `roll()`, which makes the next segment ready and goes on to it in time. If there is no
    room, records go to a scratch buffer and are counted as dropped; what was written before
    stays.

    Args:
        tree: the spool.
        directory: the process's own in it.
        thread: native id of the thread.
        log_class: coarse or fine; see `tree`.
        numbers: the numbers of its segments. A later thread that the system gives the same id
            goes on counting where the former ended.
    """

    __slots__ = (
        "_class",
        "_directory",
        "_dropped",
        "_header",
        "_next",
        "_numbers",
        "_preparing",
        "_retry_ns",
        "_scratch",
        "_thread",
        "_tree",
        "place",
    )

    def __init__(
        self,
        tree: SpoolTree,
        directory: str,
        thread: int,
        log_class: str,
        numbers: count[int] | None = None,
    ) -> None:
        self._tree = tree
        self._directory = directory
        self._thread = thread
        self._class = log_class
        self._numbers = count() if numbers is None else numbers
        self._dropped = 0
        self._retry_ns = 0
        self._scratch = memoryview(bytearray(8 * RECORD_WORDS)).cast("Q")
        self._header: memoryview | None = None
        self._preparing = 0
        self._next: Place | None = None
        self.place: Place = repeat(END_WORD).__next__, self._scratch

    @property
    def dropped_count(self) -> int:
        """Records given up so far because the spool was full or could not be written."""
        return self._dropped

    def roll(self, words: memoryview, i: int) -> tuple[memoryview, int]:
        """Keep a next segment ready, and go on to it when this one is full.

        Args:
            words: what was taken from.
            i: the index that was taken.

        Returns:
            The words and the index to write to. Never raises: without room they are those of a
            scratch buffer, and the record is counted as dropped.
        """
        if self._next is None and self._preparing < MAX_PREPARING:
            self._prepare()
        while i >= END_WORD:
            place = take, words = self.place  # perhaps another one since: handlers roll, too
            i = take()
            if i >= END_WORD:
                following, self._next = self._next, None
                if following is not None:
                    self.place = following
                elif self.place is place:
                    return self._drop()
        return words, i

    def write(self, meta: int, start_ns: int, end_ns: int, value: int = 0) -> None:
        """Append one record whose extent is known. Times are monotonic nanoseconds."""
        take, words = self.place
        i = take()
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
            opened = self._open_segment(now)
            if self._next is None:
                self._next = opened
        except OSError:
            self._retry_ns = now + RETRY_NS
        finally:
            self._preparing -= 1

    def _drop(self) -> tuple[memoryview, int]:
        self._dropped += 1
        if self._header is not None:
            self._header[DROPPED_WORD] = self._dropped
        return self._scratch, 0

    def _open_segment(self, now: int) -> Place:
        self._tree.reserve(self._class)
        number = next(self._numbers)
        path = f"{self._directory}/{LogName(self._thread, self._class, number).file_name}"
        words = _map_new_file(path + ".new")
        words[1] = FORMAT_VERSION
        words[FIRST_SEQUENCE_WORD] = number * SEGMENT_RECORDS
        words[THREAD_WORD] = self._thread
        words[ANCHOR_MONOTONIC_WORD] = now
        words[ANCHOR_EPOCH_WORD] = time.time_ns()
        words[DROPPED_WORD] = self._dropped
        words[0] = MAGIC
        os.rename(path + ".new", path)
        self._header = words
        return count(HEADER_WORDS, RECORD_WORDS).__next__, words


def _map_new_file(path: str) -> memoryview:
    """Map a new zeroed file as native 64-bit words.

    Its blocks are allocated first: writing to a hole of a full file system would be a bus
    error, which no Python code survives.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, SEGMENT_BYTES)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return memoryview(mmap.mmap(descriptor, SEGMENT_BYTES, flags=flags)).cast("Q")
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
