"""Ranks that are late only because another rank made them late, in a chain of process groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.analysis import (
    SYNCHRONIZING_KINDS,
    GroupArrivals,
    classify_collective,
    find_late_chains,
)
from stepscope.run import (
    NodeClocks,
    Rank,
    RecordedCollectives,
    Run,
    align_node_clocks,
    read_recorded_collectives,
)

MIN_INHERITED_RATIO = 0.5
"""Share of the lateness of a rank that has to start with another rank."""


def find_inherited_lateness(
    run: Run, ranks: Sequence[Rank], culprits: Sequence[int], min_lateness_ns: float
) -> dict[int, int]:
    """Find the late ranks whose lateness starts with another late rank.

    Args:
        run: the run.
        ranks: its ranks.
        culprits: indices of late ranks.
        min_lateness_ns: a collective counts whose last rank is later than this, and than the error
            of the clocks of several nodes.

    Returns:
        Index of the rank that made it late by index of a late rank.
    """
    if len(culprits) < 2:
        return {}
    recorded = read_recorded_collectives(run)
    if isinstance(recorded, str) or not _has_chains(recorded):
        return {}
    t_ns = recorded.arrivals.t_ns
    if len(set(recorded.nodes)) > 1:
        alignment = align_node_clocks(run)
        if not isinstance(alignment, NodeClocks) or alignment.difference_residual_ns is None:
            return {}
        min_lateness_ns = max(min_lateness_ns, alignment.difference_residual_ns)
        t_ns = alignment.to_reference(recorded)
    index_of = {rank.process.process: index for index, rank in enumerate(ranks)}
    indices = np.array([index_of.get(name, -1) for name in recorded.processes])
    waits = np.array([classify_collective(k) in SYNCHRONIZING_KINDS for k in recorded.kinds])
    rows = np.flatnonzero((indices[recorded.process] >= 0) & waits[recorded.arrivals.kind])
    keys = np.stack([recorded.arrivals.group, recorded.arrivals.number])[:, rows]
    collective = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    chains = find_late_chains(
        GroupArrivals(rank=indices[recorded.process[rows]], collective=collective, t_ns=t_ns[rows])
    )
    counts = chains.lateness_ns > min_lateness_ns
    inherited: dict[int, int] = {}
    for index in culprits:
        is_last = counts & (chains.last_rank == index)
        weight = np.bincount(
            chains.first_rank[is_last], weights=chains.lateness_ns[is_last], minlength=len(ranks)
        )
        origin = int(weight.argmax())
        is_other = origin != index and origin in culprits and origin not in inherited
        total_ns = weight.sum()
        if is_other and total_ns > 0 and weight[origin] >= MIN_INHERITED_RATIO * total_ns:
            inherited[index] = origin
    return inherited


def _has_chains(recorded: RecordedCollectives) -> bool:
    """Return True if a process calls collectives of several groups."""
    pairs = np.unique(np.stack([recorded.process, recorded.arrivals.group]), axis=1)
    return bool((np.bincount(pairs[0]) > 1).any())
