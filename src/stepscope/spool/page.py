"""Pages that a process of the job and its monitor share: heartbeat, drops, collectives.

The heartbeat of a training process: one page shared with its monitor.

    word 0   magic                                   written by the process, last
    word 1   number of steps that have ended
    word 2   monotonic ns of the last step boundary, or of the last sign of work
    word 3   ns that the training thread has waited for data
    word 4   number and state of the current plan: number << 8 | state
    word 8   number of the schedules and number of plans issued by the monitor:
             schedules << 32 | plans                 written by the monitor

Each word has one writer and is stored atomically, so neither side waits for the other. The
contents of a plan are in a separate file (`plan`), those of the schedules in another
(`plan`); the page only announces them. The process does not announce the plans that it
writes itself: word 4 shows the last one.

Count of the records that a process could not keep, by cause: a page shared with the monitor.

    word 0     magic                    written last
    word n     records dropped because of error n of errno(3)
    word 511   records dropped because the spool has reached its limit

The page is allocated before the first record, so that it counts where nothing can be written any
more. If even the page has no room, a link says so by its name, which needs none. A process
that cannot even create its directory notes the error in a page of the spool, which is allocated
before the job starts; there word n is 1 if error n kept a process from being recorded.

Page of a spool by which its monitor requests censuses of memory (`capture.census`):

    word 0   magic                                        written by the launcher, before the job
    word 1   number of the last request                   written by the monitor
    words 2 to 9   process ids that it is for; all 0 for all

Page on which a training process and its monitor share the progress of its collectives:

    word 0   magic                                        written by the process, last
    word 1   collectives that the process has started, over all groups
    word 2   collectives that have ended
    word 3   monotonic ns at which word 1 or 2 changed last
    word 4   monotonic ns at which the process read its recorder last
    word 5   number of the last answered question
    word 6   sends and receives between two ranks that the process has started
    word 7   steps that have ended
    word 8   number of the last question                  written by the monitor

A question asks the process for the state of its recorder and the Python stacks of its threads; the
answer is a dump (`collective_dump`). Each word has one writer and is stored atomically.
"""

from __future__ import annotations

import errno
import mmap
import os
from itertools import count

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

PAGE_BYTES = 4096
CREATE = os.O_RDWR | os.O_CREAT | os.O_TRUNC
OPEN = os.O_RDWR


def map_page(path: str, flags: int) -> memoryview:
    """Map the page of a file as native 64-bit words.

    Args:
        path: the file.
        flags: `CREATE` for a new page of zeros, or `OPEN`.

    Raises:
        OSError: the file cannot be opened, or there is no room for it.
        ValueError: it is not fully allocated yet.
    """
    descriptor = os.open(path, flags, 0o600)
    try:
        if flags & os.O_CREAT:  # a write to a hole of a full file system raises SIGBUS
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        return memoryview(mmap.mmap(descriptor, PAGE_BYTES)).cast("Q")
    finally:
        os.close(descriptor)


HEARTBEAT_FILE = "pulse"
"""Same name and magic as in earlier versions: `stepscope recover` reads spools that they left."""
HEARTBEAT_MAGIC = int.from_bytes(b"steppuls", "little")

STEPS_WORD = 1
BOUNDARY_WORD = 2
DATA_WAIT_WORD = 3
WINDOW_WORD = 4
ISSUED_WORD = 8
_SCHEDULES_SHIFT = 32


class WindowState:
    """State of a window plan in its process."""

    NONE: Final = 0
    WAITING: Final = 1
    """The plan is known; its first step has not started."""
    RECORDING: Final = 2
    WRITING: Final = 3
    """All steps are recorded; the file is being written."""
    OVER: Final = 4
    """The plan is done: the file is complete, or a fact states why there is none."""


class Heartbeat:
    """The mapped page. `words` are native 64-bit words."""

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words = words

    @classmethod
    def create(cls, directory: str) -> Heartbeat:
        """Create the page of this process.

        Raises:
            OSError: the spool cannot be written.
        """
        heartbeat = cls(map_page(f"{directory}/{HEARTBEAT_FILE}", CREATE))
        heartbeat.words[0] = HEARTBEAT_MAGIC
        return heartbeat

    @classmethod
    def open(cls, directory: str) -> Heartbeat | None:
        """Open the page of another process; None if it has none."""
        try:
            heartbeat = cls(map_page(f"{directory}/{HEARTBEAT_FILE}", OPEN))
        except (OSError, ValueError):  # missing, or not fully allocated yet
            return None
        return heartbeat if heartbeat.words[0] == HEARTBEAT_MAGIC else None

    @property
    def window(self) -> tuple[int, int]:
        """Number of the current plan of the process, and its `WindowState`."""
        word = self.words[WINDOW_WORD]
        return word >> 8, word & 0xFF

    @window.setter
    def window(self, value: tuple[int, int]) -> None:
        number, state = value
        self.words[WINDOW_WORD] = number << 8 | state

    @property
    def issued(self) -> tuple[int, int]:
        """Number of the schedules that apply, 0 before the first change; and number of plans."""
        word = self.words[ISSUED_WORD]
        return word >> _SCHEDULES_SHIFT, word & ((1 << _SCHEDULES_SHIFT) - 1)

    @issued.setter
    def issued(self, value: tuple[int, int]) -> None:
        schedules, plans = value
        self.words[ISSUED_WORD] = schedules << _SCHEDULES_SHIFT | plans


DROPS_FILE = "drops"
REFUSALS_FILE = "refusals"
DROPS_MAGIC = int.from_bytes(b"stepdrop", "little")
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
            words = map_page(f"{directory}/{DROPS_FILE}", CREATE)
        except OSError as error:
            note_refusal(directory, error)
            raise
        words[0] = DROPS_MAGIC
        return cls(words)

    @classmethod
    def create_private(cls) -> DropCounts:
        """Create one that no reader sees, for records that are of no account."""
        return cls(memoryview(bytearray(PAGE_BYTES)).cast("Q"))

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
    map_page(f"{spool}/{REFUSALS_FILE}", CREATE)[0] = DROPS_MAGIC


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
    if words[0] != DROPS_MAGIC:
        return {}
    return {name_cause(cause): n for cause, n in enumerate(words) if cause and n}


def name_cause(cause: int) -> str:
    """Return the name of a cause, such as ENOSPC."""
    return LIMIT_CAUSE if cause == LIMIT_REACHED else errno.errorcode.get(cause, str(cause))


CENSUS_FILE = "census"
CENSUS_MAGIC = int.from_bytes(b"stepcens", "little")
CENSUS_WORD = 1
MAX_CENSUS_PIDS = 8
"""Processes that a request can name."""
CENSUS_PID_WORDS = slice(2, 2 + MAX_CENSUS_PIDS)
"""The processes that are asked; all zero for all of the job."""


def reserve_censuses(spool: str) -> None:
    """Allocate the page of a new spool.

    Raises:
        OSError: the spool cannot be written.
    """
    map_page(f"{spool}/{CENSUS_FILE}", CREATE)[0] = CENSUS_MAGIC


def open_censuses(spool: str) -> memoryview | None:
    """Open the page of a spool; None if it has none."""
    try:
        words = map_page(f"{spool}/{CENSUS_FILE}", OPEN)
    except (OSError, ValueError):
        return None
    return words if words[0] == CENSUS_MAGIC else None


def request_census(spool: str, pids: Sequence[int] = ()) -> int | None:
    """Request a census of memory from some processes of the job, or from all that train or load.

    Each answers with a fact `memory_census` that has the number of the request, after some steps.

    Returns:
        The number of the request; None if the spool has no page for it.
    """
    words = open_censuses(spool)
    if words is None:
        return None
    shown = list(pids[:MAX_CENSUS_PIDS])
    padding = [0] * (MAX_CENSUS_PIDS - len(shown))
    for offset, pid in enumerate(shown + padding):
        words[CENSUS_PID_WORDS.start + offset] = pid
    words[CENSUS_WORD] += 1
    return words[CENSUS_WORD]


COLLECTIVES_FILE = "collectives"
COLLECTIVES_MAGIC = int.from_bytes(b"stepcoll", "little")
STARTED_WORD = 1
ENDED_WORD = 2
CHANGED_WORD = 3
READ_WORD = 4
ANSWER_WORD = 5
TRANSFERS_WORD = 6
FINISHED_STEPS_WORD = 7
QUESTION_WORD = 8


class CollectivePage:
    """The mapped page. `words` are native 64-bit words."""

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words = words

    @classmethod
    def create(cls, directory: str) -> CollectivePage:
        """Create the page of this process, or continue that of an earlier reader.

        Raises:
            OSError: the spool cannot be written.
        """
        page = cls.open(directory)
        if page is None:
            page = cls(map_page(f"{directory}/{COLLECTIVES_FILE}", CREATE))
            page.words[0] = COLLECTIVES_MAGIC
        return page

    @classmethod
    def open(cls, directory: str) -> CollectivePage | None:
        """Open the page of a process; None if it has none."""
        try:
            page = cls(map_page(f"{directory}/{COLLECTIVES_FILE}", OPEN))
        except (OSError, ValueError):  # missing, or not fully allocated yet
            return None
        return page if page.words[0] == COLLECTIVES_MAGIC else None

    def put_progress(
        self, started: int, ended: int, now_ns: int, *, transfers: int = 0, steps: int = 0
    ) -> None:
        """Write the progress of the process."""
        words = self.words
        words[TRANSFERS_WORD] = transfers
        words[FINISHED_STEPS_WORD] = steps
        if (words[STARTED_WORD], words[ENDED_WORD]) != (started, ended):
            words[STARTED_WORD], words[ENDED_WORD] = started, ended
            words[CHANGED_WORD] = now_ns
        words[READ_WORD] = now_ns
