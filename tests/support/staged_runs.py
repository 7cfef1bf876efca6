"""Staging directories of runs for an object store, to which flushes are added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.schema import JobState, JobStatus, LauncherInfo, RunInfo
from stepscope.store import (
    DictColumn,
    RunMirror,
    RunWriter,
    SharedRun,
    UploadTarget,
    create_journal,
    create_run,
)

INFO = RunInfo(
    schema_version=1,
    run_id="a",
    created_ns=1,
    command=["train.py"],
    working_directory="/",
    stepscope_version="0",
)
STATUS = JobStatus(state=JobState.IN_PROGRESS, heartbeat_ns=1, started_ns=1)


def scalar_rows(first: int, count: int) -> dict[str, Any]:
    """Build scalars with consecutive numbers."""
    numbers = np.arange(first, first + count)
    texts = ("node", "process", "log", "name")
    return {
        **{name: DictColumn.constant(name, count) for name in texts},
        "seq": numbers,
        "t_ns": numbers,
        "step": numbers,
        "value": numbers * 0.5,
    }


class Staged:
    """A staging directory to which flushes of three rows are added."""

    def __init__(self, directory: Path, url: str, info: RunInfo = INFO, node: str = "n0") -> None:
        self.directory, self.url, self.node = directory, url, node
        directory.mkdir()
        create_run(directory, info)
        assert create_journal(directory, UploadTarget(url=url, is_unique=False))
        self.row_count = 0
        self.mirror = RunMirror(directory)
        self.writer = RunWriter(directory, node)

    def flush(self, *, compact: bool = False) -> None:
        self.row_count += self.writer.append("scalars", scalar_rows(self.row_count, 3))
        if compact:
            self.writer.compact("scalars")
        self.writer.put_status(msgspec.structs.replace(STATUS, heartbeat_ns=self.row_count))

    def register(self, node: str, machine: str = "m") -> None:
        def make(name: str) -> LauncherInfo:
            return LauncherInfo(
                node=name, host=node, slot=node, incarnation=1, registered_ns=1, machine=machine,
                pid=1, start_ticks=1,
            )  # fmt: skip

        SharedRun(self.directory).register(node, make)

    def send(self) -> None:
        with self.mirror.journal as journal:
            assert journal.take()
            self.mirror.send()

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in self.directory.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }
