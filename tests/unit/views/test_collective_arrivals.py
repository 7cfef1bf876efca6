"""Lateness at collectives, of calls at times that the test chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stepscope.importers import RecordedCall, make_call_columns
from stepscope.run import Run
from stepscope.store import DictColumn, RunWriter, open_run
from stepscope.views.steps.arrivals import show_arrivals
from tests.support.report_runs import RunFiles

MS = 1_000_000
STEP_NS = 100 * MS
LATE_NS = 10 * MS
COUNT = 20


class Calls:
    """Processes that call the same all-reduces."""

    def __init__(self, tmp_path: Path) -> None:
        self.files = RunFiles(tmp_path / "run")
        self._pid = 100

    def add(
        self, node: str, rank: int, first_ns: int, *, numbers: list[int] | None = None, **facts: Any
    ) -> None:
        """Add a process of a rank, which makes a call every `STEP_NS`."""
        self._pid += 1
        process = self.files.process(f"{self._pid}-1-0", node, self._pid, rank=rank, **facts)
        calls = [
            RecordedCall(
                record_id=index,
                process_group=("0", "default_pg"),
                collective_seq_id=number,
                profiling_name="gloo:all_reduce",
                time_created_ns=self.files.start_ns + first_ns + index * STEP_NS,
                retired=True,
            )
            for index, number in enumerate(numbers or range(1, COUNT + 1))
        ]
        count = len(calls)
        with RunWriter(self.files.path, node) as writer:
            writer.append(
                "collective_calls",
                {
                    "node": DictColumn.constant(node, count),
                    "process": DictColumn.constant(process.process, count),
                    "log": DictColumn.constant("fr", count),
                    "seq": np.arange(count, dtype=np.int64),
                    **make_call_columns(calls, rank=rank, groups={}),
                },
            )

    def show(self) -> dict[int, Any]:
        self.arrivals = show_arrivals(Run(open_run(self.files.path)))
        return {rank.rank: rank for rank in self.arrivals.ranks}


def test_the_clocks_of_nodes_do_not_make_a_rank_late(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    skew_ns = 5000 * MS
    calls.add("a", 0, 0)
    calls.add("a", 1, LATE_NS)
    calls.add("b", 2, skew_ns + LATE_NS)
    calls.add("b", 3, skew_ns)
    ranks = calls.show()
    assert [ranks[n].median_ns for n in range(4)] == [0, LATE_NS, LATE_NS, 0]
    assert [ranks[n].caused_wait_ns for n in range(4)] == [None] * 4
    assert "known when it ended, so clocks of nodes are not aligned" in calls.arrivals.notes[0]


def test_ranks_of_one_node_are_compared_with_all(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    calls.add("a", 0, 0)
    calls.add("a", 1, LATE_NS)
    ranks = calls.show()
    assert ranks[1].median_ns == LATE_NS
    assert ranks[1].caused_wait_ns == COUNT * LATE_NS
    assert calls.arrivals.notes == []


def test_calls_of_two_starts_of_the_job_are_not_compared(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    restart_ns = 60_000 * MS
    calls.add("a", 0, 0)  # the first start fails before rank 1 calls anything
    calls.add("a", 0, restart_ns, incarnation=2)
    calls.add("a", 1, restart_ns + LATE_NS, incarnation=2)
    ranks = calls.show()
    assert (ranks[0].call_count, ranks[0].matched_count) == (2 * COUNT, COUNT)
    assert (ranks[0].median_ns, ranks[1].median_ns) == (0, LATE_NS)


def test_groups_that_are_made_again_number_their_calls_again(tmp_path: Path) -> None:
    calls = Calls(tmp_path)
    numbers = [*range(1, COUNT + 1), *range(1, COUNT + 1)]
    calls.add("a", 0, 0, numbers=numbers)
    calls.add("a", 1, LATE_NS, numbers=numbers)
    ranks = calls.show()
    assert (ranks[0].matched_count, ranks[1].median_ns, ranks[1].p95_ns) == (
        2 * COUNT,
        LATE_NS,
        LATE_NS,
    )
