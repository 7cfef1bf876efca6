"""Exposed gradient exchange of ranks, from the recorder of collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import RecordedCalls, Spans, measure_exchange
from stepscope.intervals import Intervals
from stepscope.run.run import Rank
from stepscope.store import RunReader, literal

HOST_BACKENDS = ("gloo", "mpi", "ucc")
"""Backends that send from the host: a backward pass does not return before they have ended."""
_ON_HOST = ", ".join(map(literal, HOST_BACKENDS))


def read_calls(
    reader: RunReader, processes: Sequence[str], since_ns: int | None = None
) -> dict[str, RecordedCalls]:
    """Read the collectives of processes that send from the host only, by process.

    Args:
        reader: the run.
        processes: names.
        since_ns: first time; None for all.
    """
    if not processes or not reader.has("collective_calls"):
        return {}
    names = ", ".join(map(literal, processes))
    since = "" if since_ns is None else f"AND t_ns >= {since_ns} "
    rows = reader.sql(
        # A call between two ranks is no exchange of gradients, but has a number, too.
        "SELECT process, list(t_ns ORDER BY seq) AS t_ns, list(seq ORDER BY seq) AS seq "  # noqa: S608 - quoted literals
        f"FROM collective_calls WHERE process IN ({names}) {since}"
        f"GROUP BY process HAVING bool_and(coalesce(backend IN ({_ON_HOST}), FALSE)) "
        "AND count(DISTINCT log) = 1"
    )
    return {
        process: RecordedCalls(
            t_ns=np.asarray(t_ns, dtype=np.int64), seq=np.asarray(seq, dtype=np.int64)
        )
        for process, t_ns, seq in zip(rows["process"], rows["t_ns"], rows["seq"], strict=True)
    }


def measure_step_exchange(
    spans: Spans, steps: Intervals, calls: RecordedCalls
) -> NDArray[np.float64]:
    """Measure the exposed exchange of steps; NaN where their collectives were not all recorded.

    Args:
        spans: spans of the training thread.
        steps: its steps.
        calls: its collectives.
    """
    passes, explicit = spans.of("backward").intervals, spans.of("communication").intervals
    return measure_exchange(steps, passes, calls, explicit)


def read_exchange(ranks: Sequence[Rank]) -> list[NDArray[np.float64] | None]:
    """Read the exposed exchange of the steps of each rank; None without calls, and for phases on
    the clock of a device: the end of a pass on the host tells nothing then."""
    on_host = [rank for rank in ranks if rank.table.steps.frame.clock == "host"]
    calls = read_calls(ranks[0].run.reader, [rank.process.process for rank in on_host])
    return [
        measure_step_exchange(
            rank.spans.take(rank.spans.thread == rank.steps.thread),
            Intervals(rank.steps.start, rank.steps.end),
            calls[rank.process.process],
        )
        if rank.process.process in calls
        else None
        for rank in ranks
    ]
