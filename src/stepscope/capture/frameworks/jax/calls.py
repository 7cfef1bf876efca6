"""Calls of functions that the script compiles with `jax.jit`, their compilations, and steps.

A call returns before the device has computed: its duration is that of dispatching the computation,
and of compiling it if it is new. Steps are those that the script marks. Without marks, each call of
one function ends a step: the one that returns the most state, of those that are called regularly.
`analysis.steps.evaluation` finds that function again, with knowledge of the whole run.

Compilations, from the events that JAX reports through `jax.monitoring`. A new function, or an old
one for new shapes, types or static arguments, is traced, lowered and compiled, one after the other;
each reports its duration when it ends. The three are one interval.
"""

from __future__ import annotations

import functools
import operator
import time
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.core import Tracer
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, tree_flatten_with_path, tree_leaves

from stepscope.capture import session
from stepscope.capture.frameworks.jax import device_times
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.tables import JAX
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

MIN_CALL_RATIO = 1 / 64
"""Functions that are called less often than this share of the most often called one that returns
state do not train."""

_probe = Probe("calls of compiled functions", coarse=True)
_now = time.monotonic_ns


@_probe.protect
def install() -> None:
    """Replace `jax.jit`, and time what is compiled ahead of time."""
    is_outermost = JAX.find("trace_state_clean")
    if is_outermost is not None:
        Function.is_outermost = staticmethod(is_outermost)
    patch(jax, "jit", _recording_jit)
    patch(jax.stages.Compiled, "__call__", _timed_compiled)


def has_calls() -> bool:
    """Return True if the process has called compiled functions."""
    return any(calls.call_count for calls in _calls.values())


class Calls:
    """Calls of the functions of one name, whose records cannot be told apart."""

    __slots__ = ("call_count", "state_bytes", "state_call_count")

    def __init__(self) -> None:
        self.call_count = 0
        self.state_call_count = 0
        """Calls that returned state."""
        self.state_bytes = 0
        """State that a call returned, the most of all calls."""


_calls: dict[str, Calls] = {}
_training_calls: Calls | None = None
"""Calls of the function that trains, as of the last call of another one that returned state."""


def _is_unknown() -> bool:
    return True


class Function:
    """Compiled function, whose calls are recorded.

    Args:
        original: the function.
        name: its name in the records.
    """

    is_outermost: Callable[[], bool] = staticmethod(_is_unknown)
    """True outside of the transformations of JAX, or if that is seen from the arguments alone."""

    def __init__(self, original: Any, name: str) -> None:
        self._original = original
        self._name = name
        self._calls = _calls.setdefault(name, Calls())
        self._shape = NOT_DESCRIBED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original and record the call, in one frame of Python: it is cold in a job."""
        original = self._original
        if not session.live or not self.is_outermost():
            return original(*args, **kwargs)
        if self.is_outermost is _is_unknown and _has_tracers((args, kwargs)):
            return original(*args, **kwargs)
        progress.notify_work_start()
        compilation_count = counter.count
        start_ns = _now()
        span = _probe.start(Kind.DISPATCH, self._name)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            _probe.abandon(span)
            raise
        if span is None:
            return result
        if not _probe.alive:  # a call of another thread has failed meanwhile
            _probe.abandon(span)
            return result
        try:
            array = self._shape.find_result(result)
            shape = self._shape
            if array is None and (shape.steps is not None or shape is NOT_DESCRIBED):
                # The first result, or one of another structure.
                shape = self._shape = describe_call((args, kwargs), result)
                array = shape.find_result(result)
            _probe.end(span, value=shape.state_bytes)
            span = None
            calls = self._calls
            calls.call_count += 1
            is_new = counter.count != compilation_count
            device_times.times.observe(array, None if is_new else start_ns)
            if state_bytes := shape.state_bytes:
                calls.state_call_count += 1
                if calls is not _training_calls or state_bytes > calls.state_bytes:
                    _note_state(calls, state_bytes)
                if calls is _training_calls:
                    progress.notify_optimizer_step()
        except Exception as error:  # noqa: BLE001 - the guard
            _probe.end(span)
            _probe.fail(error)
        return result


def _note_state(calls: Calls, state_bytes: int) -> None:
    """Note a call that returned more state than those before, or another function's than the one
    that trains; its further calls change nothing."""
    global _training_calls
    calls.state_bytes = max(calls.state_bytes, state_bytes)
    _training_calls = _find_training_calls()


def _find_training_calls() -> Calls:
    limit = MIN_CALL_RATIO * max(calls.state_call_count for calls in _calls.values())
    regular = [calls for calls in _calls.values() if calls.state_call_count >= limit]
    return max(regular, key=lambda calls: (calls.state_bytes, calls.state_call_count))


def _has_tracers(arguments: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in tree_leaves(arguments))


class JittedFunction(Function):
    """Stand-in for a function that `jax.jit` has returned, which records its calls.

    It has the attributes of the original, and is pickled as the original.
    """

    def __init__(self, original: Any) -> None:
        functools.update_wrapper(self, original)
        self.__wrapped__ = getattr(original, "__wrapped__", original)
        super().__init__(original, f"jit({getattr(original, '__name__', type(original).__name__)})")

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return operator.itemgetter(0), ((self._original,),)

    def __repr__(self) -> str:
        return repr(self._original)

    def __getattr__(self, name: str) -> Any:
        if name == "_original":  # of an instance without attributes yet
            raise AttributeError(name)
        return getattr(self._original, name)

    # `jax.stages.Wrapped` is a protocol, of which instances are recognized by their methods.

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower the function; see `jax.stages.Wrapped.lower`."""
        return self._original.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Trace the function; see `jax.stages.Wrapped.trace`."""
        return self._original.trace(*args, **kwargs)


def _recording_jit(original: Callable[..., Any]) -> Callable[..., Any]:
    def jit(*args: Any, **kwargs: Any) -> Any:
        jitted = original(*args, **kwargs)
        if hasattr(jitted, "lower"):
            return JittedFunction(jitted) if _probe.alive else jitted

        @functools.wraps(jitted)
        def decorate(function: Callable[..., Any]) -> Any:
            return jit(function, **kwargs)

        return decorate

    return jit


def _timed_compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    functions: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = functions.get(self)
        if function is None:
            executable = getattr(self, "_executable", None)
            name = getattr(getattr(executable, "unsafe_call", None), "name", "compiled function")
            function = functions[self] = Function(original, name)
        return function(self, *args, **kwargs)

    return call


class CallShape(NamedTuple):
    """Arguments and results of a call of one function."""

    state_bytes: int
    """Bytes of the results that have the shape and type of an argument: parameters, their
    gradients, the state of an optimizer. A function that trains returns most of its arguments."""
    steps: list[Callable[[Any], Any]] | None
    """Steps from the result to its smallest array, preferably one that is no state: an array that
    the next call is given may be donated to it. None without an array that can be found again."""

    def find_result(self, result: Any) -> Array | None:
        """Find the smallest array of a result; None if there is none, or the result has another
        structure."""
        if self.steps is None:
            return None
        try:
            for step in self.steps:
                result = step(result)
        except (AttributeError, LookupError, TypeError):
            return None
        return result if isinstance(result, Array) else None


NOT_DESCRIBED = CallShape(0, None)
"""Of a function that has not returned yet."""


def describe_call(arguments: Any, result: Any) -> CallShape:
    """Describe a call.

    Args:
        arguments: the arguments, which may have been donated.
        result: what it returned.
    """
    inputs = Counter(_key(leaf) for leaf in tree_leaves(arguments) if isinstance(leaf, Array))
    state_bytes = 0
    arrays: list[tuple[bool, int, int, int, list[Callable[[Any], Any]]]] = []
    # Of more arrays of one shape and type than there are arguments, such as a loss and the scalars
    # of an optimizer, those that are nested deepest are the state. The script waits for the loss.
    leaves = sorted(tree_flatten_with_path(result)[0], key=lambda item: -len(item[0]))
    for path, leaf in leaves:
        if not isinstance(leaf, Array):
            continue
        is_state = inputs[_key(leaf)] > 0
        if is_state:
            inputs[_key(leaf)] -= 1
            state_bytes += leaf.nbytes
        steps = [step for key in path if (step := _make_step(key)) is not None]
        is_found = len(steps) == len(path) and CallShape(0, steps).find_result(result) is leaf
        if is_found and hasattr(leaf, "is_ready"):  # random keys cannot tell
            arrays.append((is_state, leaf.nbytes, len(path), len(arrays), steps))
    smallest = min(arrays, default=None)
    return CallShape(state_bytes, None if smallest is None else smallest[-1])


def _key(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def _make_step(key: object) -> Callable[[Any], Any] | None:
    if isinstance(key, SequenceKey):
        return operator.itemgetter(key.idx)
    if isinstance(key, DictKey):
        return operator.itemgetter(key.key)
    if isinstance(key, GetAttrKey):
        return operator.attrgetter(key.name)
    return None  # a container that only its own functions open


PREPARING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)
COMPILING = "/jax/core/compile/backend_compile_duration"
CACHE_HIT = "/jax/compilation_cache/cache_hits"
MAX_GAP_NS = 10_000_000
"""Maximum time between tracing, lowering and compiling one function."""

_compilation_probe = Probe("compilations of JAX", coarse=True)


class CompilationCounter:
    """Compilations of the process."""

    def __init__(self) -> None:
        self.count = 0
        self._by_name: dict[str, int] = {}
        self._start_ns = 0
        """Start of what is being prepared."""
        self._end_ns = 0
        """End of the last preparation."""
        self._is_cached = False

    def note_duration(self, event: str, duration_s: float, name: str, now_ns: int) -> None:
        """Note the end of a part of a compilation.

        Args:
            event: name of JAX's event.
            duration_s: seconds that it took.
            name: name of the function.
            now_ns: monotonic time.
        """
        start_ns = now_ns - round(1e9 * duration_s)
        if start_ns - self._end_ns < MAX_GAP_NS:  # traces of inner functions are inside
            start_ns = min(start_ns, self._start_ns)
        if event in PREPARING:
            self._start_ns, self._end_ns = start_ns, now_ns
        elif event == COMPILING:
            earlier = self._by_name.get(name, 0)
            self._by_name[name] = earlier + 1
            self.count += 1
            label = f"{name} from the compilation cache" if self._is_cached else name
            self._is_cached, self._end_ns = False, 0
            _compilation_probe.write(Kind.COMPILE, label, start_ns, now_ns, earlier)

    def note_event(self, event: str) -> None:
        """Note an event without a duration."""
        if event == CACHE_HIT:
            self._is_cached = True


counter = CompilationCounter()


@_compilation_probe.protect
def install_compilations() -> None:
    """Register listeners."""
    jax.monitoring.register_event_duration_secs_listener(_note_duration)
    jax.monitoring.register_event_listener(_note_event)


@_compilation_probe.protect
def _note_duration(event: str, duration_s: float, **details: Any) -> None:
    name = str(details.get("fun_name", "function"))
    counter.note_duration(event, duration_s, name, time.monotonic_ns())


@_compilation_probe.protect
def _note_event(event: str, **_: Any) -> None:
    counter.note_event(event)
