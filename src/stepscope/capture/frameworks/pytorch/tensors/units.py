"""Units (features or channels) of activation functions that have stopped to respond.

They are recorded as tensors of zeros and ones, one element per unit: the mean is their share.
"""

from __future__ import annotations

from typing import Any

import torch

DEAD_PREFIX, SATURATED_PREFIX = "dead_units/", "saturated_units/"
"""Prefixes of the names of these tensors."""
INACTIVE_RATIO = 0.01
"""A unit has stopped if less than this share of its elements in a call is active: the
`threshold_inactivity` of DeadRelu and SaturatedActivation in SageMaker Debugger."""
RECTIFIERS = (torch.nn.ReLU, torch.nn.ReLU6)
_LIMITS = {torch.nn.Tanh: (-9.4999, 9.4999), torch.nn.Sigmoid: (-23.0, 16.99999)}
"""Inputs outside have a derivative below 1e-7; the limits of Debugger."""


def find_stopped_units(
    module: torch.nn.Module, args: tuple[Any, ...], result: Any
) -> tuple[str, torch.Tensor] | None:
    """Find the units of an activation function that do not respond in a call.

    Returns:
        Prefix of the name, and one element per unit on the device of the call, 1 if it has stopped;
        None for other modules.
    """
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if isinstance(module, RECTIFIERS) and _is_usable(result):
            return DEAD_PREFIX, _find_inactive(result.detach() > 0)
        limits = _LIMITS.get(type(module))
        if limits is None or not args or not _is_usable(args[0]):
            return None
        low, high = limits
        values = args[0].detach()
        return SATURATED_PREFIX, _find_inactive((values > low) & (values < high))


def _is_usable(tensor: Any) -> bool:
    return type(tensor) is torch.Tensor and bool(tensor.numel()) and not tensor.is_meta


def _find_inactive(is_active: torch.Tensor) -> torch.Tensor:
    """Return one element per unit: 1 if too few of its elements are active.

    Units are the last dimension of sequences and batches, the second one of images and volumes.
    """
    axis = 1 if is_active.dim() > 3 else -1
    by_unit = is_active.movedim(axis, 0).reshape(
        is_active.shape[axis] if is_active.dim() else 1, -1
    )
    return (by_unit.sum(1) < INACTIVE_RATIO * by_unit.shape[1]).to(torch.uint8)
