"""Ranges and counts of tensors, which wait for the device, and traits of operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

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


COLLECTIVE_NAMESPACES = {"c10d", "_c10d_functional"}
_IGNORED_NAMESPACES = {*COLLECTIVE_NAMESPACES, "profiler", "prim"}
_OVERWRITES = {
    "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
    "log_normal_", "cauchy_", "geometric_", "set_", "resize_",
}  # fmt: skip
"""Operators whose first argument is only written."""


class Traits(NamedTuple):
    """Traits of an operator."""

    is_checked: bool
    """False for one that computes nothing: a view, or memory that is written later."""
    written: tuple[tuple[int, str], ...]
    """Position and name of the arguments that it writes."""
    has_old_values: bool
    """The written arguments are read as well."""


@functools.cache
def traits_of(operator: Any) -> Traits:
    """Return the traits of an operator."""
    schema = operator._schema
    returns = [value.alias_info for value in schema.returns]
    is_view = bool(returns) and all(alias is not None and not alias.is_write for alias in returns)
    written = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    is_out = any(argument.is_out for argument in schema.arguments)
    name = schema.name.partition("::")[2]
    is_allocation = name.startswith(("empty", "new_empty"))
    is_ignored = operator.namespace in _IGNORED_NAMESPACES
    return Traits(
        is_checked=not (is_view or is_allocation or is_ignored),
        written=written,
        has_old_values=not is_out and name not in _OVERWRITES,
    )


def short_name(operator: Any) -> str:
    """Return the name of an operator as scripts write it: `aten::_foreach_div_` is `div`."""
    name: str = operator._schema.name.partition("::")[2]
    return name.removeprefix("_foreach").strip("_")


def written_arguments(traits: Traits, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the arguments that an operator writes: tensors, or lists of tensors."""
    for position, name in traits.written:
        if position < len(args):
            yield args[position]
        elif name in kwargs:
            yield kwargs[name]


def _is_readable(value: Any) -> bool:
    """Return True for a tensor with values, and not one of a class that only stands for them."""
    dispatch = torch.Tensor.__torch_dispatch__
    return isinstance(value, torch.Tensor) and type(value).__torch_dispatch__ is dispatch


def tensors_in(values: Any) -> Iterator[tuple[torch.Tensor, int, int]]:
    """Yield the tensors with values in arguments or results, each with its index in its list and
    the length of the list; index and length are -1 outside of lists."""
    for value in values:
        if _is_readable(value):
            yield value, -1, -1
        elif isinstance(value, (list, tuple)):
            for index, part in enumerate(value):
                if _is_readable(part):
                    yield part, index, len(value)


def tensors_for(values: Any, index: int, length: int) -> Iterator[torch.Tensor]:
    """Yield the arguments from which an operator computes a result: of one on lists, only those at
    the index of the result."""
    for tensor, position, count in tensors_in(values):
        if index < 0 or count != length or position == index:
            yield tensor


def has_infinite_constant(args: Any, kwargs: Any) -> bool:
    """Return True if the script fills with an infinite number."""
    numbers = (value for value in (*args, *kwargs.values()) if isinstance(value, float))
    return any(math.isinf(number) for number in numbers)
