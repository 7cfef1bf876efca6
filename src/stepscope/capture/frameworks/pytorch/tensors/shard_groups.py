"""Groups of ranks that share sharded tensors, and facts about what is recorded of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch.tensors.shard_group import (
    MAX_HISTOGRAM_ELEMENTS,
    Joined,
    ShardGroup,
)
from stepscope.capture.frameworks.pytorch.tensors.shard_layout import ShardLayout, find_layout
from stepscope.spool import TensorPlan


class ShardGroups:
    """Groups of one process.

    Args:
        plan: what to record; it is the same on all ranks, or nothing is joined.
    """

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._layouts: dict[Any, ShardLayout | None] = {}
        """By mesh and placements."""
        self._groups: dict[tuple[tuple[int, ...], str], ShardGroup] = {}
        """By ranks and type of device: the rows of one type are known in the order of the steps."""
        self._reported: set[tuple[tuple[int, ...], str | None]] = set()
        """Ranks, and why their statistics are not joined."""

    def find(self, tensor: Any) -> ShardGroup | None:
        """Return the group that joins the statistics of a tensor; None if they stay as they are."""
        layout = self._layout(tensor)
        if layout is None:
            return None
        doubt = layout.doubt or self._doubt(layout, tensor)
        if doubt is not None:
            self._report(layout.ranks, doubt)
            return None
        key = layout.ranks, tensor.device.type
        group = self._groups.get(key)
        if group is None:
            rank = torch.distributed.get_rank()
            group = self._groups[key] = ShardGroup(
                layout.ranks, rank, agreement=self._plan.encode(), device_type=key[1]
            )
        return group if group.failure is None else None

    def take(self) -> Iterator[Joined]:
        """Yield the rows that are to be recorded by now. Never waits."""
        for group in self._groups.values():
            yield from group.take()
            self._report_state(group)

    def finish(self) -> Iterator[Joined]:
        """Yield all other rows; the process ends."""
        for group in self._groups.values():
            yield from group.finish()
            self._report_state(group)

    def _layout(self, tensor: Any) -> ShardLayout | None:
        mesh = getattr(tensor, "device_mesh", None)
        if mesh is None:
            return find_layout(tensor)
        key = mesh, tuple(tensor.placements)
        if key not in self._layouts:
            self._layouts[key] = find_layout(tensor)
        return self._layouts[key]

    def _doubt(self, layout: ShardLayout, tensor: Any) -> str | None:
        for rank in layout.ranks:
            if not self._plan.records_rank(rank):
                return f"rank {rank} records no tensors"
        if self._plan.histograms and tensor.numel() > MAX_HISTOGRAM_ELEMENTS:
            return "a tensor has too many elements for a histogram"
        return None

    def _report_state(self, group: ShardGroup) -> None:
        if group.is_connected or group.failure is not None:
            self._report(group.ranks, group.failure)

    def _report(self, ranks: tuple[int, ...], why: str | None) -> None:
        """Record, once, whether statistics are those of whole tensors or of shards."""
        current = session.current()
        if current is None or (ranks, why) in self._reported:
            return
        self._reported.add((ranks, why))
        statistics = "whole" if why is None else "shards"
        current.fact("sharded_tensors", statistics=statistics, ranks=list(ranks), why=why)
        if why is not None:
            current.note(
                "statistics of sharded tensors are those of this rank's shards, not of whole "
                f"tensors: {why}"
            )
