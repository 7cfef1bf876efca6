"""Layout of sharded tensors (DTensor): ranks that hold the parts, and the join of statistics."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from stepscope.capture.frameworks.pytorch.tensors.statistics import COLUMNS, MAX_PRODUCT_ELEMENTS

_SHARDS = {"Shard", "_StridedShard"}
"""Classes of placements that give each element to one rank of a mesh dimension."""
_REPLICAS = {"Replicate"}
_COUNTS = ("element_count", "nan_count", "infinite_count", "zero_count")


class ShardLayout(NamedTuple):
    """Ranks that hold the parts of a tensor between them, each element once."""

    ranks: tuple[int, ...]
    """Ascending. Replicas of the tensor on other ranks have a layout of their own."""
    doubt: str | None = None
    """Reason why the parts cannot be joined, as a clause."""


def find_layout(tensor: Any) -> ShardLayout | None:
    """Find the ranks that hold the parts of a tensor; None for one that this rank has entirely."""
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", None)
    if mesh is None or placements is None:
        if getattr(tensor, "_fsdp_flattened", False):  # set by FullyShardedDataParallel
            return ShardLayout((), "FullyShardedDataParallel keeps flat parameters, without shapes")
        return None
    kinds = [type(placement).__name__ for placement in placements]
    unknown = set(kinds) - _SHARDS - _REPLICAS
    if unknown:
        return ShardLayout((), f"a tensor has the placement {min(unknown)}")
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return None
    index = tuple(
        slice(None) if kind in _SHARDS else position
        for kind, position in zip(kinds, coordinate, strict=True)
    )
    ranks = sorted(torch.atleast_1d(mesh.mesh[index]).flatten().tolist())
    return ShardLayout(tuple(ranks)) if len(ranks) > 1 else None


def is_empty_part(tensor: Any) -> bool:
    """Return True if a sharded tensor has elements, and none of them on this rank."""
    local = getattr(tensor, "_local_tensor", None)
    return local is not None and not local.numel() and bool(tensor.numel())


def empty_row(device: torch.device) -> Any:
    """Return the statistics of a part without elements: a list on the host, a tensor elsewhere."""
    if device.type == "cpu":
        return [0.0 if name in _COUNTS else math.nan for name in COLUMNS]
    row = torch.full((len(COLUMNS),), math.nan, dtype=torch.float64, device=device)
    row[: len(_COUNTS)].zero_()
    return row


def join_parts(parts: torch.Tensor) -> torch.Tensor:
    """Join the statistics of the parts of tensors.

    The squares of deviations are joined by the formula of Chan, Golub and LeVeque,
    https://doi.org/10.1080/00031305.1983.10483115, for any number of parts.

    Args:
        parts: (part, tensor, one of `COLUMNS`), in double precision.

    Returns:
        (tensor, one of `COLUMNS`); NaN where one is not known.
    """
    part = dict(zip(COLUMNS, parts.unbind(-1), strict=True))
    joined = {name: part[name].sum(0) for name in _COUNTS}
    finite = part["element_count"] - part["nan_count"] - part["infinite_count"]
    has_finite = finite > 0

    def of_finite(name: str, neutral: float) -> torch.Tensor:
        return torch.where(has_finite, part[name], neutral)

    joined["min"] = of_finite("min", math.inf).amin(0)
    joined["max"] = of_finite("max", -math.inf).amax(0)
    joined["sum"] = of_finite("sum", 0.0).sum(0)
    distance = part["sum"] / finite - joined["sum"] / finite.sum(0)
    between = torch.where(has_finite, finite * distance * distance, 0.0)
    joined["deviation_square_sum"] = (of_finite("deviation_square_sum", 0.0) + between).sum(0)
    joined["abs_sum"] = of_finite("abs_sum", 0.0).sum(0)
    has_product = joined["element_count"] <= MAX_PRODUCT_ELEMENTS
    joined["product"] = torch.where(has_product, of_finite("product", 1.0).prod(0), math.nan)
    for name in ("min", "max", "sum", "deviation_square_sum", "abs_sum", "product"):
        joined[name] = torch.where(has_finite.any(0), joined[name], math.nan)
    has_elements = part["element_count"] > 0
    change = torch.where(has_elements, part["update_square_sum"], 0.0).sum(0)
    joined["update_square_sum"] = torch.where(has_elements.any(0), change, math.nan)
    return torch.stack([joined[name] for name in COLUMNS], -1)
