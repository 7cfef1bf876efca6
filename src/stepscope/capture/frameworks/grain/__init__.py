"""Input pipelines of Grain: waits for batches at the outermost iterator.

Every pipeline, that of a `DataLoader` too, gets a last stage from Grain itself, which makes the
iterator that the script calls. Its class is replaced by a subclass of the same name, so that the
iterators inside it, in prefetch threads and in worker processes are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.capture import session
from stepscope.capture.frameworks.progress import start_iterator, take_batch
from stepscope.capture.frameworks.tables import GRAIN
from stepscope.capture.guard import Probe

_probe = Probe("waiting for batches of Grain", coarse=True)
_timed_classes: dict[type, type] = {}


@_probe.protect
def install() -> None:
    """Patch the last stage of pipelines."""
    GRAIN.patch("output", _timed_iter)


def _timed_iter(original: Callable[..., Any]) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:  # noqa: N807
        if not session.live or _is_in_worker():
            return original(self)
        iterator = start_iterator(_probe, "grain", lambda: original(self))
        _watch(iterator)
        return iterator

    return __iter__


def _is_in_worker() -> bool:
    is_in_worker = GRAIN.find("is_in_worker")  # of a module that is loaded later
    return is_in_worker is not None and bool(is_in_worker())


@_probe.protect
def _watch(iterator: Any) -> None:
    iterator_class = type(iterator)
    if iterator_class not in _timed_classes.values():
        if iterator_class not in _timed_classes:
            _timed_classes[iterator_class] = _make_timed(iterator_class)
        iterator.__class__ = _timed_classes[iterator_class]


def _make_timed(iterator_class: Any) -> Any:
    def __next__(self: Any) -> Any:  # noqa: N807
        if not session.live:
            return iterator_class.__next__(self)
        return take_batch(_probe, "grain", lambda: iterator_class.__next__(self))

    attributes = {
        "__next__": __next__,
        "__module__": iterator_class.__module__,
        "__qualname__": iterator_class.__qualname__,
        "__doc__": iterator_class.__doc__,
    }
    return type(iterator_class)(iterator_class.__name__, (iterator_class,), attributes)
