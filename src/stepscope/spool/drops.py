"""Count of the records that a process could not keep, by cause: a page shared with the monitor.

    word 0     magic                    written last
    word n     records dropped because of error n of errno(3)
    word 511   records dropped because the spool has reached its limit

The page is allocated before the first record, so that it counts where nothing can be written any
more. If even the page has no room, a link says so by its name, which needs none. A process
that cannot even create its directory notes the error in a page of the spool, which is allocated
before the job starts; there word n is 1 if error n kept a process from being recorded.
"""

from __future__ import annotations

import errno
import os
from itertools import count

from stepscope.spool.page import CREATE, OPEN, PAGE_BYTES, map_page

FILE_NAME = "drops"
REFUSALS_FILE = "refusals"
MAGIC = int.from_bytes(b"stepdrop", "little")
LIMIT_REACHED = 511
"""Number of the cause that the spool has reached its limit, which is no error of the system."""
LIMIT_CAUSE = "spool_limit"
"""Its name."""
UNKNOWN_CAUSE = "unknown"
"""Cause for which nothing of a process was recorded, not even the cause."""
_REFUSED = "not-recorded-"


class DropCounts:
    """Page of one process, written by all of its logs."""

    __slots__ = ("_counters", "_words")

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._counters: dict[int, count[int]] = {}

    @classmethod
    def create(cls, directory: str) -> DropCounts:
        """Create the page of this process.

        Raises:
            OSError: the spool cannot be written; the directory says so.
        """
        try:
            words = map_page(f"{directory}/{FILE_NAME}", CREATE)
        except OSError as error:
            note_refusal(directory, error)
            raise
        words[0] = MAGIC
        return cls(words)

    def add(self, cause: int) -> None:
        """Count one more record. Threads and signal handlers may call it at the same time."""
        counter = self._counters.get(cause)
        if counter is None:
            counter = self._counters.setdefault(cause, count(1))
        self._words[cause] = next(counter)


def note_refusal(directory: str, error: OSError) -> None:
    """Note that nothing of a process can be recorded because of an error."""
    if not _name_refusal(directory, error):
        note_refusal_in_spool(os.path.dirname(directory), error)


def _name_refusal(directory: str, error: OSError) -> bool:
    try:
        os.symlink(".", f"{directory}/{_REFUSED}{error.errno}")  # needs no descriptor
    except OSError:
        return False
    return True


def read_refusal(directory: str) -> str | None:
    """Return the name of the error because of which nothing of a process was recorded; None if
    there is none."""
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    numbers = [name.removeprefix(_REFUSED) for name in names if name.startswith(_REFUSED)]
    return name_cause(int(numbers[0])) if numbers and numbers[0].isdecimal() else None


def reserve_refusals(spool: str) -> None:
    """Allocate the page of a new spool.

    Raises:
        OSError: the spool cannot be written.
    """
    map_page(f"{spool}/{REFUSALS_FILE}", CREATE)[0] = MAGIC


def note_refusal_in_spool(spool: str, error: OSError) -> None:
    """Note that a process could not be recorded, and that its directory cannot say so."""
    try:
        map_page(f"{spool}/{REFUSALS_FILE}", OPEN)[error.errno or errno.EIO] = 1
    except (OSError, ValueError):  # no descriptor is left, or the page was deleted
        _name_refusal(spool, error)


def read_refusals(spool: str) -> list[str]:
    """Return the names of the errors that processes could not note in directories of their own."""
    name = read_refusal(spool)
    names = [] if name is None else [name]
    try:
        with open(f"{spool}/{REFUSALS_FILE}", "rb") as file:
            return [*parse_drops(file.read()), *names]
    except OSError:
        return names


def parse_drops(page: bytes) -> dict[str, int]:
    """Return the number of dropped records by the name of the cause; empty without a page."""
    if len(page) != PAGE_BYTES:
        return {}
    words = memoryview(page).cast("Q")
    if words[0] != MAGIC:
        return {}
    return {name_cause(cause): n for cause, n in enumerate(words) if cause and n}


def name_cause(cause: int) -> str:
    """Return the name of a cause, such as ENOSPC."""
    return LIMIT_CAUSE if cause == LIMIT_REACHED else errno.errorcode.get(cause, str(cause))
