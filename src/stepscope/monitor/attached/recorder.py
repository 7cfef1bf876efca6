"""Recorder of the processes of a job from outside: stack samples, and windows on request."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.monitor.attached.outside_process import OutsideFrame, OutsideProcess
from stepscope.monitor.attached.py_spy import PySpy
from stepscope.monitor.config import AttachSettings
from stepscope.monitor.samplers.processes import JobTree
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.spool import SpoolTree

DETACHED = "stepscope detached while the job was running: what followed was not recorded"


class AttachedRecorder:
    """Recorder of one job on this node.

    Args:
        settings: what can be recorded.
        tree: the spool.
        job: the processes.
        peer: daemon for libkineto; None if the job looks for none.
    """

    def __init__(
        self,
        settings: AttachSettings,
        tree: SpoolTree,
        job: JobTree,
        peer: KinetoPeer | None,
    ) -> None:
        self._limits = settings.limits
        self._tree = tree
        self._job = job
        self._peer = peer
        self._py_spy = (
            None if settings.py_spy is None else PySpy(settings.py_spy, job.root_pid, tree.root)
        )
        self._processes: dict[int, OutsideProcess] = {}

    @property
    def notes(self) -> list[str]:
        """Limits of the recording, and its cost; one sentence each."""
        return [*self._limits, *([] if self._py_spy is None else self._py_spy.notes)]

    @property
    def child_pids(self) -> set[int]:
        """Child processes of the recorder."""
        pid = None if self._py_spy is None else self._py_spy.child_pid
        return set() if pid is None else {pid}

    def poll(self) -> None:
        """Record what is new; takes milliseconds.

        Raises:
            OSError: the spool cannot be written.
        """
        if self._py_spy is not None:
            self._write(self._py_spy.poll())
        self._follow_windows()

    def finish(self) -> None:
        """Record the rest.

        Raises:
            OSError: the spool cannot be written.
        """
        if self._job.root_pid in self._job.processes:
            self._limits = [*self._limits, DETACHED]
        if self._py_spy is not None:
            self._write(self._py_spy.finish())
        self._follow_windows()

    def _write(self, samples: Iterable[tuple[int, int, list[OutsideFrame]]]) -> None:
        for pid, t_ns, frames in samples:
            process = self._find(pid, frames)
            if process is not None:
                try:
                    process.write_stack(frames, t_ns)
                except FileNotFoundError:  # it has ended, and its directory was drained
                    continue

    def _find(self, pid: int, stack: list[OutsideFrame]) -> OutsideProcess | None:
        """Return the recorder of a process, which starts with its first record; None if it has
        ended before."""
        process = self._processes.get(pid)
        if process is None:
            try:
                process = OutsideProcess(self._tree, pid, stack, PySpy.period_ns)
            except (ProcessLookupError, FileNotFoundError):
                return None
            self._processes[pid] = process
        return process

    def _follow_windows(self) -> None:
        """Follow the windows of every process whose libkineto has asked for a configuration."""
        if self._peer is None:
            return
        for pid in self._job.processes:
            process = self._find(pid, []) if self._peer.last_poll(pid) is not None else None
            if process is not None:
                process.follow_windows(is_fetched=not self._peer.has_offer(pid))
