"""The user's own marks: annotations, steps, modes, scalars.

All of them cost about a microsecond while a run records and less while none does; none ever
raises because of the recording.
"""

from __future__ import annotations

import functools
import json
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar, cast

from stepscope.capture import session
from stepscope.capture.session import ThreadLogs, local, thread_logs
from stepscope.spool import Flag, Kind

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item")

_CO_GENERATOR, _CO_COROUTINE, _CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
_ASYNC_BIT = Flag.ASYNC << 16
_MARK_BIT = Flag.MARK << 16
_STEP_KEY = (Kind.STEP, "step", None)
_now = time.monotonic_ns

step_listeners: list[Callable[[], None]] = []
"""Called after every explicit `step()`: adapters act on step boundaries."""


class annotate:  # noqa: N801 - reads as the verb it is: `with annotate("augment"):`
    """A named interval of the job: context manager and decorator, plain and asynchronous.

        with stepscope.annotate("tokenise", language="de"):
            ...

        @stepscope.annotate("collate")
        def collate(samples): ...

    Args:
        name: what to call it; intervals of one name are summed and can be drawn as a histogram.
        labels: kept with the interval. Distinct sets of labels are interned, so give them few
            values (a language, a bucket), not a running number.
    """

    __slots__ = ("_index", "_key", "_logs", "_nests", "_words")

    _kind: int = Kind.ANNOTATION

    def __init__(self, name: str, /, **labels: Any) -> None:
        self._key = (self._kind, name, json.dumps(labels, default=repr) if labels else None)
        self._logs: ThreadLogs | None = None
        self._nests = 1

    def __enter__(self) -> annotate:
        try:
            logs = local.logs
        except AttributeError:
            logs = thread_logs()
        if logs is None or not session.recording:
            return self
        try:
            meta = logs.metas[self._key]
        except KeyError:
            meta = logs.session.meta(self._key)
        log = logs.fine
        i = log.take()
        if i >= log.limit:
            i = log.roll()
        words = log.words
        words[i + 1] = 0
        words[i + 2] = meta | logs.depth if self._nests else meta | _ASYNC_BIT
        words[i] = _now()
        logs.depth += self._nests
        self._words = words
        self._index = i
        self._logs = logs
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logs = self._logs
        if logs is not None:
            self._logs = None
            if logs.generation == session.generation:
                self._words[self._index + 1] = _now()
                logs.depth -= self._nests

    async def __aenter__(self) -> annotate:
        return self._beside().__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def _beside(self) -> annotate:
        """Stand beside the thread's tree: others run on the thread before this one ends."""
        self._nests = 0
        return self

    def __call__(self, function: Function) -> Function:
        make = functools.partial(_copy, self)
        code_flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if code_flags & _CO_COROUTINE:
            return cast(Function, _wrap_coroutine(function, make))
        if code_flags & _CO_ASYNC_GENERATOR:
            return cast(Function, _wrap_async_generator(function, make))
        if code_flags & _CO_GENERATOR:
            return cast(Function, _wrap_generator(function, make))

        @functools.wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with make():
                return function(*args, **kwargs)

        return cast(Function, annotated)


class mode(annotate):  # noqa: N801 - a verb of the user's, like `annotate`
    """A region of the job in one mode: `with stepscope.mode("EVAL"): ...`.

    TRAIN, EVAL and PREDICT are understood; other names are kept as they are. It overrides what
    stepscope would conclude from gradients being off.
    """

    __slots__ = ()
    _kind: int = Kind.MODE


class Span:
    """What `annotation_begin` returns: an interval that is still open."""

    __slots__ = ("_annotation",)

    def __init__(self, annotation: annotate) -> None:
        self._annotation = annotation

    def end(self) -> None:
        """End the interval; a second call does nothing."""
        self._annotation.__exit__(None, None, None)


def annotation_begin(name: str, /, **labels: Any) -> Span:
    """Begin a named interval that ends where `annotation_end` is given the result."""
    return Span(annotate(name, **labels).__enter__())


def annotation_end(span: Span) -> None:
    """End the interval that `annotation_begin` returned."""
    span.end()


def step(number: int = -1) -> None:
    """Say that a training step ends here.

    Where a script says it, stepscope takes the script's word over its own conclusions.

    Args:
        number: the script's own step number, if it has one.
    """
    logs = thread_logs()
    if logs is None:
        return
    meta = logs.metas.get(_STEP_KEY) or logs.session.meta(_STEP_KEY)
    logs.coarse.write(meta | _MARK_BIT | logs.depth, _now(), 0, number & 0xFFFF_FFFF_FFFF_FFFF)
    for listener in step_listeners:
        listener()


def steps(iterable: Iterable[Item]) -> Iterator[Item]:
    """Iterate over batches, one training step each: `for batch in stepscope.steps(loader):`."""
    for number, item in enumerate(iterable):
        yield item
        step(number)


def scalar(name: str, value: float) -> None:
    """Record a number, such as a loss or a learning rate, at this moment."""
    logs = thread_logs()
    if logs is None:
        return
    key = (Kind.SCALAR, name, None)
    meta = logs.metas.get(key) or logs.session.meta(key)
    (bits,) = struct.unpack("=Q", struct.pack("=d", value))
    logs.fine.write(meta | _MARK_BIT, _now(), 0, bits)


def _copy(original: annotate) -> annotate:
    """A fresh interval for each call of a decorated function: calls may overlap."""
    annotation = object.__new__(type(original))
    annotation._key = original._key
    annotation._logs = None
    annotation._nests = 1
    return annotation


def _wrap_coroutine(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> Any:
        async with make():
            return await function(*args, **kwargs)

    return annotated


def _wrap_async_generator(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> Any:
        async with make():
            async for item in function(*args, **kwargs):
                yield item

    return annotated


def _wrap_generator(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with make()._beside():
            return (yield from function(*args, **kwargs))

    return annotated
