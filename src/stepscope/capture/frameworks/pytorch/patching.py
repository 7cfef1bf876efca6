"""Wrappers that are invisible to torch.compile, and reading of the job's objects.

If the compiler traces a call of a wrapper, it inlines the original; if it would compile a frame of
stepscope (under a compiled function that calls back into Python), it skips that frame and continues
with the functions that the frame calls.

Reading of the job's objects without running their code. A property, `__getattr__`, `__len__`,
`__bool__` or `__fspath__` of a class of the job may raise, take memory, download a file or hang,
and in the thread of the job nothing can interrupt it. So what such code would tell stays unknown.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import PosixPath
from typing import TYPE_CHECKING, Any

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.patching import patch, patch_in_place

if TYPE_CHECKING:
    from stepscope.capture.patching import WrapperFactory

STEPSCOPE_PACKAGES = ("stepscope.capture.", "stepscope.spool.")

is_compiling: Callable[[], bool] = PYTORCH.find("is_compiling") or (lambda: False)
"""Tells whether torch.compile traces the caller. A release that cannot tell (before 2.3) traces the
originals of patched functions all the same."""
without_functions: Callable[[], AbstractContextManager[None]] = (
    PYTORCH.find("no_functions") or contextlib.nullcontext
)
"""Context in which the script's overrides of functions of torch are not called."""


def count_bytes(tensor: Any) -> int:
    """Return the size of the elements of a tensor; its `nbytes` is missing before PyTorch 2.0."""
    return int(tensor.numel() * tensor.element_size())


def patch_internal(name: str, make_wrapper: WrapperFactory) -> None:
    """Replace a function or method by `make_wrapper(original)`, if this release has it.

    Args:
        name: its name in the table of PyTorch.
        make_wrapper: returns the wrapper of the original.
    """
    owner = PYTORCH.owner(name)
    if owner is not None:
        patch(*owner, make_wrapper)


def hide_from_compiler() -> None:
    """Make torch.compile skip the frames of stepscope's functions."""
    skip_code = _find_skip_code()
    if skip_code is None:
        return
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(STEPSCOPE_PACKAGES):
            for code in _codes_of(vars(module), module_name):
                skip_code(code)


def _find_skip_code() -> Callable[[types.CodeType], None] | None:
    """Return the compiler's function to skip a frame, without importing its Python part."""
    owner = PYTORCH.owner("skip_code")
    if owner is None:
        return None
    compiler: Any = owner[0]
    if hasattr(compiler, "set_code_exec_strategy"):
        skip, proceed = compiler._FrameAction.SKIP, compiler._FrameAction.DEFAULT
        strategy = compiler._FrameExecStrategy(skip, proceed)
        return functools.partial(_set_strategy, compiler.set_code_exec_strategy, strategy)
    skip_code: Callable[[types.CodeType], None] = compiler.skip_code
    return skip_code  # older releases


def _set_strategy(set_strategy: Callable[..., None], strategy: Any, code: types.CodeType) -> None:
    set_strategy(code, strategy)


def _codes_of(namespace: Any, module_name: str) -> Iterator[types.CodeType]:
    """Yield the code of the functions and methods of one module, and of their inner functions."""
    for value in list(namespace.values()):
        function = getattr(value, "__func__", value)  # static and class methods
        function = getattr(function, "fget", function)
        if isinstance(function, functools._lru_cache_wrapper):  # not a Python function
            function = function.__wrapped__
        if isinstance(function, types.FunctionType):
            yield from _with_inner(function.__code__)
        elif isinstance(function, type) and function.__module__ == module_name:
            yield from _codes_of(vars(function), module_name)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


_FUNCTIONS = {types.FunctionType, types.MethodType, types.BuiltinFunctionType, type}


def patch_grad_scaler(name: str, make_wrapper: WrapperFactory) -> None:
    """Replace a method of GradScaler by `make_wrapper(original)`, if this release has the class."""
    scaler = PYTORCH.find("grad_scaler")
    if scaler is not None:
        patch(scaler, name, make_wrapper)


def read_attribute(owner: object, name: str) -> Any:
    """Return an attribute that is stored in an object or its class; None if there is none, or if it
    is computed."""
    attributes = _attributes_of(owner)
    if name in attributes:
        return attributes[name]
    for base in type(owner).__mro__:
        if name in vars(base):
            value = vars(base)[name]
            return None if hasattr(type(value), "__get__") else value
    return None


def name_of(function: Any) -> str:
    """Return the qualified name of a function, the name of the class of any other callable."""
    return str(function.__qualname__) if type(function) in _FUNCTIONS else type(function).__name__


def read_path(path: object) -> str | None:
    """Return the path of a local file; None for objects of other classes, whose `__fspath__` may
    fetch a file."""
    if type(path) is PosixPath:
        return str(path)
    return path if type(path) is str else None


def _attributes_of(owner: object) -> dict[str, Any]:
    try:
        attributes = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


__all__ = [
    "count_bytes",
    "hide_from_compiler",
    "is_compiling",
    "patch",
    "patch_grad_scaler",
    "patch_in_place",
    "patch_internal",
    "without_functions",
]
