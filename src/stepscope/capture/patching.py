"""Transparent replacement of functions of a framework by wrappers.

A wrapper is pickled under the name of the original and has its signature.
"""

from __future__ import annotations

import functools
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    WrapperFactory = Callable[[Callable[..., Any]], Callable[..., Any]]
    """Function that takes the original and returns its wrapper."""


def patch(owner: Any, name: str, make_wrapper: WrapperFactory) -> None:
    """Replace a function or method by `make_wrapper(original)`.

    Args:
        owner: a module or a class.
        name: name of the attribute of *owner*.
        make_wrapper: returns the wrapper of the original.
    """
    original = getattr(owner, name)
    wrapper: Any = functools.wraps(original)(make_wrapper(original))
    wrapper._torchdynamo_inline = original  # which torch.compile traces instead
    if isinstance(owner, types.ModuleType):  # pickle looks it up by this name
        wrapper.__module__, wrapper.__qualname__ = owner.__name__, name
    setattr(owner, name, wrapper)
