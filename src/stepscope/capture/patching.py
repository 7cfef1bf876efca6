"""Transparent replacement of functions of a framework by wrappers.

A wrapper is pickled under the name of the original and has its signature.
"""

from __future__ import annotations

import functools
import inspect
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


def patch_in_place(function: Any, make_wrapper: WrapperFactory) -> None:
    """Let a function call `make_wrapper(original)`, and stay the same object.

    For functions that are compared by identity, also with those that a script has bound before.

    Args:
        function: function of a module; of a decorated one, the function inside is changed.
        make_wrapper: returns the wrapper of the original.

    Raises:
        ValueError: it has variables of an outer function.
    """
    function = inspect.unwrap(function)
    code = function.__code__
    original: Any = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(original, function)
    original.__kwdefaults__ = function.__kwdefaults__
    del original.__wrapped__
    wrapper: Any = make_wrapper(original)
    wrapper._torchdynamo_inline = original
    call = _call_wrapper.__code__.replace(
        co_name=code.co_name,
        **({"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}),
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )
    function.__wrapped__ = original  # has the signature
    function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "_wrapper": wrapper}
    function.__code__ = call


def _call_wrapper(*args: Any, _wrapper: Callable[..., Any], **kwargs: Any) -> Any:
    return _wrapper(*args, **kwargs)
