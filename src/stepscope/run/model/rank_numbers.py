"""Numbers of ranks, and their coordinates in a mesh or by process groups.

Coordinates of ranks in a mesh of parallel dimensions, such as dp=4,pp=2,tp=2. As in torch's
DeviceMesh (https://docs.pytorch.org/docs/stable/distributed.html#devicemesh), ranks are in
row-major order: the last dimension varies fastest.

Coordinates of ranks in parallel dimensions, from the process groups of the job. The recorder of
collectives has the purpose of a group, such as `mesh_tp` of a DeviceMesh or
`TENSOR_MODEL_PARALLEL_GROUP` of Megatron, and its ranks. The groups of one dimension divide the
ranks of the job; the coordinate of a rank is its position in its group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from stepscope import errors
from stepscope.run.model.run import Run
from stepscope.run.model.traces import Trace


@dataclass(frozen=True)
class RankNumbers:
    """Ranks of the processes and traces of a run; the only process of a job is rank 0.

    An imported trace that does not state its rank may be of any.
    """

    by_process: Mapping[str, int]
    by_trace: Mapping[int, int]

    @property
    def numbers(self) -> list[int]:
        """All ranks, ascending; empty where they are unknown."""
        return sorted({*self.by_process.values(), *self.by_trace.values()})

    def require(self, rank: int | None) -> None:
        """Refuse a rank that does not exist; None stands for all ranks.

        Raises:
            UsageError: there is no such rank.
        """
        numbers = self.numbers
        if rank is None or rank in numbers:
            return
        if not numbers:
            raise errors.UsageError(f"There is no rank {rank}: the run does not record ranks.")
        noun = "ranks" if len(numbers) > 1 else "rank"
        raise errors.UsageError(
            f"There is no rank {rank}; the run has {noun} {', '.join(number_ranges(numbers))}."
        )


def number_ranks(run: Run) -> RankNumbers:
    """Number the ranks of a run, also where it is restricted to a range of time."""
    return run.whole_run.derive(_number_ranks)


def _number_ranks(run: Run) -> RankNumbers:
    by_process = {p.process: p.rank for p in run.processes if p.rank is not None}
    by_trace = {t.trace: t.rank for t in run.traces if t.rank is not None}
    if by_process or by_trace:
        return RankNumbers(by_process, by_trace)
    main = [process.process for process in run.processes if process.role == "main"]
    if len(main) > 1:  # a job of several commands, one of which trains
        main = [rank.process.process for rank in run.ranks]
    if len(main) == 1:
        traces = [trace.trace for trace in run.traces if trace.process in {None, main[0]}]
        return RankNumbers({main[0]: 0}, dict.fromkeys(traces, 0))
    return RankNumbers({}, {})


def number_ranges(numbers: Iterable[int]) -> list[str]:
    """Format ascending numbers as ranges of three or more, and single numbers.

    >>> number_ranges([1, 2, 3, 7, 8])
    ['1 to 3', '7', '8']
    """
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts: list[str] = []
    for run in runs:
        texts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return texts


DIMENSIONS = {"dp": "data", "pp": "pipeline", "tp": "tensor", "ep": "expert", "cp": "context"}
"""Name in words by dimension."""


class RankMesh(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes by dimension, the slowest first."""

    sizes: dict[str, int]
    coordinates_by_rank: Mapping[int, dict[str, int]] | None = None
    """Coordinates by rank, where ranks are not in row-major order."""

    def locate(self, rank: int) -> dict[str, int]:
        """Return the coordinates of a rank."""
        if self.coordinates_by_rank is not None:
            return self.coordinates_by_rank[rank]
        coordinates = {}
        for name, size in reversed(self.sizes.items()):
            rank, coordinates[name] = divmod(rank, size)
        return {name: coordinates[name] for name in self.sizes}


def parse_mesh(text: str, world_size: int) -> RankMesh:
    """Parse a mesh.

    >>> parse_mesh("dp=4,pp=2,tp=2", 16).locate(5)
    {'dp': 1, 'pp': 0, 'tp': 1}

    Raises:
        UsageError: a dimension is unknown, repeated or has no size, or the mesh does not have as
            many places as the job has ranks.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if name not in DIMENSIONS:
            raise errors.UsageError(
                f"--mesh: {name!r} is no dimension; use {', '.join(DIMENSIONS)}, such as "
                "dp=4,pp=2,tp=2."
            )
        if name in sizes:
            raise errors.UsageError(f"--mesh: the dimension {name} is given twice.")
        if not (size.isascii() and size.isdigit() and 0 < len(size) < 10 and int(size) > 0):
            raise errors.UsageError(
                f"--mesh: {part.strip()!r} needs a size of 1 or more, such as {name}=2."
            )
        sizes[name] = int(size)
    count = math.prod(sizes.values())
    if count != world_size:
        product = " x ".join(map(str, sizes.values()))
        raise errors.UsageError(
            f"--mesh: {product} is {count}, but the job has {world_size} ranks; give sizes that "
            "multiply to that."
        )
    return RankMesh(sizes=sizes)


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


def name_traces(traces: Sequence[Trace]) -> str:
    """Name traces by their ranks, or by their names where ranks are unknown.

    Returns:
        A list such as "rank 1, rank 3 to 5".
    """
    ranks = sorted({trace.rank for trace in traces if trace.rank is not None})
    names = [trace.name for trace in traces if trace.rank is None]
    return ", ".join([*(f"rank {numbers}" for numbers in number_ranges(ranks)), *names])
