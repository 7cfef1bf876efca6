"""Coordinates of ranks in a mesh of parallel dimensions, such as dp=4,pp=2,tp=2.

As in torch's DeviceMesh (https://docs.pytorch.org/docs/stable/distributed.html#devicemesh), ranks
are in row-major order: the last dimension varies fastest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.errors import UsageError

DIMENSIONS = {
    "dp": "data",
    "pp": "pipeline",
    "tp": "tensor",
    "ep": "expert",
    "cp": "context",
}
"""Name in words by dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMesh:
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
            raise UsageError(
                f"--mesh: {name!r} is no dimension; use {', '.join(DIMENSIONS)}, such as "
                "dp=4,pp=2,tp=2."
            )
        if name in sizes:
            raise UsageError(f"--mesh: the dimension {name} is given twice.")
        if not (size.isascii() and size.isdigit() and 0 < len(size) < 10 and int(size) > 0):
            raise UsageError(
                f"--mesh: {part.strip()!r} needs a size of 1 or more, such as {name}=2."
            )
        sizes[name] = int(size)
    count = math.prod(sizes.values())
    if count != world_size:
        product = " x ".join(map(str, sizes.values()))
        raise UsageError(
            f"--mesh: {product} is {count}, but the job has {world_size} ranks; give sizes that "
            "multiply to that."
        )
    return RankMesh(sizes=sizes)
