"""Ranges and counts of tensors, read when they are needed: a device is waited for."""

from __future__ import annotations

import math
from typing import Any

import torch

Range = tuple[float, float]
"""Smallest and largest element; both are NaN if any element is."""
_VALUES_OF_LAYOUT = {
    torch.sparse_coo: torch.Tensor._values,
    torch.sparse_csr: torch.Tensor.values,
    torch.sparse_csc: torch.Tensor.values,
    torch.sparse_bsr: torch.Tensor.values,
    torch.sparse_bsc: torch.Tensor.values,
}


def find_stored(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the strided tensor that holds the elements; None for one that cannot be read."""
    if tensor.device.type == "meta" or tensor.is_quantized or tensor.is_nested:
        return None
    if tensor.layout is torch.strided:
        return tensor
    read = _VALUES_OF_LAYOUT.get(tensor.layout)
    return None if read is None else read(tensor)


def find_range(tensor: torch.Tensor) -> Range | None:
    """Return the range of a floating-point or complex tensor; None for any other, without elements
    included. Of a complex one it is that of real and imaginary parts."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    elements = _find_real(tensor)
    if elements is None:
        return None
    low, high = torch.aminmax(elements)
    if elements.device.type == "cpu":
        return low.item(), high.item()
    low, high = torch.stack((low, high)).tolist()
    return low, high


def is_finite(values: Range) -> bool:
    """Return True for the range of finite elements."""
    return math.isfinite(values[0]) and math.isfinite(values[1])


def has_nan(values: Range) -> bool:
    """Return True for the range of elements of which any is NaN."""
    return math.isnan(values[0])


def is_mask(tensor: torch.Tensor) -> bool:
    """Return True for infinite elements beside zeros only: a constant, or an additive mask."""
    elements = _find_real(tensor)
    if elements is None:
        return False
    return elements.dim() == 0 or bool(((elements == 0) | elements.isinf()).all())


def describe_tensor(tensor: torch.Tensor, before: Range | None = None) -> dict[str, Any]:
    """Describe the elements of a tensor, as in `stepscope.schema.TensorValues`.

    Args:
        tensor: the tensor.
        before: range before an operator has overwritten it; then there are no counts.
    """
    fields: dict[str, Any] = {
        "shape": [int(n) for n in tensor.shape],
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "min": None,
        "max": None,
        "element_count": None,
        "zero_count": None,
        "nan_count": None,
        "positive_infinite_count": None,
        "negative_infinite_count": None,
    }
    if before is not None:
        return fields | {"min": _as_json(before[0]), "max": _as_json(before[1])}
    elements = _find_real(tensor)
    if elements is None:
        return fields
    fields["element_count"] = elements.numel()
    fields["zero_count"] = int((elements == 0).sum())
    if elements.is_floating_point():
        fields["nan_count"] = int(elements.isnan().sum())
        fields["positive_infinite_count"] = int((elements == math.inf).sum())
        fields["negative_infinite_count"] = int((elements == -math.inf).sum())
        elements = elements[elements.isfinite()]
    if elements.numel() and elements.dtype != torch.bool:
        low, high = torch.aminmax(elements)
        fields |= {"min": low.item(), "max": high.item()}
    return fields


def _as_json(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _find_real(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the elements as real numbers that torch can compare; None without any."""
    elements = find_stored(tensor)
    if elements is None or not elements.numel():
        return None
    elements = elements.detach()
    if elements.is_complex():
        elements = torch.view_as_real(elements.resolve_conj().resolve_neg())
    if elements.is_floating_point() and elements.element_size() == 1:
        elements = elements.float()
    return elements
