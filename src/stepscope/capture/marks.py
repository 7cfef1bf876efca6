"""Marks set by the user: annotations, steps, modes, scalars, batches.

Each costs about a microsecond at most, an annotation 0.3 while a run is recorded; none raises
because of the recording. Inside a function compiled by torch.compile they do nothing and cause no
graph break.
"""

from __future__ import annotations

import functools
import struct
import time

from stepscope.capture import session
from stepscope.capture.guard import describe
from stepscope.capture.session import DEPTH_MASK, Key, ThreadLogs, local, thread_logs
from stepscope.spool import ROLL_WORD, AnnotationBase, Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from typing import Any, Self, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])
    Item = TypeVar("Item")

_CO_GENERATOR, _CO_COROUTINE, _CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
_ASYNC_BIT = Flag.ASYNC << 16
_MARK_BIT = Flag.MARK << 16
_STEP_KEY = (Kind.STEP, "step", None)
_now = time.monotonic_ns

step_listeners: list[Callable[[], None]] = []
"""Callbacks after every explicit `step()`, recorded or not: adapters act on step boundaries."""


def _not_compiled(substitute: Callable[..., Any]) -> Callable[[Function], Function]:
    """Make torch.compile trace *substitute* instead of a mark."""

    def exclude(mark: Function) -> Function:
        mark._torchdynamo_inline = substitute  # type: ignore[attr-defined]
        return mark

    return exclude


def _return_none(*_: object, **__: object) -> None:
    pass


class _Unrecorded:
    """Substitute of an annotation inside a compiled function."""

    def __enter__(self) -> _Unrecorded:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, function: Function) -> Function:
        return function


def _annotate_nothing(name: str, /, **labels: Any) -> _Unrecorded:
    return _Unrecorded()


class Annotation(AnnotationBase):
    """An interval of the job: context manager and decorator, synchronous and asynchronous.

    Made by `annotate` and `mode`. `__enter__` and `__exit__` are those of the base class, which C
    has where it can.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _words: memoryview | None

    def __reduce__(self) -> tuple[Callable[[Key | str], Annotation], tuple[Key | str]]:
        """Return how a copy is made, which is not open in any thread."""
        return _make, (self._key,)

    async def __aenter__(self) -> Self:
        return self._start(0)

    async def __aexit__(self, *error: object) -> None:
        self._end()

    def _start(self, nests: int) -> Self:
        """Start an interval.

        Args:
            nests: 1 for an interval nested in those of the thread; 0 for an asynchronous one: other
                tasks run on the thread before it ends.
        """
        try:
            logs = local.logs
            if logs.generation != session.live:
                logs = thread_logs()
        except AttributeError:
            logs = thread_logs()
        if logs is None:
            return self
        try:
            meta = logs.metas[self._key]
        except KeyError:
            meta = logs.session.meta(self._key)
        next_index, words = logs.fine.cursor
        i = next_index()
        if i >= ROLL_WORD:
            words, i = logs.fine.roll(words, i)
        # The end stays 0 meanwhile, as in every new segment.
        words[i + 2] = meta | logs.depth & DEPTH_MASK if nests else meta | _ASYNC_BIT
        words[i] = _now()
        logs.depth += nests
        if self._logs is None:
            self._reopened = False
            self._logs = logs
            self._words = words
            self._index = i
            self._nests = nests
        else:  # one object may be open several times, in one or several threads
            self._reopened = True
            logs.open[self] = words, i, nests, logs.open.get(self)
        return self

    def _end(self) -> None:
        """End the interval that this thread started last, else one started by another thread."""
        logs = self._logs
        if logs is None:
            return
        words: memoryview | None
        if self._reopened:
            words, i, nests, logs = self._take_interval(logs)
        else:
            self._logs = None
            words, i, nests = self._words, self._index, self._nests
        if words is not None and logs.generation == session.generation:
            words[i + 1] = _now()
            logs.depth -= nests

    def _take_interval(self, first: ThreadLogs) -> tuple[memoryview | None, int, int, ThreadLogs]:
        """Take the interval to end from those of an object that was open several times at once.

        From then on `_logs` stays set, so that further intervals are found here.
        """
        logs: ThreadLogs = getattr(local, "logs", first)
        if self in logs.open:
            words, i, nests, outer = logs.open.pop(self)
            if outer is not None:
                logs.open[self] = outer
            return words, i, nests, logs
        first_words, self._words = self._words, None
        return first_words, self._index, self._nests, first

    def __call__(self, function: Function) -> Function:
        make_annotation = functools.partial(_make, self._key)  # calls may overlap
        code_flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        wrap = _wrap_function
        if code_flags & _CO_COROUTINE:
            wrap = _wrap_coroutine
        elif code_flags & _CO_ASYNC_GENERATOR:
            wrap = _wrap_async_generator
        elif code_flags & _CO_GENERATOR:
            wrap = _wrap_generator
        annotated: Function = wrap(function, make_annotation)
        annotated._torchdynamo_inline = function  # type: ignore[attr-defined]
        return annotated


_make, _make_named = Annotation.make, Annotation.named


@_not_compiled(_annotate_nothing)
def annotate(name: str, /, **labels: Any) -> Annotation:
    """Name an interval of the job.

        with stepscope.annotate("tokenise", language="de"):
            ...

        @stepscope.annotate("collate")
        def collate(samples): ...

    Args:
        name: name of the interval; durations of one name are summed and shown as a histogram.
        labels: stored with the interval. Distinct sets of labels are interned, so use labels with
            few values (a language, a bucket), not a running number.

    Returns:
        A context manager and decorator, synchronous and asynchronous.
    """
    if labels:
        return _make(_make_key(Kind.ANNOTATION, name, labels))
    return _make_named(name)


@_not_compiled(_annotate_nothing)
def mode(name: str, /, **labels: Any) -> Annotation:
    """Name a region of the job in one mode: `with stepscope.mode("EVAL"): ...`.

    TRAIN, EVAL and PREDICT have a meaning; other names are stored unchanged. It overrides the mode
    that stepscope infers from disabled gradients.
    """
    return _make(_make_key(Kind.MODE, name, labels))


class Span:
    """An open interval, returned by `annotation_begin`."""

    __slots__ = ("_annotation",)

    def __init__(self, annotation: Annotation) -> None:
        self._annotation = annotation

    def end(self) -> None:
        """End the interval; a second call does nothing."""
        self._annotation.__exit__()


def annotation_begin(name: str, /, **labels: Any) -> Span:
    """Start a named interval; pass the result to `annotation_end`."""
    return Span(annotate(name, **labels).__enter__())


def annotation_end(span: Span) -> None:
    """End the interval that `annotation_begin` returned."""
    span.end()


@_not_compiled(_return_none)
def step(number: int = -1) -> None:
    """Mark the end of a training step.

    Steps marked by the script take precedence over the steps that stepscope detects.

    Args:
        number: step number of the script, if it counts steps.
    """
    value = int(number) & 0xFFFF_FFFF_FFFF_FFFF
    logs = thread_logs()
    if logs is not None:
        meta = logs.metas.get(_STEP_KEY) or logs.session.meta(_STEP_KEY)
        logs.coarse.write(meta | _MARK_BIT | logs.depth & DEPTH_MASK, _now(), 0, value)
    for listener in step_listeners:
        listener()


def steps(iterable: Iterable[Item]) -> Iterator[Item]:
    """Iterate over batches, one step per batch: `for batch in stepscope.steps(loader):`."""
    for number, item in enumerate(iterable):
        yield item
        step(number)


@_not_compiled(_return_none)
def scalar(name: str, value: float) -> None:
    """Record a number, such as a loss or a learning rate, with the current time.

    A value that is not a number is skipped: recording must not make a script fail.
    """
    logs = thread_logs()
    if logs is None:
        return
    try:
        number = float(value.detach() if hasattr(value, "detach") else value)
        (bits,) = struct.unpack("=Q", struct.pack("=d", number))
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: from PyTorch
        return
    key = (Kind.SCALAR, str(name), None)
    meta = logs.metas.get(key) or logs.session.meta(key)
    logs.fine.write(meta | _MARK_BIT, _now(), 0, bits)


@_not_compiled(_return_none)
def record(
    *,
    labels: Any = None,
    predictions: Any = None,
    inputs: Any = None,
    name: str | None = None,
    mode: str | None = None,
) -> None:
    """Record counts of the classes of a batch, its tokens, and the channels of its images.

        stepscope.record(labels=y, predictions=logits, inputs=x)

    Requested with the collections `labels`, `predictions` and `inputs` of `--tensors` or `watch`;
    without them it does nothing. Arguments are tensors of PyTorch, arrays of NumPy or sequences,
    and stay as they are. What cannot be recorded is left out, and noted in the run.

    Args:
        labels: numbers of the true classes; negative ones are ignored, such as -100.
        predictions: numbers of the predicted classes in the shape of the labels, or a score for
            each class in the last dimension or in the second one.
        inputs: tokens, as whole numbers in up to three dimensions, or images, in four.
        name: name of the data; the mode in lower case by default.
        mode: TRAIN, EVAL or PREDICT; EVAL by default where PyTorch computes no gradients, else
            TRAIN.
    """
    if not session.live or session.current() is None:
        return
    from stepscope.capture import batches  # only in processes that record

    batches.add(labels, predictions, inputs, name, mode)


def _make_key(kind: int, name: str, labels: dict[str, Any]) -> Key:
    return kind, str(name), _as_json(labels) if labels else None


def _as_json(labels: dict[str, Any]) -> str:
    try:
        import json
    except (ImportError, OSError):  # the job has no free file descriptor
        return "{}"
    try:
        return json.dumps(labels, default=describe)
    except (TypeError, ValueError, RecursionError):  # a key that JSON cannot encode, or a cycle
        return json.dumps({label: describe(value) for label, value in labels.items()})


def _wrap_function(function: Callable[..., Any], make_annotation: Callable[[], Annotation]) -> Any:
    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with make_annotation():
            return function(*args, **kwargs)

    return annotated


def _wrap_coroutine(function: Callable[..., Any], make_annotation: Callable[[], Annotation]) -> Any:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> Any:
        async with make_annotation():
            return await function(*args, **kwargs)

    return annotated


def _wrap_async_generator(
    function: Callable[..., Any], make_annotation: Callable[[], Annotation]
) -> Any:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with make_annotation():
            generator = function(*args, **kwargs)
            advance = generator.__anext__()
            while True:  # equivalent of `yield from`, which async generators do not support
                try:
                    item = await advance
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - passed on to the generator
                    advance = generator.athrow(error)
                else:
                    advance = generator.asend(sent)

    return annotated


def _wrap_generator(function: Callable[..., Any], make_annotation: Callable[[], Annotation]) -> Any:
    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        annotation = make_annotation()._start(0)
        try:
            return (yield from function(*args, **kwargs))
        finally:
            annotation.__exit__()

    return annotated
