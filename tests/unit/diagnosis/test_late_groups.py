"""Ranks that another rank made late in a chain of process groups, of drawn jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.run import read_group_mesh
from stepscope.run.group_mesh import make_group_mesh
from stepscope.testing import RunBuilder
from stepscope.views.ranks import show_ranks

RunMaker = Callable[..., RunBuilder]
TENSOR = ("3", "mesh_tp", (0, 1)), ("4", "mesh_tp", (2, 3))
DATA = ("1", "mesh_dp", (0, 2)), ("2", "mesh_dp", (1, 3))
LATE_MS = 20
STEPS = 60


def draw(new_run: RunMaker, *, late: tuple[int, ...], described: bool = True) -> RunBuilder:
    """Draw two tensor groups of two ranks each, joined by two data groups.

    A tensor group exchanges activations in its forward passes, by calls that no hook sees, so the
    waiting for a late rank is in the forward pass of its peer.
    """
    builder = new_run()
    for number in range(4):
        rank = builder.rank(number, world_size=4)
        group_late = number // 2 in {rank // 2 for rank in late}
        load_ms = 10 + LATE_MS * (number in late)
        tensor_wait_ms = LATE_MS * (group_late and number not in late)
        data_wait_ms = 5 + LATE_MS * (not group_late)
        for _ in range(STEPS):
            rank.draw(f"wait {load_ms} | forward {30 + tensor_wait_ms}")
            for group, before_ms in ((TENSOR[number // 2], 20 + tensor_wait_ms),):
                name, purpose, ranks = group
                rank.collective(
                    before_ms,
                    group=name,
                    purpose=purpose if described else "undefined",
                    ranks=ranks,
                )
            rank.draw(f"backward {20 + data_wait_ms} | optimizer 5")
            name, purpose, ranks = DATA[number % 2]
            rank.collective(
                5 + data_wait_ms, group=name, purpose=purpose if described else "undefined",
                ranks=ranks,
            )  # fmt: skip
    return builder


def test_the_first_rank_of_a_chain_is_named(new_run: RunMaker) -> None:
    """Rank 0 arrives at the data group as late as rank 1, for whom it had to wait before."""
    payload = show_ranks(draw(new_run, late=(1,)).open())
    assert payload.sentence == (
        "Rank 1 is late in 100% of steps by 20 ms: slow data loading. It makes rank 0 late, too, "
        "in earlier collectives of the step."
    )
    rows = {row.rank: row for row in payload.ranks}
    assert rows["rank 0"].made_late_by == "rank 1"
    assert [rows[f"rank {n}"].made_late_by for n in (1, 2, 3)] == [None] * 3
    assert rows["rank 2"].coordinates == "dp=1 tp=0"


def test_ranks_that_are_late_by_themselves_are_all_named(new_run: RunMaker) -> None:
    payload = show_ranks(draw(new_run, late=(0, 1)).open())
    assert [row.made_late_by for row in payload.ranks] == [None] * 4
    assert payload.sentence == (
        "All ranks of data coordinate 0 (dp) are late by 20 ms: slow data loading."
    )


def test_a_late_rank_that_is_never_the_last_is_late_by_itself(new_run: RunMaker) -> None:
    """No rank waits for rank 5: rank 0 is later in the same exchange."""
    builder = new_run()
    every_rank = tuple(range(8))
    for number in every_rank:
        late_ms = {0: 100, 5: 50}.get(number, 0)
        rank = builder.rank(number, world_size=8)
        for _ in range(STEPS):
            rank.draw(f"wait {10 + late_ms} | forward 30 | communication {105 - late_ms}")
            for group, before_ms in (("1", 105 - late_ms), ("2", 1)):
                rank.collective(before_ms, group=group, purpose="undefined", ranks=every_rank)
            rank.draw("optimizer 5")
    rows = {row.rank: row for row in show_ranks(builder.open()).ranks}
    assert [rows[f"rank {number}"].persistence for number in (0, 5)] == ["persistent"] * 2
    assert [row.made_late_by for row in rows.values()] == [None] * 8


def test_groups_without_a_known_purpose_give_no_coordinates(new_run: RunMaker) -> None:
    run = draw(new_run, late=(1,), described=False).open()
    assert read_group_mesh(run) is None
    assert {row.coordinates for row in show_ranks(run).ranks} == {""}


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ({"dp": {(0, 2), (1, 3)}, "tp": {(0, 1), (2, 3)}}, {"dp": 2, "tp": 2}),
        ({"tp": {(0, 2), (1, 3)}, "pp": {(0, 1), (2, 3)}}, {"tp": 2, "pp": 2}),
        ({"dp": {(0, 2), (1, 3)}, "tp": {(0, 1)}}, {"dp": 2}),  # not all ranks
        ({"dp": {(0, 1, 2, 3), (0, 1)}}, None),  # a rank twice
        ({"dp": {(0, 1, 2), (3,)}}, None),  # of several sizes
        ({"dp": {(0,), (1,), (2,), (3,)}}, None),
    ],
)
def test_a_dimension_divides_all_ranks(
    groups: dict[str, set[tuple[int, ...]]], sizes: dict[str, int] | None
) -> None:
    mesh = make_group_mesh(groups, range(4))
    assert (mesh and mesh.sizes) == sizes
    if mesh is not None and len(mesh.sizes) == 2:
        assert [tuple(mesh.locate(rank).values()) for rank in range(4)] == [
            (0, 0), (0, 1), (1, 0), (1, 1),
        ]  # fmt: skip
