"""Names of the processes of a job, as its user thinks of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from stepscope import schema


def name_processes(processes: Iterable[schema.ProcessInfo], node: str) -> dict[int, str]:
    """Name the processes of a node by pid: `trainer` or `rank 3`, and `worker 0` of a DataLoader.

    Equal names, as of the workers of two DataLoaders, get the pid.
    """
    infos = {process.pid: process for process in processes if process.node == node}
    names = {pid: _name(info, infos) for pid, info in infos.items()}
    counts = Counter(names.values())
    return {pid: name if counts[name] == 1 else f"{name} ({pid})" for pid, name in names.items()}


def name_all_processes(processes: Iterable[schema.ProcessInfo]) -> dict[str, str]:
    """Name the processes of all nodes as `name_processes` does, by process."""
    by_node: dict[str, list[schema.ProcessInfo]] = defaultdict(list)
    for process in processes:
        by_node[process.node].append(process)
    names = {node: name_processes(infos, node) for node, infos in by_node.items()}
    return {
        info.process: names[node][info.pid] for node, infos in by_node.items() for info in infos
    }


def _name(info: schema.ProcessInfo, infos: Mapping[int, schema.ProcessInfo]) -> str:
    if info.role in {"program", "monitor"}:
        return f"process {info.pid}"
    if info.role == "main":
        return "trainer" if info.rank is None else info.title
    parent = infos.get(info.parent_pid)
    owner = "" if parent is None or parent.rank is None else f" of {parent.title}"
    numbers = [fact.worker for fact in info.facts_of(schema.DataLoaderWorkerFact)]
    if info.role == "dataloader_worker" and numbers:
        return f"worker {numbers[0]}{owner}"
    return f"worker process {info.pid}{owner}"
