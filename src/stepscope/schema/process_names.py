"""Names of the processes of a job, as its user thinks of them; every surface has these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepscope.schema.facts import DataLoaderWorkerFact
from stepscope.schema.run import ProcessInfo

TRAINER = "trainer"
"""Name of a training process without a rank."""


def name_processes(processes: Iterable[ProcessInfo]) -> dict[str, str]:
    """Name the processes of a job: `trainer` or `rank 3`, and `worker 0` of a DataLoader.

    Of equal names, as of the workers of two DataLoaders, all but the earliest get the pid, so that
    a name does not change while the job starts more processes. The processes of one rank share its
    name.
    """
    ordered = sorted(processes, key=lambda process: process.started_ns)
    parents = {(process.node, process.pid): process for process in ordered}
    names: dict[str, str] = {}
    used: set[str] = set()
    for process in ordered:
        name = _name(process, parents)
        if name in used and (process.role != "main" or process.rank is None):
            name = f"{name} ({process.pid})"
        used.add(name)
        names[process.process] = name
    return names


def _name(process: ProcessInfo, parents: Mapping[tuple[str, int], ProcessInfo]) -> str:
    if process.role in {"program", "monitor"}:
        return f"process {process.pid}"
    if process.role == "main":
        name = TRAINER if process.rank is None else f"rank {process.rank}"
        restart = process.incarnation
        return name if restart == 1 else f"{name} (incarnation {restart})"
    parent = parents.get((process.node, process.parent_pid))
    owner = "" if parent is None or parent.rank is None else f" of {_name(parent, {})}"
    numbers = [fact.worker for fact in process.facts_of(DataLoaderWorkerFact)]
    if process.role == "dataloader_worker" and numbers:
        return f"worker {numbers[0]}{owner}"
    return f"worker process {process.pid}{owner}"
