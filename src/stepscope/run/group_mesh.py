"""Coordinates of ranks in parallel dimensions, from the process groups of the job.

The recorder of collectives has the purpose of a group, such as `mesh_tp` of a DeviceMesh or
`TENSOR_MODEL_PARALLEL_GROUP` of Megatron, and its ranks. The groups of one dimension divide the
ranks of the job; the coordinate of a rank is its position in its group.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from stepscope.run.rank_mesh import RankMesh
from stepscope.run.run import Run

WORDS = {
    "dp": {"dp", "ddp", "data", "fsdp"},
    "pp": {"pp", "pipe", "pipeline", "stage"},
    "tp": {"tp", "tensor"},
    "ep": {"ep", "expert", "moe"},
    "cp": {"cp", "context"},
}
"""Words in the purpose of a group by dimension."""
_WORD = re.compile("[a-z]+")
Members = tuple[int, ...]


def find_dimension(purpose: str) -> str | None:
    """Find the dimension of a group; None for a group of none, or of several together.

    >>> find_dimension("mesh_dp"), find_dimension("PIPELINE_MODEL_PARALLEL_GROUP")
    ('dp', 'pp')
    >>> find_dimension("EXPERT_DATA_PARALLEL_GROUP")
    >>> find_dimension("default_pg")
    """
    words = set(_WORD.findall(purpose.lower()))
    dimensions = [name for name, meanings in WORDS.items() if words & meanings]
    return dimensions[0] if len(dimensions) == 1 else None


def read_group_mesh(run: Run) -> RankMesh | None:
    """Read the coordinates of the ranks from their process groups; None without such groups."""
    if not run.reader.has("collective_calls"):
        return None
    rows = run.reader.sql(
        "SELECT DISTINCT group_description, group_ranks FROM collective_calls "
        "WHERE group_description IS NOT NULL AND group_ranks IS NOT NULL ORDER BY ALL"
    )
    groups: dict[str, set[Members]] = {}
    for purpose, ranks in zip(rows["group_description"], rows["group_ranks"], strict=True):
        dimension = find_dimension(purpose)
        if dimension is not None:
            groups.setdefault(dimension, set()).add(tuple(map(int, ranks.split(","))))
    ranks = {rank.process.rank for rank in run.ranks if rank.process.rank is not None}
    return make_group_mesh(groups, ranks)


def make_group_mesh(groups: dict[str, set[Members]], ranks: Collection[int]) -> RankMesh | None:
    """Make the mesh whose dimensions are those of which the groups divide all ranks.

    Args:
        groups: ranks of each group, by dimension.
        ranks: ranks of the job.
    """
    divided = {name: members for name, members in groups.items() if _divides(members, ranks)}
    if not divided:
        return None
    order = sorted(divided, key=lambda name: -_stride(divided[name]))
    coordinates_by_rank: dict[int, dict[str, int]] = {rank: {} for rank in ranks}
    for name in order:
        for members in divided[name]:
            for position, rank in enumerate(members):
                if rank in coordinates_by_rank:
                    coordinates_by_rank[rank][name] = position
    sizes = {name: len(next(iter(divided[name]))) for name in order}
    return RankMesh(sizes=sizes, coordinates_by_rank=coordinates_by_rank)


def _divides(groups: set[Members], ranks: Collection[int]) -> bool:
    """Return True if each rank is in one of the groups, which are of one size above 1."""
    members = [rank for group in groups for rank in group]
    sizes = {len(group) for group in groups}
    return (
        len(members) == len(set(members))
        and set(ranks) <= set(members)
        and (len(sizes) == 1 and min(sizes) > 1)
    )


def _stride(groups: set[Members]) -> int:
    return min(group[1] - group[0] for group in groups)
