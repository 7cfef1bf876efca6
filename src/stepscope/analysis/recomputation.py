"""Activation checkpointing: forward operators that run again inside a backward pass.

The autograd engine runs backward nodes (`MulBackward0`) with gradients off, so the operators that a
node calls have no sequence number. Checkpointing runs the forward pass of a segment again with
gradients on: inside `CheckpointFunctionBackward`, or inside the node that first needs an activation
of the segment (https://docs.pytorch.org/docs/stable/checkpoint.html). So

    recomputed   an operator with a sequence number, called by a backward node that also calls
                 operators without one, or that is named after checkpointing
    time         device and host total of these calls, with everything below them

With `create_graph=True` all operators of a node have sequence numbers, and none is recomputed.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import numpy as np

from stepscope.analysis.columns import Columns
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.kernel_classes import match_rows
from stepscope.analysis.operator_tree import find_rows
from stepscope.schema import field_label

RECOMPUTATION_COLUMNS = (
    *("id", "name", "parent", "sequence", "forward_thread"),
    *("duration_ns", "device_self_ns", "device_total_ns"),
)
"""Columns of `operators` that `find_recomputation` reads."""
_NODE = re.compile(r"Backward\d*$")
_ENGINE = ("autograd::engine::", "torch::autograd::")


class RecomputedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """Recomputed calls of one operator."""

    name: Annotated[str, field_label("operator")]
    calls: int
    device_ns: int
    """Time of the kernels, copies and sets launched by the calls and below them."""
    host_ns: int


class Recomputation(msgspec.Struct, frozen=True, kw_only=True):
    """Forward operators that ran again in the backward pass (activation checkpointing)."""

    call_count: int
    """Outermost recomputed operators."""
    device_ns: int
    device_ratio: Annotated[float | None, field_label("share of device time")]
    """Share of the device time that operators launched; null without any."""
    host_ns: int
    host_ratio: Annotated[float | None, field_label("share of host time")]
    """Share of the duration of the outermost operators."""
    operators: list[RecomputedOperator]
    """By descending device time, then host time."""


def find_recomputation(operators: Columns, *, top: int = 0) -> Recomputation | None:
    """Find the forward operators that ran again in the backward pass.

    Args:
        operators: `RECOMPUTATION_COLUMNS` of the table.
        top: limit of the list of operators; 0 for all.

    Returns:
        None if it is unknown: no backward node, or no sequence number in the trace.
    """
    names = operators["name"]
    texts = [name or "" for name in names.values]
    code = names.codes
    is_node = match_rows(names, lambda name: _NODE.search(name) is not None)
    is_engine = match_rows(names, lambda name: name.startswith(_ENGINE))
    checkpoints = match_rows(names, lambda name: "Checkpoint" in name)
    has_sequence = operators["sequence"] >= 0
    if not is_node.any() or not (has_sequence & ~is_node).any():
        return None
    parent = find_rows(operators["id"], operators["parent"])
    in_node = (parent >= 0) & is_node[parent] & ~is_node & ~is_engine
    computes = checkpoints.copy()
    computes[parent[in_node & ~has_sequence]] = True
    is_forward = has_sequence & (operators["forward_thread"] <= 0)
    rows = np.flatnonzero(in_node & is_forward & computes[parent])

    device, host = operators["device_total_ns"][rows], operators["duration_ns"][rows]
    groups = group_rows(code[rows])
    totals = zip(groups.first, groups.counts(), groups.sums(device), groups.sums(host), strict=True)
    summed = [
        RecomputedOperator(
            name=texts[code[rows[first]]], calls=int(calls), device_ns=int(d), host_ns=int(h)
        )
        for first, calls, d, h in totals
    ]
    summed.sort(key=lambda row: (-row.device_ns, -row.host_ns))
    device_ns, host_ns = int(device.sum()), int(host.sum())
    all_device_ns = int(operators["device_self_ns"].sum())
    all_host_ns = int(operators["duration_ns"][parent < 0].sum())
    return Recomputation(
        call_count=len(rows),
        device_ns=device_ns,
        device_ratio=device_ns / all_device_ns if all_device_ns else None,
        host_ns=host_ns,
        host_ratio=host_ns / all_host_ns if all_host_ns else None,
        operators=summed[:top] if top else summed,
    )
