"""Import hooks: callbacks after the import of a module."""

from __future__ import annotations

import sys

from stepscope.capture.guard import Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

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
