"""Samples of the monitor in the spool, like spans of the job.

So a monitor that is killed loses no sample: the next one drains the log of this one.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import threading
import time
from collections.abc import Iterable

from stepscope.monitor.samplers.base import Sample
from stepscope.spool import DropCounts, Flag, Journal, Kind, SpanLog, SpoolTree, make_meta


class SampleLog:
    """Log of the samples of this process."""

    def __init__(self, tree: SpoolTree) -> None:
        self._tree = tree
        self._log: SpanLog | None = None
        self._metas: dict[tuple[str, str], int] = {}

    def open(self) -> SpanLog:
        """Create the directory of this process and its log, unless they exist.

        Raises:
            OSError: the spool cannot be written; a later call tries again.
        """
        if self._log is None:
            _, directory = self._tree.make_process_directory()
            try:
                drops = DropCounts.create(directory)
                self._journal = Journal(f"{directory}/journal.jsonl")
                self._journal.write(
                    "process", pid=os.getpid(), parent_pid=os.getppid(), role="monitor", command=[]
                )
            except OSError:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            self._log = SpanLog(self._tree, directory, threading.get_native_id(), "c", drops)
        return self._log

    def write(self, samples: Iterable[Sample], now_ns: int | None = None) -> None:
        """Append one record per sample, all at one time (monotonic nanoseconds, default now).

        Raises:
            OSError: the log, or the name of a new metric, cannot be written.
        """
        log = self.open()
        time_ns = time.monotonic_ns() if now_ns is None else now_ns
        for sample in samples:
            key = (sample.metric, sample.device)
            meta = self._metas.get(key) or self._intern(key)
            (bits,) = struct.unpack("=Q", struct.pack("=d", sample.value))
            log.write(meta, time_ns, 0, bits)

    def _intern(self, key: tuple[str, str]) -> int:
        number = len(self._metas) + 1
        self._journal.write("name", id=number, text=key[0], labels=json.dumps(key[1]))
        meta = self._metas[key] = make_meta(number, Kind.METRIC, Flag.MARK)
        return meta
