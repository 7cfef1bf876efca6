"""The pulse of a training process: one small page that it and its monitor share.

    word 0   magic                                   written by the process, last
    word 1   steps that have ended
    word 2   monotonic ns of the last step boundary, or of the last sign of work
    word 3   ns that the training thread has waited for data
    word 4   the plan that the process follows, and how far it is: number << 8 | state
    word 8   plans that the monitor has made so far  written by the monitor

Each word has one writer and is stored whole, so nobody waits for anybody. What a plan says is in
a file of its own (`plan`); the page only says that there is a new one.
"""

from __future__ import annotations

import mmap
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FILE_NAME = "pulse"
PAGE_BYTES = 4096
MAGIC = int.from_bytes(b"steppuls", "little")

STEPS_WORD = 1
BOUNDARY_WORD = 2
DATA_WAIT_WORD = 3
WINDOW_WORD = 4
PLANS_WORD = 8


class WindowState:
    """How far a process is with a plan."""

    NONE: Final = 0
    WAITING: Final = 1
    """It knows the plan and waits for the first step."""
    RECORDING: Final = 2
    WRITING: Final = 3
    """All steps are recorded; the file is on its way."""
    OVER: Final = 4
    """Nothing more comes of this plan: the file is there, or a fact says why not."""


class Pulse:
    """The page, mapped. `words` are native 64-bit words."""

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words = words

    @classmethod
    def create(cls, directory: str) -> Pulse:
        """Make the page of this process.

        Raises:
            OSError: the spool cannot be written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        pulse = cls(_map(f"{directory}/{FILE_NAME}", flags))
        pulse.words[0] = MAGIC
        return pulse

    @classmethod
    def open(cls, directory: str) -> Pulse | None:
        """The page of another process; None when it has none."""
        try:
            pulse = cls(_map(f"{directory}/{FILE_NAME}", os.O_RDWR | os.O_CLOEXEC))
        except (OSError, ValueError):  # not there, or not whole yet
            return None
        return pulse if pulse.words[0] == MAGIC else None

    @property
    def window(self) -> tuple[int, int]:
        """Number of the plan that the process follows, and its `WindowState`."""
        word = self.words[WINDOW_WORD]
        return word >> 8, word & 0xFF

    @window.setter
    def window(self, value: tuple[int, int]) -> None:
        number, state = value
        self.words[WINDOW_WORD] = number << 8 | state


def _map(path: str, flags: int) -> memoryview:
    descriptor = os.open(path, flags, 0o600)
    try:
        if flags & os.O_CREAT:  # a hole of a full file system would be a bus error
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        return memoryview(mmap.mmap(descriptor, PAGE_BYTES)).cast("Q")
    finally:
        os.close(descriptor)
