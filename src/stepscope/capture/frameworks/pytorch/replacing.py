"""Replacing a function of PyTorch by one of ours, so that nobody else notices.

Nobody: not what pickles the function by its name, not what asks for its signature, and not
torch.compile. Where the compiler traces a call of ours it takes the original instead; where it
would compile a frame of ours (under a compiled function that calls back into Python), it leaves
that frame alone and goes on with what the frame calls.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Given the original, makes what stands in for it."""

OWN_PACKAGES = ("stepscope.capture.", "stepscope.spool.")


def replace(owner: Any, name: str, make: Make) -> None:
    """Put `make(original)` in the place of a function or method.

    Args:
        owner: a module or a class.
        name: of its attribute.
        make: makes the stand-in.
    """
    original = getattr(owner, name)
    wrapper: Any = functools.wraps(original)(make(original))
    wrapper._torchdynamo_inline = original
    if isinstance(owner, types.ModuleType):  # it is pickled as what is found there
        wrapper.__module__, wrapper.__qualname__ = owner.__name__, name
    setattr(owner, name, wrapper)


def hide_from_compiler() -> None:
    """Tell torch.compile to leave the frames of our functions alone."""
    skip_code = _find_skip_code()
    if skip_code is None:
        return
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(OWN_PACKAGES):
            for code in _codes_of(vars(module), module_name):
                skip_code(code)


def _find_skip_code() -> Callable[[types.CodeType], None] | None:
    """The compiler's own way to skip a frame, without importing the compiler's Python part."""
    compiler: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(compiler, "set_code_exec_strategy"):
        skip, proceed = compiler._FrameAction.SKIP, compiler._FrameAction.DEFAULT
        strategy = compiler._FrameExecStrategy(skip, proceed)
        return functools.partial(_set_strategy, compiler.set_code_exec_strategy, strategy)
    older: Callable[[types.CodeType], None] | None = getattr(compiler, "skip_code", None)
    return older


def _set_strategy(set_strategy: Callable[..., None], strategy: Any, code: types.CodeType) -> None:
    set_strategy(code, strategy)


def _codes_of(namespace: Any, module_name: str) -> Iterator[types.CodeType]:
    """The code of the functions and methods of one module, and of those they make."""
    for value in list(namespace.values()):
        held = getattr(value, "__func__", value)  # static and class methods
        held = getattr(held, "fget", held)
        if isinstance(held, types.FunctionType):
            yield from _with_inner(held.__code__)
        elif isinstance(held, type) and held.__module__ == module_name:
            yield from _codes_of(vars(held), module_name)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)
