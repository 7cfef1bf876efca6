"""Descendants of a job that is asked to stop, and their end.

The launcher imports this only then: psutil takes a megabyte in each process that is forked from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil


def list_job_processes(pid: int) -> list[psutil.Process]:
    """List the descendants of the job's command, but not its daemons."""
    return [process for process in _list_descendants(pid) if _is_of_job(process, pid)]


def kill_remaining(processes: list[psutil.Process], timeout_s: float) -> None:
    """Kill the processes that have not ended after a time."""
    _, remaining = psutil.wait_procs(processes, timeout_s)
    _kill(remaining)


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants: ranks must not outlive their launcher."""
    try:
        root = psutil.Process(pid)
    except psutil.Error:
        return
    _kill([root, *_list_descendants(pid)])


def _list_descendants(pid: int) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return children


def _is_of_job(process: psutil.Process, pid: int) -> bool:
    """Return False for a daemon, which has a session of its own: a server that a job has started
    may be there for others, too. Launchers start ranks in such sessions, and tell them their
    rank."""
    try:
        if os.getsid(process.pid) == os.getsid(pid):
            return True
        return not {"RANK", "LOCAL_RANK"}.isdisjoint(process.environ())
    except (OSError, psutil.Error):  # it has ended
        return False


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            pass
