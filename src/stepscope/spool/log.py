"""The writer of one thread's log.

The hot path is three memory stores; everything that can fail happens once per segment, in
`roll`. Callers inline the path (see `capture.session`), which is why the fields are public.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from itertools import count

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

RETRY_NS = 100_000_000
"""How long a log that found the spool full waits before it asks again."""

END_WORD = HEADER_WORDS + SEGMENT_RECORDS * RECORD_WORDS


class SpanLog:
    """Append-only log of one thread, in segments that the monitor removes once read.

    `take()` hands out the word index of the next record; it is one C call, so a signal handler
    or garbage-collection callback that records in between gets a record of its own. When the
    index reaches `limit`, the caller asks `roll()`, which opens a new segment and returns an
    index in it. If there is no room, records go to a scratch buffer and are counted as dropped;
    what was written before stays.
    """

    __slots__ = (
        "_class",
        "_directory",
        "_dropped",
        "_header",
        "_next_sequence",
        "_retry_ns",
        "_rolling",
        "_scratch",
        "_segment",
        "_thread",
        "_tree",
        "limit",
        "take",
        "words",
    )

    def __init__(self, tree: SpoolTree, directory: str, thread: int, log_class: str) -> None:
        self._tree = tree
        self._directory = directory
        self._thread = thread
        self._class = log_class
        self._segment = 0
        self._next_sequence = 0
        self._dropped = 0
        self._retry_ns = 0
        self._rolling = False
        self._scratch = memoryview(bytearray(8 * RECORD_WORDS)).cast("Q")
        self._header: memoryview | None = None
        self.words: memoryview = self._scratch
        self.limit = 0
        self.take: Callable[[], int] = count().__next__

    @property
    def dropped_count(self) -> int:
        """Records given up so far because the spool was full or could not be written."""
        return self._dropped

    def roll(self) -> int:
        """Open the next segment and take its first record; called when `take()` passed `limit`.

        Returns:
            Index of the record's first word in `words`. Never raises: without room it is an
            index into the scratch buffer and the record is counted as dropped.
        """
        now = time.monotonic_ns()
        if not self._rolling and now >= self._retry_ns:
            self._rolling = True
            try:
                self._open_segment(now)
                return self.take()
            except OSError:
                self._retry_ns = now + RETRY_NS
            finally:
                self._rolling = False
        self.words = self._scratch
        self._dropped += 1
        if self._header is not None:
            self._header[DROPPED_WORD] = self._dropped
        return 0

    def write(self, meta: int, start_ns: int, end_ns: int, value: int = 0) -> None:
        """Append one record whose extent is known. Times are monotonic nanoseconds."""
        i = self.take()
        if i >= self.limit:
            i = self.roll()
        words = self.words
        words[i + 1] = end_ns
        words[i + 2] = meta
        words[i + 3] = value
        words[i] = start_ns

    def release(self) -> None:
        """Let go of the mapping: for the child of a fork, whose log this is not."""
        for view in (self.words, self._header):
            if view is not None:
                view.release()

    def _open_segment(self, now: int) -> None:
        self._tree.reserve(self._class)
        name = LogName(self._thread, self._class, self._segment).file_name
        path = f"{self._directory}/{name}"
        words = _map_new_file(path + ".new")
        words[1] = FORMAT_VERSION
        words[FIRST_SEQUENCE_WORD] = self._next_sequence
        words[THREAD_WORD] = self._thread
        words[ANCHOR_MONOTONIC_WORD] = now
        words[ANCHOR_EPOCH_WORD] = time.time_ns()
        words[DROPPED_WORD] = self._dropped
        words[0] = MAGIC
        os.rename(path + ".new", path)
        self._header = words
        self._segment += 1
        self._next_sequence += SEGMENT_RECORDS
        self.words = words
        self.take = count(HEADER_WORDS, RECORD_WORDS).__next__
        self.limit = END_WORD


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
