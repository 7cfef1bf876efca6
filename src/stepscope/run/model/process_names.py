"""Names of the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stepscope import schema

if TYPE_CHECKING:
    from stepscope.run.model.run import Run


class _Names(dict[str, str]):
    """Names by process; one that has started since they were made has its pid."""

    def __missing__(self, process: str) -> str:
        return f"process {process.partition('-')[0]}"


def process_names(run: Run) -> Mapping[str, str]:
    """Return the names of the processes of a run by process; see `schema.name_processes`."""
    return run.derive(_name_processes)


def names_by_pid(run: Run, node: str) -> dict[int, str]:
    """Return the names of the processes of a node by pid."""
    names = process_names(run)
    return {p.pid: names[p.process] for p in run.processes if p.node == node}


def _name_processes(run: Run) -> Mapping[str, str]:
    return _Names(schema.name_processes(run.reader.processes()))
