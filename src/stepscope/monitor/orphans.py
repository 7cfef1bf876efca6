"""Search for processes of the job that are no children of its command."""

from __future__ import annotations

from pathlib import Path

from stepscope.spool import process_start_ticks


def find_processes(variable: str, value: str) -> dict[int, int]:
    """Find the processes that were started with this environment variable.

    A daemon has no relation to the command that started it, except for the inherited environment.

    Returns:
        Start ticks by pid.
    """
    entry = f"{variable}={value}".encode()
    processes = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = (directory / "environ").read_bytes().split(b"\0")
        except OSError:  # ended, or of another user
            continue
        ticks = process_start_ticks(directory.name) if entry in environment else None
        if ticks is not None:
            processes[int(directory.name)] = ticks
    return processes
