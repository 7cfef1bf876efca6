"""The directory of one process in the spool, as the drain of the spool sees it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.monitor.collective_dumps import CollectiveDumps
from stepscope.monitor.row_files import RowFile
from stepscope.spool import (
    DROPS_FILE,
    PAGE_BYTES,
    UNKNOWN_CAUSE,
    CollectivePage,
    Journal,
    parse_drops,
    process_is_alive,
    read_refusal,
    read_refusals,
)

JOURNAL_FILE = "journal.jsonl"
MAX_OPEN_FILES = 256
"""Limit on the files of the spool that stay open, far below the usual limit of 1024."""


class SharedFile:
    """File of the spool that a process of the job writes to through a mapping.

    It stays open, up to a number of files, so that it can be read to the end even if somebody
    deletes it: the process keeps its mapping, too. A mapping here would make the monitor die by
    SIGBUS where somebody truncates the file.

    Raises:
        OSError: it cannot be opened.
    """

    _open_count = 0

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size
        self._descriptor: int | None = None
        if SharedFile._open_count < MAX_OPEN_FILES:
            self._descriptor = os.open(path, os.O_RDONLY)
            SharedFile._open_count += 1

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            SharedFile._open_count -= 1

    def read(self) -> bytes:
        """Read the content; empty if the file is missing."""
        if self._descriptor is not None:
            return os.pread(self._descriptor, self._size, 0)
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""


@dataclass(slots=True)
class LogSegment:
    """Segment file of a log, and the records of it that the store has."""

    file: SharedFile
    log: str
    first: int
    emitted: NDArray[np.bool_]

    @property
    def finished(self) -> bool:
        """True when all records of the file are in the store."""
        return bool(self.emitted.all())


@dataclass(slots=True)
class ProcessLogs:
    """State of the directory of one process."""

    name: str
    directory: Path
    journal_offset: int = 0
    names: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    description: dict[str, Any] = field(default_factory=dict)
    facts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None
    """How the interpreter ended; None if it was killed, or has not ended."""
    segments: dict[str, LogSegment] = field(default_factory=dict)
    row_files: dict[str, RowFile] = field(default_factory=dict)
    dumps: CollectiveDumps = field(init=False)
    _page: CollectivePage | None = None
    unreadable: set[str] = field(default_factory=set)
    """Names of damaged files of rows."""
    drops: SharedFile | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of records that had no room, by cause."""
    refusal: str | None = None
    """Cause for which nothing at all could be recorded."""
    changed: bool = True
    ended: bool = False

    def __post_init__(self) -> None:
        self.dumps = CollectiveDumps(self.name)

    @property
    def drained(self) -> bool:
        """True when the process has ended and the store has all of its records."""
        rows_are_stored = not any(file.missing for file in self.row_files.values())
        dumps_are_stored = not self.dumps.has_new
        return self.ended and not self.segments and rows_are_stored and dumps_are_stored

    @property
    def key(self) -> tuple[int, ...]:
        """Process id, start ticks and serial of the image, from the name of the directory."""
        return tuple(map(int, self.name.partition("@")[0].split("-")))

    @property
    def pid(self) -> int:
        """Process id."""
        return self.key[0]

    def open_collective_page(self) -> CollectivePage | None:
        """Open the page of its collectives, which stays readable when the directory is gone; None
        without one."""
        if self._page is None:
            self._page = CollectivePage.open(str(self.directory))
        return self._page

    def is_alive(self) -> bool:
        """Check whether the process that created the directory runs; its pid may be reused."""
        return process_is_alive(str(self.directory))

    def close(self) -> None:
        """Close the files of a process of which everything is stored."""
        if self.drops is not None:
            self.drops.close()

    def read_drops(self) -> None:
        """Read how many records the process has dropped, or why nothing of it is recorded."""
        if not self.description:  # it starts just now, or not even its journal had room
            refusal = read_refusal(str(self.directory))
            if refusal is None and self.ended:
                refusals = read_refusals(str(self.directory.parent))
                refusal = refusals[0] if refusals else UNKNOWN_CAUSE
            self.changed |= refusal != self.refusal
            self.refusal = refusal
        if self.drops is None:
            try:
                self.drops = SharedFile(self.directory / DROPS_FILE, PAGE_BYTES)
            except FileNotFoundError:
                return
        dropped = parse_drops(self.drops.read())
        self.changed |= dropped != self.dropped
        self.dropped = dropped

    def restore(self) -> None:
        """Create the directory again after somebody has deleted it, with what its journal said.

        The process opens its journal and new segments by their names, and so continues in the new
        directory. It appears with the complete journal, because the process appends to it.

        Raises:
            OSError: the spool cannot be written.
        """
        staged = self.directory.with_name(f"new-{self.name}")
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(mode=0o700)
        journal = Journal(str(staged / JOURNAL_FILE))
        journal.write("process", **self.description)
        for number, (text, labels) in self.names.items():
            journal.write("name", id=number, text=text, labels=labels)
        for fact in self.facts:
            journal.write("fact", **fact)
        for note in self.notes:
            journal.write("note", text=note)
        size = (staged / JOURNAL_FILE).stat().st_size
        staged.rename(self.directory)
        self.journal_offset = size
