"""Names of the processes of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope import schema

if TYPE_CHECKING:
    from stepscope.run.model.run import Run


def process_names(run: Run) -> dict[str, str]:
    """Return the names of the processes of the job by process; see `schema.name_processes`."""
    return run.derive(_name_processes)


def names_by_pid(run: Run, node: str) -> dict[int, str]:
    """Return the names of the processes of a node by pid."""
    names = process_names(run)
    return {p.pid: names[p.process] for p in run.processes if p.node == node}


def _name_processes(run: Run) -> dict[str, str]:
    return schema.name_processes(run.processes)
