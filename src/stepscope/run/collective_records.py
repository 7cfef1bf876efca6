"""Collectives of a run as the framework's recorder has numbered them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import RankArrivals
from stepscope.intervals import Int
from stepscope.run.run import Run
from stepscope.schema import FlightRecorderFact

NO_RECORDER = (
    "the version of PyTorch in this job has no recorder of collectives, or it is off "
    "(TORCH_FR_BUFFER_SIZE=0): only collectives that the script calls itself, and the account of "
    "DistributedDataParallel, are recorded"
)
NO_CALLS = "no collective was recorded: the job has one process, or uses no process group"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollectives:
    """Calls of collectives between several ranks, without those between two."""

    ranks: list[int]
    """Rank by its index."""
    nodes: list[str]
    """Node of each rank."""
    arrivals: RankArrivals
    skipped_count: int
    """Calls that the recorder has overwritten before they were read."""


def read_recorded_collectives(run: Run) -> RecordedCollectives | str:
    """Read the recorded collectives, or explain why there are none."""
    if not run.reader.has("collective_calls"):
        facts = [fact for process in run.processes for fact in process.facts_of(FlightRecorderFact)]
        return NO_RECORDER if facts and not any(f.is_available for f in facts) else NO_CALLS
    columns = run.reader.table(
        "collective_calls",
        ("node", "process", "log", "seq", "t_ns", "rank", "group", "kind", "number"),
        condition=f"{run.period.condition('t_ns')} AND is_p2p = 0 AND rank IS NOT NULL",
        encoded=("node", "process", "log", "group", "kind"),
    )
    ranks, rank = np.unique(np.ma.getdata(columns["rank"]), return_inverse=True)
    rank = rank.astype(np.int64)
    group = columns["group"].codes.astype(np.int64)
    incarnation = _number_incarnations(columns["process"].codes, rank, columns["t_ns"])
    nodes = columns["node"]
    names = [nodes.values[code] or "" for code in nodes.codes.tolist()]
    first_rows = [int(np.flatnonzero(rank == index)[0]) for index in range(len(ranks))]
    return RecordedCollectives(
        ranks=ranks.tolist(),
        nodes=[names[row] for row in first_rows],
        arrivals=RankArrivals(
            rank=rank,
            group=incarnation * len(columns["group"].values) + group,
            number=columns["number"],
            kind=columns["kind"].codes.astype(np.int64),
            t_ns=columns["t_ns"],
        ),
        skipped_count=count_skipped_calls(run),
    )


def count_skipped_calls(run: Run) -> int:
    """Count the calls of a process before its last recorded one that are not in the run: the
    recorder numbers them from 0. Imported dumps hold the latest calls only."""
    rows = run.reader.sql(
        "SELECT coalesce(sum(missing), 0) AS missing FROM ("
        "SELECT max(seq) + 1 - count(DISTINCT seq) AS missing FROM collective_calls "
        "WHERE log <> 'import' GROUP BY process, log)"
    )
    return int(rows["missing"][0])


def _number_incarnations(process: Int, rank: Int, t_ns: Int) -> Int:
    """Number the processes of each rank in the order of their first call: a job that restarts
    numbers its collectives from 1 again."""
    processes, index = np.unique(process, return_inverse=True)
    first_ns = np.full(len(processes), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, index, t_ns)
    rank_of = np.zeros(len(processes), dtype=np.int64)
    rank_of[index] = rank
    numbers = np.zeros(len(processes), dtype=np.int64)
    counts: dict[int, int] = {}
    for row in np.argsort(first_ns, kind="stable").tolist():
        number = counts.get(int(rank_of[row]), 0)
        numbers[row], counts[int(rank_of[row])] = number, number + 1
    return numbers[index]
