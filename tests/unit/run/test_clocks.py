"""Clocks: the origin of a run's time axis, and the clocks of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from stepscope.quantities import duration
from stepscope.run import NO_SHARED_COLLECTIVES, NodeClocks, Run, align_node_clocks
from stepscope.run.model.clock import MAX_CLOCK_DIFFERENCE_NS, clock_of
from stepscope.schema import TABLES
from stepscope.store import DictColumn, RunWriter, create_run, open_run
from stepscope.store.reader import RunReader
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.steps.arrivals import show_arrivals
from stepscope.views.steps.ranks import show_nodes
from tests.support.store_rows import INFO


def with_recordings(path: Path, *recordings: tuple[int, int, int]) -> RunReader:
    """Make a run with rows of `traces`: start, end and base of each, numbered from 0."""
    if not (path / "run.json").exists():
        create_run(path, INFO)
    count = len(recordings)
    columns = {
        column.name: DictColumn.constant("{}", count)
        if column.type == "VARCHAR"
        else np.zeros(count, dtype=np.int64)
        for column in TABLES["traces"].columns
    }
    columns["trace"] = np.arange(count)
    for index, name in enumerate(("start_ns", "end_ns", "base_ns")):
        columns[name] = np.array([recording[index] for recording in recordings], dtype=np.int64)
    with RunWriter(path, "imported") as writer:
        writer.append("traces", columns)
    return open_run(path)


def test_it_is_the_earliest_record_of_any_kind(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 10 | optimizer 10", 50)
    path = run.metric("cpu_busy_ratio", 0.5).write()
    assert clock_of(open_run(path)).origin_ns == EPOCH_NS
    clock = clock_of(with_recordings(path, (EPOCH_NS - 7, EPOCH_NS + 10**12, 5)))
    assert clock.origin_ns == EPOCH_NS - 7
    assert clock.end_ns == EPOCH_NS + 10**12
    assert clock.shift_by_trace_ns == {}


CLOSE_NS = 10**18 - MAX_CLOCK_DIFFERENCE_NS // 2


@pytest.mark.parametrize(
    ("recordings", "origin", "end", "shifts"),
    [
        # One without a base is moved to the origin, unless it is near the others.
        (
            ((5_000, 9_000, 0), (10**18, 10**18 + 10, 1)),
            10**18,
            10**18 + 4_000,
            [10**18 - 5_000, 0],
        ),
        (((CLOSE_NS, CLOSE_NS + 9, 0), (10**18, 10**18 + 10, 1)), CLOSE_NS, 10**18 + 10, [0, 0]),
        # Where none has a base, the likeliest clock counts.
        (
            ((5_000, 9_000, 0), (10**18, 10**18 + 10, 0)),
            10**18,
            10**18 + 4_000,
            [10**18 - 5_000, 0],
        ),
        ((), 0, 0, []),
    ],
)
def test_recordings_without_a_base(
    tmp_path: Path,
    recordings: tuple[tuple[int, int, int], ...],
    origin: int,
    end: int,
    shifts: list[int],
) -> None:
    clock = clock_of(with_recordings(tmp_path / "run", *recordings))
    assert (clock.origin_ns, clock.end_ns) == (origin, end)
    assert [clock.shift_ns(trace) for trace in range(len(recordings))] == shifts
    assert clock.count_until(end + 7) == end - origin, "at most to the end"


RunMaker = Callable[..., RunBuilder]
MS = 1_000_000
OFFSET_NS = 5_000 * MS
LATE_MS, TRANSFER_MS = 10, 2
STEPS = 60


def draw(
    new_run: RunMaker,
    late: Sequence[int],
    *,
    nodes: int = 2,
    offset_ns: int = OFFSET_NS,
    set_at: int | None = None,
    kind: str = "backward",
    name: str = "gloo:all_reduce",
) -> Run:
    """Draw two ranks on each of several nodes, of which one is late in each step.

    Args:
        late: ranks that are late, in turn.
        nodes: their count.
        offset_ns: clock of a node minus that of the previous one.
        set_at: step before which the second clock is set by 100 ms.
        kind: kind of span that ends when the collective has ended, and spans inside it.
        name: backend and kind of the collective.
    """
    builder = new_run()
    for number in range(2 * nodes):
        rank = builder.rank(number, node=f"n{number // 2}", world_size=2 * nodes)
        rank.now += offset_ns * (number // 2)
        for step in range(STEPS):
            if step == set_at and number > 1:
                rank.now += 100 * MS
            late_ms = LATE_MS * (late[step % len(late)] == number)
            exchange_ms = TRANSFER_MS + LATE_MS - late_ms
            outer, _, inner = kind.partition(" ")
            rank.draw(f"wait {10 + late_ms} | forward 20")
            rank.draw(f"{outer} {exchange_ms} {inner} | optimizer 10")
            rank.collective(10 + exchange_ms, name=name)
    return builder.open()


@pytest.mark.parametrize(
    "kind",
    [
        "backward",
        "communication",
        "backward ( backward 1 )",  # a reentrant checkpoint
    ],
)
def test_the_offset_of_a_node_is_recovered(new_run: RunMaker, kind: str) -> None:
    clocks = align_node_clocks(draw(new_run, [0, 2, 1, 3], kind=kind))
    assert isinstance(clocks, NodeClocks)
    assert clocks.reference == "n0"
    clock = clocks.clocks["n1"]
    assert clock.offset_ns == pytest.approx(OFFSET_NS, abs=0.1 * MS)
    # Each node is the last in turn: times differ from the truth by the transfer at most, and by
    # what a drift between two of these steps may add.
    assert TRANSFER_MS * MS <= clock.residual_ns <= 1.1 * TRANSFER_MS * MS
    assert clocks.difference_residual_ns == clock.residual_ns


def test_lateness_is_measured_across_nodes(new_run: RunMaker) -> None:
    run = draw(new_run, [0, 2, 3, 3])
    arrivals = show_arrivals(run)
    ranks = {rank.rank: rank for rank in arrivals.ranks}
    assert ranks[3].last_count == STEPS // 2
    assert ranks[2].last_count == ranks[0].last_count == STEPS // 4
    assert ranks[3].caused_wait_ns == pytest.approx(STEPS // 2 * LATE_MS * MS, rel=0.02)
    assert arrivals.notes[0].startswith(
        "times are on the clock of n0: clocks of nodes are aligned by collectives, to within 2."
    )


def test_the_error_of_two_nodes_is_the_sum_of_theirs(new_run: RunMaker) -> None:
    """Neither is the reference: their clocks may differ from its clock in opposite directions."""
    run = draw(new_run, [0, 2, 4], nodes=3)
    clocks = align_node_clocks(run)
    assert isinstance(clocks, NodeClocks)
    residuals = [clock.residual_ns for clock in clocks.clocks.values() if clock is not None]
    assert residuals[0] == 0
    assert min(residuals[1:]) >= TRANSFER_MS * MS
    assert clocks.difference_residual_ns == residuals[1] + residuals[2]
    error = duration(residuals[1] + residuals[2])
    assert f"are aligned to within {error} only" in show_arrivals(run).notes[0]


def test_ranks_of_nodes_are_not_compared_if_the_error_is_as_large(new_run: RunMaker) -> None:
    """Rank 0 is always the last: nothing bounds how much earlier the others were."""
    arrivals = show_arrivals(draw(new_run, [0]))
    assert [rank.caused_wait_ns for rank in arrivals.ranks] == [None] * 4
    assert arrivals.notes[0].startswith(
        "ranks are compared with those of their own node: clocks of nodes are aligned to within 1"
    )
    assert "and no rank is later than 10 ms at the median" in arrivals.notes[0]
    # Lateness by durations needs no clocks.
    assert arrivals.ranks[0].median_ns == LATE_MS * MS


def test_the_nodes_show_their_clocks(new_run: RunMaker) -> None:
    payload = show_nodes(draw(new_run, [0, 2]))
    first, second = payload.nodes
    assert (first.clock_offset_ns, first.clock_residual_ns) == (0, 0)
    assert second.clock_offset_ns == pytest.approx(OFFSET_NS, abs=0.1 * MS)
    assert second.clock_residual_ns is not None
    assert payload.clocks.startswith("Clocks are compared with that of n0 by collectives")


def test_a_clock_that_was_set_is_not_known(new_run: RunMaker) -> None:
    run = draw(new_run, [0, 2], set_at=30)
    payload = show_nodes(run)
    assert payload.nodes[1].clock_offset_ns is None
    assert payload.clocks is not None
    assert "For n1 no clock of constant rate keeps to that: it was set" in payload.clocks
    arrivals = show_arrivals(run)
    assert arrivals.ranks[2].caused_wait_ns is None
    assert "the clock of n1 could not be aligned with that of n0" in arrivals.notes[0]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("forward", "gloo:all_reduce"),
        ("backward ( async 1 )", "gloo:all_reduce"),
        ("backward", "gloo:broadcast"),
        ("backward", "nccl:all_reduce"),
        ("backward", "all_reduce"),
    ],
)
def test_without_ends_no_clock_is_known(new_run: RunMaker, kind: str, name: str) -> None:
    """A collective whose end is unknown, whose root may leave early, that runs on a device, or
    whose backend is not recorded."""
    run = draw(new_run, [0, 2], kind=kind, name=name)
    assert align_node_clocks(run) == NO_SHARED_COLLECTIVES
    assert (show_nodes(run).clocks or "").lower() == f"{NO_SHARED_COLLECTIVES}."


def test_one_node_has_one_clock(new_run: RunMaker) -> None:
    builder = new_run()
    for number in range(2):
        rank = builder.rank(number)
        rank.draw("forward 10 | backward 10 | optimizer 5", 20)
    assert show_nodes(builder.open()).clocks is None
