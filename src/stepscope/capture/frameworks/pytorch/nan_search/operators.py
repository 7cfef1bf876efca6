"""Traits of operators from their schemas: the arguments that they write, and names."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

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
        elif isinstance(value, list | tuple):
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
