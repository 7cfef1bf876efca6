"""Transparent replacement of functions of a framework, and callbacks after an import.

A wrapper is pickled under the name of the original and has its signature.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types

from stepscope.capture.guard import Probe

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any
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
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )
    function.__wrapped__ = original  # has the signature
    function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "_wrapper": wrapper}
    function.__code__ = call


def _call_wrapper(*args: Any, _wrapper: Callable[..., Any], **kwargs: Any) -> Any:
    return _wrapper(*args, **kwargs)


_probe = Probe("framework imports")
_actions: dict[str, list[Callable[[], None]]] = {}


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call *action* once, after module *name* has been executed; immediately if it already was.
    Actions of one module are called in the order in which they were registered.

    An exception of *action* is noted in the run and otherwise ignored.
    """
    if name in sys.modules:
        _probe.protect(action)()
        return
    _actions.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Meta path finder that delegates to the other finders and hooks the loader they return."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _actions:
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec: ModuleSpec | None = find_spec(fullname, path, target)
            if spec is not None:
                _hook(spec.loader, fullname)
                return spec
        return None


def _hook(loader: Any, name: str) -> None:
    """Shadow `exec_module` on the loader instance, so that the class of the loader is unchanged."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            del loader.exec_module
        except AttributeError:
            pass
        actions = _actions.pop(name, [])
        if not _actions and _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        for action in actions:
            _probe.protect(action)()

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader without instance attributes: the framework is not recorded
        pass


_finder = _Finder()
