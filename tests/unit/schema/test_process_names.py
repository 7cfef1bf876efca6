"""Names of processes."""

from __future__ import annotations

from typing import Any

from stepscope.run.model.process_names import _Names
from stepscope.schema import ProcessInfo, name_processes


def process(pid: int, role: str, **fields: Any) -> ProcessInfo:
    values = {"node": "a", "parent_pid": 1, "started_ns": pid}
    return ProcessInfo(process=f"{pid}-0", pid=pid, role=role, **(values | fields))


def test_a_name_stays_while_the_job_starts_more_processes() -> None:
    worker = {"facts": [{"fact": "dataloader_worker", "worker": 0}]}
    processes = [
        process(9, "main", started_ns=1),
        process(3, "main", started_ns=2),
        process(10, "dataloader_worker", parent_pid=9, **worker),
        process(11, "dataloader_worker", parent_pid=3, **worker),
        process(20, "main", rank=1, incarnation=2),
        process(21, "dataloader_worker", parent_pid=20, **worker),
        process(22, "main", rank=1, incarnation=2),
    ]
    names = ["trainer", "trainer (3)", "worker 0", "worker 0 (11)"]
    names += ["rank 1 (incarnation 2)", "worker 0 of rank 1 (incarnation 2)"]
    names += ["rank 1 (incarnation 2)"]
    for count in range(len(processes) + 1):
        listed = [one.process for one in processes[:count]]
        assert name_processes(processes[:count]) == dict(zip(listed, names, strict=False))


def test_a_process_that_has_started_since_has_its_pid() -> None:
    names = _Names(name_processes([process(9, "main")]))
    assert (names["9-0"], names["410-17-0"]) == ("trainer", "process 410")
