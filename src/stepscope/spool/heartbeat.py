"""The heartbeat of a training process: one page shared with its monitor.

    word 0   magic                                   written by the process, last
    word 1   number of steps that have ended
    word 2   monotonic ns of the last step boundary, or of the last sign of work
    word 3   ns that the training thread has waited for data
    word 4   number and state of the current plan: number << 8 | state
    word 8   number of the schedules and number of plans issued by the monitor:
             schedules << 32 | plans                 written by the monitor

Each word has one writer and is stored atomically, so neither side waits for the other. The
contents of a plan are in a separate file (`plan`), those of the schedules in another
(`step_schedule`); the page only announces them. The process does not announce the plans that it
writes itself: word 4 shows the last one.
"""

from __future__ import annotations

from stepscope.spool.page import CREATE, OPEN, map_page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FILE_NAME = "pulse"
"""Same name and magic as in earlier versions: `stepscope recover` reads spools that they left."""
MAGIC = int.from_bytes(b"steppuls", "little")

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
        heartbeat = cls(map_page(f"{directory}/{FILE_NAME}", CREATE))
        heartbeat.words[0] = MAGIC
        return heartbeat

    @classmethod
    def open(cls, directory: str) -> Heartbeat | None:
        """Open the page of another process; None if it has none."""
        try:
            heartbeat = cls(map_page(f"{directory}/{FILE_NAME}", OPEN))
        except (OSError, ValueError):  # missing, or not fully allocated yet
            return None
        return heartbeat if heartbeat.words[0] == MAGIC else None

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
