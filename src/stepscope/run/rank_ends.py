"""Last records of the ranks of a job that has ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import Call
from stepscope.run.run import Run

_LAST_TIMES = {
    "spans": "SELECT process, max(greatest(start_ns, coalesce(end_ns, start_ns))) AS t_ns "
    "FROM spans GROUP BY process",
    "stacks": "SELECT process, max(t_ns) AS t_ns FROM stacks GROUP BY process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """Last records of one rank."""

    last_ns: int
    """Time of its last span or stack sample, epoch nanoseconds."""
    calls: list[Call]
    """Collectives that the script has called itself, numbered from 1; their records are complete
    however the process has ended."""


def read_rank_ends(run: Run) -> dict[int, RankEnd]:
    """Read the last records of each rank, of its last process."""
    processes = {}
    for process in sorted(run.processes, key=lambda process: process.started_ns):
        if process.rank is not None and process.role == "main":
            processes[process.rank] = process.process
    last = _read_last_times(run)
    calls = _read_calls(run)
    return {
        rank: RankEnd(last_ns=last[process], calls=calls.get(process, []))
        for rank, process in processes.items()
        if process in last
    }


def _read_last_times(run: Run) -> dict[str, int]:
    last: dict[str, int] = {}
    for table, query in _LAST_TIMES.items():
        if run.reader.has(table):
            rows = run.reader.sql(query)
            for process, t_ns in zip(rows["process"].tolist(), rows["t_ns"].tolist(), strict=True):
                last[process] = max(t_ns, last.get(process, t_ns))
    return last


def _read_calls(run: Run) -> dict[str, list[Call]]:
    if not run.reader.has("spans"):
        return {}
    columns = run.reader.table(
        "spans",
        ("process", "name", "value", "start_ns", "end_ns"),
        condition="kind = 'communication'",
        order_by="process, start_ns, seq",
    )
    calls: dict[str, list[Call]] = {}
    has_end = ~np.ma.getmaskarray(columns["end_ns"])
    for process, name, value, start_ns, has_ended in zip(
        columns["process"].tolist(),
        columns["name"].tolist(),
        columns["value"].tolist(),
        columns["start_ns"].tolist(),
        has_end.tolist(),
        strict=True,
    ):
        sequence = calls.setdefault(process, [])
        size = f"{value} bytes" if value else ""
        sequence.append(Call("", len(sequence) + 1, name, size, "", has_ended, start_ns))
    return calls
