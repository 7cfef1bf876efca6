"""Collectives of a run as the framework's recorder has numbered them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import RankArrivals
from stepscope.intervals import Int
from stepscope.run.rank_exchange import HOST_BACKENDS
from stepscope.run.run import Run
from stepscope.schema import UNTIMED_INSPECTOR_LOG, FlightRecorderFact, ReplicasFact

NO_RECORDER = (
    "the version of PyTorch in this job has no recorder of collectives, or it is off "
    "(TORCH_FR_BUFFER_SIZE=0): only collectives that the script calls itself, and the account of "
    "DistributedDataParallel, are recorded"
)
NO_TIMES = (
    "the logs of NCCL Inspector do not have the times of the calls: record them with "
    "NCCL_INSPECTOR_DUMP_VERBOSE=1"
)
NO_RANKS = "the ranks of the processes that have called the recorded collectives are unknown"
_COLUMNS = (
    *("node", "process", "log", "seq", "t_ns", "rank", "group", "kind", "number", "backend"),
    "ended_ns",
)
REPLICAS = (
    "the time of communication is not known: the replicas of tf.distribute exchange data inside "
    "compiled functions"
)
NO_CALLS = "no collective was recorded: the job has one process, or uses no process group"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollectives:
    """Calls of collectives between several ranks, without those between two."""

    ranks: list[int]
    """Rank by its index."""
    nodes: list[str]
    """Node of each rank."""
    node: Int
    """Index of the node of each call in `node_names`."""
    node_names: list[str]
    process: Int
    """Index of the process of each call in `processes`."""
    processes: list[str]
    kinds: list[str]
    """Kind of call by code."""
    is_on_host: NDArray[np.bool_]
    """True for a call that the host carries out."""
    ended_ns: Int
    """When the watchdog saw that the call had ended; -1 where none did."""
    arrivals: RankArrivals
    """Calls by rank. The code of a group tells starts of the job apart, and calls of one number:
    a process that destroys its groups and makes them again numbers from 1 again."""
    skipped_count: int
    """Calls that the recorder has overwritten before they were read."""


def has_replicas(run: Run) -> bool:
    """Return True if processes have replicas, whose communication is not recorded."""
    return any(process.facts_of(ReplicasFact) for process in run.processes)


def read_recorded_collectives(run: Run) -> RecordedCollectives | str:
    """Read the recorded collectives, or explain why there are none."""
    if not run.reader.has("collective_calls"):
        facts = [fact for process in run.processes for fact in process.facts_of(FlightRecorderFact)]
        if has_replicas(run):
            return REPLICAS
        return NO_RECORDER if facts and not any(f.is_available for f in facts) else NO_CALLS
    columns = run.reader.table(
        "collective_calls",
        _COLUMNS,
        condition=f"{run.period.condition('t_ns')} AND is_p2p = 0 AND rank IS NOT NULL "
        f"AND log <> '{UNTIMED_INSPECTOR_LOG}'",
        encoded=("node", "process", "log", "group", "kind", "backend"),
    )
    if not len(columns["seq"]):
        logs = run.reader.table("collective_calls", ("log", "rank"), encoded=("log",))
        if UNTIMED_INSPECTOR_LOG in logs["log"].values:
            return NO_TIMES
        if np.ma.getmaskarray(logs["rank"]).all():
            return NO_RANKS
    ranks, rank = np.unique(np.ma.getdata(columns["rank"]), return_inverse=True)
    rank = rank.astype(np.int64)
    group = columns["group"].codes.astype(np.int64)
    process = columns["process"].codes
    incarnations = {one.process: one.incarnation for one in run.processes}
    starts = [incarnations.get(name, 1) for name in columns["process"].values]
    start = np.array(starts, dtype=np.int64)[process]
    repetition = _count_earlier((rank, start), process, _find_first_ns(process, columns["t_ns"]))
    occurrence = _count_earlier(
        (process, columns["log"].codes, group, columns["number"]), columns["seq"], columns["seq"]
    )
    _, number = np.unique(
        np.stack([start, repetition, occurrence, group]), axis=1, return_inverse=True
    )
    nodes, backend = columns["node"], columns["backend"]
    names = [nodes.values[code] or "" for code in nodes.codes.tolist()]
    # The code of a missing backend is -1.
    is_host_backend = np.array([*(value in HOST_BACKENDS for value in backend.values), False])
    first_rows = [int(np.flatnonzero(rank == index)[0]) for index in range(len(ranks))]
    return RecordedCollectives(
        ranks=ranks.tolist(),
        nodes=[names[row] for row in first_rows],
        node=nodes.codes.astype(np.int64),
        node_names=[name or "" for name in nodes.values],
        process=process.astype(np.int64),
        processes=[name or "" for name in columns["process"].values],
        kinds=[name or "" for name in columns["kind"].values],
        is_on_host=is_host_backend[backend.codes],
        ended_ns=np.ma.filled(columns["ended_ns"], -1),
        arrivals=RankArrivals(
            rank=rank,
            group=number.reshape(-1).astype(np.int64),
            number=columns["number"],
            kind=columns["kind"].codes.astype(np.int64),
            t_ns=columns["t_ns"],
        ),
        skipped_count=count_skipped_calls(run),
    )


def count_skipped_calls(run: Run) -> int:
    """Count the calls of a process before its last recorded one that are not in the run: the
    recorder numbers them from 0. Imported dumps and logs may lack the first ones."""
    rows = run.reader.sql(
        "SELECT coalesce(sum(missing), 0) AS missing FROM ("
        "SELECT max(seq) + 1 - count(DISTINCT seq) AS missing FROM collective_calls "
        "WHERE log <> 'import' AND log NOT LIKE 'inspector%' GROUP BY process, log)"
    )
    return int(rows["missing"][0])


def _find_first_ns(process: NDArray[np.int32], t_ns: Int) -> Int:
    """Find the time of the first call of the process of each call."""
    first_ns = np.full(int(process.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, process, t_ns)
    return np.asarray(first_ns[process])


def _count_earlier(keys: tuple[Int, ...], member: Int, position: Int) -> Int:
    """Count, for each row, the members with the same keys that come before its own.

    Args:
        keys: values that rows have in common.
        member: rows of one member are alike.
        position: position of the member of each row.
    """
    order = np.lexsort((member, position, *keys))
    is_new_key = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        is_new_key[1:] |= np.diff(key[order]) != 0
    is_new_member = is_new_key.copy()
    is_new_member[1:] |= np.diff(member[order]) != 0
    count = np.cumsum(is_new_member)
    base = np.maximum.accumulate(np.where(is_new_key, count, 0))
    result = np.empty(len(order), dtype=np.int64)
    result[order] = count - base
    return result
