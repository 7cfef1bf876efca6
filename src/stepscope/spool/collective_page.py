"""Page on which a training process and its monitor share the progress of its collectives.

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

from stepscope.spool.page import CREATE, OPEN, map_page

FILE_NAME = "collectives"
MAGIC = int.from_bytes(b"stepcoll", "little")
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
            page = cls(map_page(f"{directory}/{FILE_NAME}", CREATE))
            page.words[0] = MAGIC
        return page

    @classmethod
    def open(cls, directory: str) -> CollectivePage | None:
        """Open the page of a process; None if it has none."""
        try:
            page = cls(map_page(f"{directory}/{FILE_NAME}", OPEN))
        except (OSError, ValueError):  # missing, or not fully allocated yet
            return None
        return page if page.words[0] == MAGIC else None

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
