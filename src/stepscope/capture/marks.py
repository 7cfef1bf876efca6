"""The user's own marks: annotations, steps, modes, scalars.

All of them cost about a microsecond while a run records and less while none does; none ever
raises because of the recording. Inside a function that torch.compile compiles they do nothing,
and break no graph.
"""

from __future__ import annotations

import functools
import struct
import time

from stepscope.capture import session
from stepscope.capture.session import DEPTH_MASK, ThreadLogs, local, thread_logs
from stepscope.spool import ROLL_WORD, Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])
    Item = TypeVar("Item")

_CO_GENERATOR, _CO_COROUTINE, _CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
_ASYNC_BIT = Flag.ASYNC << 16
_MARK_BIT = Flag.MARK << 16
_STEP_KEY = (Kind.STEP, "step", None)
_now = time.monotonic_ns

step_listeners: list[Callable[[], None]] = []
"""Called after every explicit `step()`: adapters act on step boundaries."""


def _not_compiled(stand_in: Callable[..., Any]) -> Callable[[Function], Function]:
    """Have torch.compile trace *stand_in* in the place of a mark."""

    def leave_out(mark: Function) -> Function:
        mark._torchdynamo_inline = stand_in  # type: ignore[attr-defined]
        return mark

    return leave_out


def _nothing(*_: object) -> None:
    pass


def _itself(mark: annotate, *_: object) -> annotate:
    return mark


def _no_labels(_: object) -> str:
    return "{}"


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
        text = name if type(name) is str else str(name)
        self._key = (self._kind, text, _as_json(labels) if labels else None)
        self._logs: ThreadLogs | None = None

    async def __aenter__(self) -> annotate:
        return self.__enter__(0)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__()

    @_not_compiled(_itself)
    def __enter__(self, nests: int = 1) -> annotate:
        """Begin an interval.

        Args:
            nests: 1 inside the thread's tree, 0 beside it: others run on the thread before this
                one ends.
        """
        live = session.live
        if not live:
            return self
        try:
            logs = local.logs
            if logs.generation != live:
                logs = thread_logs()
        except AttributeError:
            logs = thread_logs()
        if logs is None:
            return self
        try:
            meta = logs.metas[self._key]
        except KeyError:
            meta = logs.session.meta(self._key)
        take, words = logs.fine.place
        i = take()
        if i >= ROLL_WORD:
            words, i = logs.fine.roll(words, i)
        words[i + 1] = 0
        words[i + 2] = meta | logs.depth & DEPTH_MASK if nests else meta | _ASYNC_BIT
        words[i] = _now()
        logs.depth += nests
        if self._logs is None:
            self._logs = logs
            self._words = words
            self._index = i
            self._nests = nests
        else:  # one object may be open several times, in one thread or in several
            logs.open[self] = words, i, nests, logs.open.get(self)
        return self

    @_not_compiled(_nothing)
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """End the interval that this thread began last, else one that another thread began."""
        try:
            own: ThreadLogs = local.logs
            if own.open and self in own.open:
                self._end_again(own)
                return
        except AttributeError:
            pass
        logs = self._logs
        if logs is not None:
            self._logs = None
            if logs.generation == session.generation:
                self._words[self._index + 1] = _now()
                logs.depth -= self._nests

    def _end_again(self, logs: ThreadLogs) -> None:
        """End one that this thread began while the object was open already."""
        words, i, nests, outer = logs.open.pop(self)
        if outer is not None:
            logs.open[self] = outer
        if logs.generation == session.generation:
            words[i + 1] = _now()
            logs.depth -= nests

    def __call__(self, function: Function) -> Function:
        make = functools.partial(_copy, self)
        code_flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        wrap = _wrap_function
        if code_flags & _CO_COROUTINE:
            wrap = _wrap_coroutine
        elif code_flags & _CO_ASYNC_GENERATOR:
            wrap = _wrap_async_generator
        elif code_flags & _CO_GENERATOR:
            wrap = _wrap_generator
        annotated: Function = wrap(function, make)
        annotated._torchdynamo_inline = function  # type: ignore[attr-defined]
        return annotated


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
        self._annotation.__exit__()


def annotation_begin(name: str, /, **labels: Any) -> Span:
    """Begin a named interval that ends where `annotation_end` is given the result."""
    return Span(annotate(name, **labels).__enter__())


def annotation_end(span: Span) -> None:
    """End the interval that `annotation_begin` returned."""
    span.end()


@_not_compiled(_nothing)
def step(number: int = -1) -> None:
    """Say that a training step ends here.

    Where a script says it, stepscope takes the script's word over its own conclusions.

    Args:
        number: the script's own step number, if it has one.
    """
    value = int(number) & 0xFFFF_FFFF_FFFF_FFFF
    logs = thread_logs()
    if logs is None:
        return
    meta = logs.metas.get(_STEP_KEY) or logs.session.meta(_STEP_KEY)
    logs.coarse.write(meta | _MARK_BIT | logs.depth & DEPTH_MASK, _now(), 0, value)
    for listener in step_listeners:
        listener()


def steps(iterable: Iterable[Item]) -> Iterator[Item]:
    """Iterate over batches, one training step each: `for batch in stepscope.steps(loader):`."""
    for number, item in enumerate(iterable):
        yield item
        step(number)


@_not_compiled(_nothing)
def scalar(name: str, value: float) -> None:
    """Record a number, such as a loss or a learning rate, at this moment.

    What is no number is left out: a script must not fail only because it is being recorded.
    """
    logs = thread_logs()
    if logs is None:
        return
    try:
        number = float(value.detach() if hasattr(value, "detach") else value)
        (bits,) = struct.unpack("=Q", struct.pack("=d", number))
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one is PyTorch's
        return
    key = (Kind.SCALAR, str(name), None)
    meta = logs.metas.get(key) or logs.session.meta(key)
    logs.fine.write(meta | _MARK_BIT, _now(), 0, bits)


@_not_compiled(_no_labels)
def _as_json(labels: dict[str, Any]) -> str:
    try:
        import json
    except (ImportError, OSError):  # a job without a descriptor to spare
        return "{}"
    try:
        return json.dumps(labels, default=repr)
    except (TypeError, ValueError, RecursionError):  # a key that JSON has not, or a circle
        return json.dumps({label: repr(value) for label, value in labels.items()})


def _copy(original: annotate) -> annotate:
    """A fresh interval for each call of a decorated function: calls may overlap."""
    annotation = object.__new__(type(original))
    annotation._key = original._key
    annotation._logs = None
    return annotation


def _wrap_function(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return annotated


def _wrap_coroutine(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> Any:
        async with make():
            return await function(*args, **kwargs)

    return annotated


def _wrap_async_generator(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with make():
            generator = function(*args, **kwargs)
            advance = generator.__anext__()
            while True:  # what `yield from` would do, if it were allowed here
                try:
                    item = await advance
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                    advance = generator.athrow(error)
                else:
                    advance = generator.asend(sent)

    return annotated


def _wrap_generator(function: Callable[..., Any], make: Callable[[], annotate]) -> Any:
    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        annotation = make().__enter__(0)
        try:
            return (yield from function(*args, **kwargs))
        finally:
            annotation.__exit__()

    return annotated
