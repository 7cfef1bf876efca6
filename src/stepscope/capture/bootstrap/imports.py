"""Call something right after a module has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from stepscope.capture.guard import Probe

_probe = Probe("importing frameworks")
_actions: dict[str, Callable[[], None]] = {}


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call *action* once, when module *name* has been executed; at once if it has been already.

    What *action* raises is noted in the run and otherwise ignored.
    """
    if name in sys.modules:
        _probe.protect(action)()
        return
    _actions[name] = action
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    """Finds nothing itself: lets the other finders find, and hooks the loader they return."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _actions:
            return None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    break
        else:
            return None
        if spec.loader is not None:
            _hook(spec.loader, fullname)
        return spec


def _hook(loader: Loader, name: str) -> None:
    """Shadow the loader's `exec_module` on the instance, so that it stays what it is."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> Any:
        execute(module)
        try:
            del loader.exec_module
        except AttributeError:
            pass
        action = _actions.pop(name, None)
        if not _actions and _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        if action is not None:
            _probe.protect(action)()

    try:
        loader.exec_module = exec_module  # type: ignore[method-assign]
    except AttributeError:  # a loader that takes no attributes: this framework goes unwatched
        pass


_finder = _Finder()
