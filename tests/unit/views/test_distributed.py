"""Ranks side by side: the worked cases of the field, and recordings drawn to be counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.quantities import percent
from stepscope.run import Run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.steps.arrivals import RankTime
from stepscope.views.steps.distributed import ONE_RANK, show_distributed
from tests.support.drawn_trace import (
    distributed as recording,
    event,
    kernel,
    launch,
    step,
    training,
)

Imported = Callable[..., Run]
US = 1_000


def worker(
    rank: int, *, broadcast: tuple[int, int], reduce: tuple[int, int], gemm: int
) -> dict[str, object]:
    """Return one worker of the NCCL test of the TensorBoard plugin."""
    events = [
        event("cpu_op", "nccl:broadcast", 0, 75 if rank == 0 else 20),
        event("cpu_op", "nccl:all_reduce", 160, 75),
        kernel("ncclKernel_Broadcast", broadcast[0], broadcast[1] - broadcast[0], 1, stream=2),
        kernel("ncclKernel_AllReduce", reduce[0], reduce[1] - reduce[0], 2, stream=2),
        kernel("gemm", gemm, 161, 3),
    ]
    return recording(events, rank, 2)


def bars(rank: RankTime) -> list[int]:
    steps = rank.steps
    assert steps is not None
    parts = (steps.computation_ns, steps.overlap_ns, steps.communication_ns, steps.other_ns)
    return [part[0] // US for part in parts]


@pytest.mark.seed("PTP-08")
def test_two_workers_that_wait_for_each_other(imported: Imported) -> None:
    run = imported(
        a=worker(0, broadcast=(16, 32), reduce=(162, 1718), gemm=130),
        b=worker(1, broadcast=(8, 39), reduce=(562, 1620), gemm=30),
    )
    payload = show_distributed(run)
    (window,) = payload.windows
    first, second = window.ranks
    assert bars(first) == [32, 73, 16, 114]
    assert (first.transfer_ns, first.waiting_ns) == (1074 * US, 498 * US)
    assert (second.transfer_ns, second.waiting_ns) == (1074 * US, 15 * US)
    assert (first.matched_count, first.unmatched_ns) == (2, 0)
    assert (first.last_count, second.last_count) == (1, 1)
    assert (first.total_ns, second.total_ns) == ((1718 - 16) * US, (1620 - 8) * US)
    reduce, broadcast = window.collectives
    assert (reduce.name, reduce.call_count, reduce.transfer_ns) == ("all_reduce", 2, 2 * 1058 * US)
    assert (broadcast.name, broadcast.waiting_ns) == ("broadcast", 15 * US)
    assert [row.rank for row in window.rank_collectives] == [0, 0, 1, 1]
    assert payload.matrix is not None
    assert payload.matrix.duration_ns == [[235 * US], [235 * US]]


def described(number: int, at: float, duration: float, sequence: int) -> dict[str, object]:
    about = {
        "Collective name": "allreduce",
        "dtype": "BFloat16",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "Group size": 4,
        "Process Group Name": "7",
        "Process Group Description": "dp",
        "Seq": sequence,
    }
    return kernel("ncclDevKernel_Generic", at, duration, number, stream=20, **about)


@pytest.mark.seed("PTP-08")
def test_what_recorders_say_of_collectives(imported: Imported) -> None:
    """Rank 1 was not recorded during the first one: by their numbers the others still match."""
    one = [described(1, 0, 10, 5), described(2, 20, 30, 6)]
    two = [described(3, 40, 10, 6)]
    payload = show_distributed(imported(a=recording(one, 0, 2), b=recording(two, 1, 2)))
    (row,) = payload.windows[0].collectives
    assert (row.name, row.group, row.group_description) == ("all_reduce", "7", "dp")
    assert (row.group_size, row.dtype, row.call_count) == (4, "BFloat16", 3)
    assert (row.matched_count, row.transfer_ns, row.waiting_ns) == (2, 20 * US, 20 * US)
    assert (row.moved_bytes, row.mean_bytes) == (6000, 2000)
    # Ten microseconds of the one that is alone, and twice ten of the other's transfer.
    assert row.algorithm_bytes_per_s == pytest.approx(6000 / 30e-6)
    assert row.bus_bytes_per_s == pytest.approx(6000 / 30e-6 * 1.5)
    first = payload.windows[0].ranks[0]
    assert first.unmatched_ns == 10 * US


def requested(
    number: int, at: float, name: str, dims: list[object], types: list[str], *, mark: object = None
) -> list[dict[str, object]]:
    """Return a collective of PyTorch 1.13: an operator, an annotation in it, and a kernel."""
    request = event("cpu_op", f"c10d::{name}", at, 10, **{"Input Dims": dims, "Input type": types})
    inner = event("cpu_op", "record_param_comms", at + 1, 8)
    about = {"Input Dims": [mark], "Input type": ["float"]} if mark else {}
    label = event("user_annotation", f"nccl:{name.strip('_')}", at + 2, 6, **about)
    return [
        *(request, inner, label, launch(number, at + 3, 1)),
        kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", at + 20, 10, number, stream=20),
    ]


@pytest.mark.parametrize("world_size", [2, 8])
def test_inputs_of_operators_tell_the_size_of_collectives(
    imported: Imported, world_size: int
) -> None:
    """The type of a list of tensors is that of the annotation. Output and input of an all-gather
    tell the size of its group; then that of the others is known if all ranks are in it."""
    events = [
        *requested(1, 0, "allreduce_", [[], []], ["TensorList", ""], mark=[500, 2]),
        *requested(2, 50, "_allgather_base_", [[800], [100], []], ["c10::Half"] * 2 + [""]),
        *requested(3, 100, "alltoall_base_", [[16], [4, 8], []], ["long int"] * 2 + [""]),
    ]
    run = imported(a=recording(events, 0, world_size))
    (window,) = show_distributed(run).windows
    rows = {row.name: row for row in window.collectives}
    sizes = {"all_reduce": 4 * 500 * 2, "all_gather": 2 * 800, "all_to_all": 8 * 4 * 8}
    assert {name: row.moved_bytes for name, row in rows.items()} == sizes
    factors = {"all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "all_to_all": 7 / 8}
    for name, row in rows.items():
        assert row.algorithm_bytes_per_s == pytest.approx(sizes[name] / 10e-6)
        if world_size == 8 or name == "all_gather":
            assert row.group_size == 8
            assert row.bus_bytes_per_s == pytest.approx(sizes[name] / 10e-6 * factors[name])
        else:
            assert (row.group_size, row.bus_bytes_per_s) == (None, None)


def test_ranks_with_different_numbers_of_calls(imported: Imported) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    fewer = [event for event in training() if event["name"] != name]
    one = kernel(name, 50, 30, 3, stream=20)
    payload = show_distributed(
        imported(a=recording(training(), 0, 2), b=recording([*fewer, one], 1, 2))
    )
    (window,) = payload.windows
    assert [rank.transfer_ns for rank in window.ranks] == [None, None]
    assert any("fewest on rank 1" in note for note in window.notes)


@pytest.mark.seed("PTP-08")
def test_parts_sum_to_the_whole(imported: Imported) -> None:
    payload = show_distributed(
        imported(a=recording(training(), 0, 2), b=recording(training(), 1, 2))
    )
    for rank in payload.windows[0].ranks:
        assert rank.total_ns == 147 * US
        assert rank.steps is not None
        assert rank.steps.step == ["1", "2"]
        for part in (rank, rank.steps):
            sums = [
                np.atleast_1d(getattr(part, f"{name}_ns"))
                for name in ("computation", "overlap", "communication", "other")
            ]
            assert np.sum(sums, axis=0).tolist() == np.atleast_1d(part.total_ns).tolist()
        assert (rank.transfer_ns, rank.waiting_ns) == (60 * US, 0)
        assert rank.hidden_ratio == pytest.approx(20 / 60)
    assert payload.sentence == (
        f"Exposed communication takes {percent(40 / 147)} of the trace time of 2 ranks. "
        f"Computation hides {percent(20 / 60)} of the communication."
    )


def test_one_rank_has_nobody_to_compare_with(imported: Imported) -> None:
    payload = show_distributed(imported(a=training()))
    (window,) = payload.windows
    assert window.notes == [ONE_RANK]
    assert window.ranks[0].waiting_ns is None
    assert window.collectives[0].transfer_ns is None


def test_a_rank_without_device_work(imported: Imported) -> None:
    """Hosts that exchange gradients themselves: operators stand for kernels, but for those that
    request a collective of another thread, which may be another one than the thread carries out."""
    events = [
        step(1, 0, 100),
        event("cpu_op", "aten::mm", 10, 40),
        event("cpu_op", "c10d::_reduce_scatter_base_", 39, 40, thread=12),
        event("user_annotation", "gloo:all_reduce", 40, 30, thread=11),
    ]
    late = [*events[:3], event("user_annotation", "gloo:all_reduce", 60, 10, thread=11)]
    payload = show_distributed(
        imported(a=recording(events, 0, 2, "gloo"), b=recording(late, 1, 2, "gloo"))
    )
    (row,) = payload.windows[0].collectives
    assert row.name == "reduce_scatter, carried out as all_reduce"
    first, second = payload.windows[0].ranks
    assert first.work_on == "host"
    assert (first.computation_ns, first.overlap_ns) == (30 * US, 10 * US)
    assert (first.transfer_ns, first.waiting_ns) == (10 * US, 20 * US)
    assert second.last_count == 1


def test_a_range_cuts_the_work_and_keeps_the_matches(imported: Imported) -> None:
    """Rank 1's second all-reduce begins in the range, rank 0's before it."""
    one = [launch(9, 0), kernel("nccl_AllReduce", 0, 10, 1), kernel("nccl_AllReduce", 40, 60, 2)]
    two = [launch(9, 0), kernel("nccl_AllReduce", 5, 5, 1), kernel("nccl_AllReduce", 80, 20, 2)]
    run = imported(a=recording(one, 0, 2), b=recording(two, 1, 2))
    payload = VIEWS["distributed"](run, ViewOptions(from_ns=70 * US, to_ns=90 * US))
    first, second = payload.windows[0].ranks
    assert (first.collective_count, second.collective_count) == (0, 1)
    assert (second.transfer_ns, second.waiting_ns) == (20 * US, 0)
    assert (first.total_ns, first.communication_ns) == (20 * US, 20 * US)
    assert (second.total_ns, second.communication_ns) == (20 * US, 10 * US)


def test_watched_steps_of_ranks(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(0).draw("wait 10 | forward 20 | backward 20 | optimizer 10", 30)
    builder.rank(1).draw("wait 10 | forward 25 | backward 20 | optimizer 10", 20)
    payload = show_distributed(builder.open())
    matrix = payload.matrix
    assert matrix is not None
    assert (matrix.source, matrix.ranks) == ("watched", ["rank 0", "rank 1"])
    assert (matrix.step_count, matrix.slowest_count) == (20, [0, 20])
    assert matrix.duration_ns[1][19:21] == [65e6, None]
    assert matrix.excess_ns == [-2.5e6, 2.5e6]
    assert payload.missing is None


def test_what_is_not_drawn_is_said(
    tmp_path: Path, imported: Imported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.views.steps.distributed.MAX_RANKS", 2)
    monkeypatch.setattr("stepscope.views.steps.distributed.MAX_ROWS", 1)
    builder = RunBuilder(tmp_path / "drawn")
    for number, forward in enumerate((20, 20, 20, 25)):
        builder.rank(number).draw(f"wait 10 | forward {forward} | backward 20 | optimizer 10", 30)
    matrix = show_distributed(builder.open()).matrix
    assert matrix is not None
    assert (matrix.ranks, matrix.slowest_count) == (["rank 0", "rank 3"], [0, 30])
    assert matrix.excess_ns == [0, 5e6]
    assert matrix.notes == [
        "2 of 4 ranks are drawn, those whose steps exceed the median rank's most"
    ]
    (window,) = show_distributed(
        imported(a=recording(training(), 0, 2), b=recording(training(), 1, 2))
    ).windows
    assert len(window.rank_collectives) == 1
    assert window.collectives[0].call_count == 4
    assert window.notes == [
        "collectives by rank: the first 1 of 2 rows are listed; those of all ranks together count "
        "every one"
    ]
