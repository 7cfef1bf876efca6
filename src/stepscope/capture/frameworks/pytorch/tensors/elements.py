"""Elements of tensors, on request: option `--tensors-raw`.

A tensor of the host is written at once, one of a device when its copy has arrived. The processes of
a job share a limit; a tensor that exceeds it is left out from then on, and named in the run.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies
from stepscope.capture.frameworks.pytorch.tensors.rows import RowWriter, read_bytes
from stepscope.spool import TENSOR_ELEMENTS, ElementBudget, TensorPlan

MAX_NOTES = 50
"""Tensors that are named as left out."""
_MEGABYTE = 1_000_000


class _Row(NamedTuple):
    number: int
    """Of the name of the tensor."""
    name: str
    t_ns: int
    step: int
    mode: str


class ElementWriter:
    """Writer of the elements of the tensors of one process.

    Args:
        plan: which tensors, and their limit.
        names: numbers the names of tensors.
    """

    def __init__(self, plan: TensorPlan, names: RowWriter) -> None:
        self._patterns = [re.compile(pattern) for pattern in plan.raw_patterns]
        self._limit_bytes = plan.raw_limit_bytes
        self._names = names
        self._left_out: set[str] = set()
        self._copies: HostCopies[_Row] = HostCopies()

    def add(  # noqa: PLR0917 - one row
        self, name: str, collection: str, tensor: torch.Tensor, t_ns: int, step: int, mode: str
    ) -> None:
        """Record the elements of a tensor if its name matches; of a distributed one those of this
        rank."""
        if name in self._left_out or not any(pattern.fullmatch(name) for pattern in self._patterns):
            return
        to_local = getattr(tensor, "to_local", None)  # a DTensor
        values = (tensor if to_local is None else to_local()).detach()
        if values.layout is not torch.strided or values.is_quantized or values.is_nested:
            self._leave_out(name, step, f"their layout is {values.layout}")
            return
        current = session.current()
        if current is None or values.is_meta or not values.numel():
            return
        node_count = _count_nodes()
        budget = ElementBudget(current.tree.root, self._limit_bytes // node_count)
        if not budget.reserve(values.nbytes):
            limit = f"{self._limit_bytes / _MEGABYTE:g} MB (--tensors-raw-limit)"
            share = (
                "the limit" if node_count == 1 else f"this node's part, 1/{node_count} of the limit"
            )
            self._leave_out(name, step, f"{share} of {limit} is reached")
            return
        values = values.resolve_conj().resolve_neg().contiguous()
        row = _Row(self._names.name(name, collection, values), name, t_ns, step, mode)
        if values.device.type == "cpu":
            self._store(row, values)
        else:
            self._copies.start(row, [values])

    def poll(self) -> None:
        """Store the elements that have arrived on the host. Never waits."""
        self._store_all(self._copies.take_arrived())

    def finish(self) -> None:
        """Store the others as well, because the process ends; name those that do not arrive."""
        self._store_all(self._copies.await_arrival())
        for row in self._copies.labels:
            self._leave_out(row.name, row.step, "the device did not finish in time")

    def _store_all(self, arrived: Iterable[tuple[_Row, list[torch.Tensor]]]) -> None:
        for row, (values,) in arrived:
            self._store(row, values)

    def _store(self, row: _Row, values: torch.Tensor) -> None:
        current = session.current()
        if current is None:
            return
        columns = [
            ("tensor", "q", 1, array("q", [row.number]).tobytes()),
            ("elements", "B", values.nbytes, read_bytes(values)),
        ]
        fields = {"t_ns": row.t_ns, "step": row.step, "mode": row.mode}
        if not current.row_log.write(1, columns, table=TENSOR_ELEMENTS, **fields):
            self._leave_out(row.name, row.step, "the spool has no room (--spool-limit)")

    def _leave_out(self, name: str, step: int, reason: str) -> None:
        """Record no more elements of a tensor, and note the reason."""
        self._left_out.add(name)
        current = session.current()
        if current is not None and len(self._left_out) <= MAX_NOTES:
            current.note(f"elements of {name} from step {step} on are not recorded: {reason}")


def _count_nodes() -> int:
    """Return the number of nodes of the job, as torchrun states it: the limit is that of all."""
    world_size = os.environ.get("WORLD_SIZE", "")
    local_world_size = os.environ.get("LOCAL_WORLD_SIZE", "")
    if not world_size.isdecimal() or not local_world_size.isdecimal():
        return 1
    return max(1, int(world_size) // max(1, int(local_world_size)))
