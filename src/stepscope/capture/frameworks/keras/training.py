"""Modes, epochs, callbacks, checkpoints, logged numbers and input of Keras.

Classes are patched: no callback is added, and the callbacks of the script stay as they are.

Input of Keras: batches of a PyDataset, and the wait for batches on JAX. On PyTorch the wait is that
for the DataLoader that Keras makes, and on TensorFlow that for tf.data.

Optimizer steps of Keras, the compiled steps of JAX, and forward passes on TensorFlow.

On PyTorch, and where the script runs eagerly, `Optimizer.apply` updates the weights. On TensorFlow
a compiled step is a call of a `tf.function`, which the adapter of TensorFlow records. On JAX it is
a call of the model's `train_function`, which only starts the work of the device; Keras waits for it
where it reads the numbers that it logs.

Forward passes of Keras on TensorFlow: the outermost call of a layer or model. On PyTorch a layer is
a module, whose calls the adapter of PyTorch records.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from stepscope.capture.frameworks import objects
from stepscope.capture.frameworks.progress import progress, take_batch
from stepscope.capture.frameworks.tables import KERAS, KERAS_ON_JAX, TENSORFLOW
from stepscope.capture.frameworks.trainers import (
    record_as,
    record_numbers,
    record_planned_steps,
    time_methods,
)
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch, patch_in_place
from stepscope.spool import Flag, Kind

MODES = {
    "evaluate": "EVAL",
    "test_on_batch": "EVAL",
    "predict": "PREDICT",
    "predict_on_batch": "PREDICT",
}
SAVES = ("save", "save_weights")
_probe = Probe("epochs and callbacks of Keras")
_mode_probe = Probe("modes and checkpoints of Keras")
_thread = threading.local()
"""`.epoch` is the open interval of an epoch."""


def install() -> None:
    """Patch `Model` and `CallbackList`."""
    _patch_model()
    _patch_callbacks()


@_mode_probe.protect
def _patch_model() -> None:
    model = sys.modules["keras"].Model
    for name, mode in MODES.items():
        patch(model, name, record_as(Kind.MODE, mode))
    for name in SAVES:
        patch(model, name, record_as(Kind.CHECKPOINT, f"Model.{name}"))


@_probe.protect
def _patch_callbacks() -> None:
    module = sys.modules["keras"].callbacks
    callbacks = module.CallbackList
    patch(callbacks, "__init__", _times_callbacks(module.Callback))
    patch(callbacks, "on_epoch_begin", _starts_epoch)
    patch(callbacks, "on_epoch_end", _ends_epoch)


def _times_callbacks(base: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    hooks = [name for name in vars(base) if name.startswith("on_")]

    @_probe.protect
    def time_all(callbacks: Any) -> None:
        for instance in callbacks.callbacks:
            time_methods(instance, base, hooks)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            time_all(self)

        return __init__

    return make_wrapper


def _starts_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    @_probe.protect
    def state_plan(callbacks: Any, epoch: int = 0, *_: Any) -> None:
        epochs, steps = callbacks.params.get("epochs"), callbacks.params.get("steps")
        if epochs and steps:
            record_planned_steps(callbacks, epochs * steps, epoch * steps)

    def on_epoch_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        state_plan(self, *args)
        _probe.end(getattr(_thread, "epoch", None))  # an epoch that a callback has ended by raising
        _thread.epoch = _probe.start(Kind.ANNOTATION, "epoch")
        return original(self, *args, **kwargs)

    return on_epoch_begin


def _ends_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> Any:
        if isinstance(logs, dict):
            record_numbers(logs)
        try:
            return original(self, epoch, logs)
        finally:
            _probe.end(getattr(_thread, "epoch", None))
            _thread.epoch = None

    return on_epoch_end


_wait_probe = Probe("waits for data of Keras", coarse=True)
_fetch_probe = Probe("batches of a PyDataset")
_timed_classes: set[type] = set()


def install_datasets(backend: str) -> None:
    """Patch the adapter of PyDataset, and the iterator of JAX."""
    _patch_datasets()
    if backend == "jax":
        _patch_iterator()


@_fetch_probe.protect
def _patch_datasets() -> None:
    KERAS.patch("dataset_adapter", _times_dataset)


def _times_dataset(original: Callable[..., Any]) -> Callable[..., Any]:
    @_fetch_probe.protect
    def time_dataset(adapter: Any) -> None:
        name = "py_dataset" if hasattr(adapter, "py_dataset") else "_keras_sequence"  # of Keras 2
        dataset = type(getattr(adapter, name))
        if dataset not in _timed_classes:
            _timed_classes.add(dataset)
            if not hasattr(dataset.__getitem__, "_is_timed"):  # by a subclass
                patch(dataset, "__getitem__", _timed_batch)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        time_dataset(self)

    return __init__


def _timed_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def __getitem__(self: Any, index: Any) -> Any:  # noqa: N807
        span = _fetch_probe.start(Kind.FETCH, type(self).__name__)
        start_ns = time.thread_time_ns()
        try:
            return original(self, index)
        finally:
            _fetch_probe.end(span, value=time.thread_time_ns() - start_ns)

    __getitem__._is_timed = True  # type: ignore[attr-defined]
    return __getitem__


@_wait_probe.protect
def _patch_iterator() -> None:
    KERAS_ON_JAX.patch("iterator", _times_waits)


def _times_waits(original: Callable[..., Any]) -> Callable[..., Any]:
    def _get_iterator(self: Any) -> Any:
        adapter = getattr(self, "data_adapter", self)
        return timed_iterator(iter(original(self)), type(adapter).__name__)

    return _get_iterator


def timed_iterator(iterator: Iterator[Any], name: str) -> Iterator[Any]:
    """Yield the batches of an iterator, and record the wait for each."""
    take = iterator.__next__
    while True:
        try:
            batch = take_batch(_wait_probe, name, take)
        except StopIteration:
            return
        yield batch


_step_probe = Probe("optimizer steps of Keras", coarse=True)
_device_probe = Probe("waits of Keras for the device", coarse=True)


def install_steps(backend: str) -> None:
    """Patch the optimizers, and the trainer of JAX.

    Args:
        backend: `torch`, `tensorflow`, `jax` or another one.
    """
    _patch_optimizers(backend)
    if backend == "jax":
        _patch_trainer()
        _patch_conversion()


@_step_probe.protect
def _patch_optimizers(backend: str) -> None:
    is_eager, after_step = _find_hooks(backend)
    if is_eager is None:
        return
    # Optimizers with loss scaling call the optimizer that they have unless gradients overflow.
    for name in ("optimizer", "loss_scale_optimizer", "legacy_optimizer"):
        optimizer = _find_base() if name == "optimizer" else KERAS.find(name)
        methods = ("apply", "apply_gradients")  # of Keras 3 and 2
        method = next((method for method in methods if hasattr(optimizer, method)), None)
        if method is not None:
            patch(optimizer, method, _timed_apply(is_eager, after_step))


def _find_base() -> Any:
    return KERAS.find("optimizer") or sys.modules["keras"].optimizers.Optimizer


def _find_hooks(backend: str) -> tuple[Callable[[], bool] | None, Callable[[], None]]:
    """Return functions of a backend: is the code that runs no trace of a compiler (None if that
    cannot be known), and what to call after a step."""
    if backend == "torch":
        patch(_find_base(), "__init__", _noticed)
        return lambda: True, progress.notify_optimizer_step
    if backend == "tensorflow":
        from stepscope.capture.frameworks.tensorflow import functions

        return functions.is_eager_step, functions.note_step
    in_scope = KERAS_ON_JAX.find("in_stateless_scope")
    is_eager = None if in_scope is None else (lambda: not in_scope())
    return is_eager, progress.notify_optimizer_step


def _noticed(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        progress.has_optimizer = True  # as those of torch note it
        original(self, *args, **kwargs)

    return __init__


def _timed_apply(
    is_eager: Callable[[], bool], after_step: Callable[[], None]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_eager():
                return original(self, *args, **kwargs)
            name, identity = type(self).__name__, id(self)
            objects.optimizers.note(self, name, identity)
            span = _step_probe.start(Kind.OPTIMIZER, name, identity)
            try:
                return original(self, *args, **kwargs)
            finally:
                _step_probe.end(span)
                after_step()

        return apply

    return make_wrapper


_settings_probe = Probe("settings of Keras")
_settings: dict[str, bool] = {}
"""Those that were recorded last."""


@_settings_probe.protect
def install_settings() -> None:
    """Patch `Model.make_train_function`, which compiles the steps unless they run eagerly."""
    patch(sys.modules["keras"].Model, "make_train_function", _states_settings)


def _states_settings(original: Callable[..., Any]) -> Callable[..., Any]:
    @_settings_probe.protect
    def record_settings(model: Any) -> None:
        settings = {"run_eagerly": bool(model.run_eagerly)}
        if settings != _settings:
            _settings.update(settings)
            _settings_probe.fact("keras_settings", **settings)

    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        record_settings(self)
        return original(self, *args, **kwargs)

    return make_train_function


@_step_probe.protect
def _patch_trainer() -> None:
    patch(sys.modules["keras"].Model, "make_train_function", _times_train_function)


@_device_probe.protect
def _patch_conversion() -> None:
    # Keras reads the logs of each batch with it, where callbacks get them.
    convert = KERAS_ON_JAX.find("convert_to_numpy")
    if convert is not None:
        from stepscope.capture.frameworks.jax import device_times  # which needs JAX

        patch_in_place(convert, device_times.await_argument)


def _times_train_function(original: Callable[..., Any]) -> Callable[..., Any]:
    @_step_probe.protect
    def time_function(model: Any) -> None:
        function = model.train_function
        if not hasattr(function, "_is_timed"):
            name, identity = type(model).__name__, id(model)
            objects.optimizers.note(model, name, identity)
            model.train_function = _timed_function(function, name, identity)

    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        time_function(self)
        return result

    return make_train_function


def _timed_function(function: Callable[..., Any], name: str, identity: int) -> Callable[..., Any]:
    def train_function(*args: Any) -> Any:
        span = _step_probe.start(Kind.OPTIMIZER, name, identity)
        try:
            result = function(*args)
        except BaseException:  # the end of the epoch, too
            _step_probe.abandon(span)
            raise
        _step_probe.end(span)
        progress.notify_optimizer_step()
        return result

    train_function._is_timed = True  # type: ignore[attr-defined]
    return train_function


_pass_probe = Probe("forward passes of Keras", coarse=True)


class _Call(threading.local):
    """Flag of one thread: an outermost call is active."""

    is_active = False


_call = _Call()


@_pass_probe.protect
def install_passes() -> None:
    """Patch `Layer.__call__`."""
    if KERAS.find("symbol") is not None:
        patch(sys.modules["keras"].layers.Layer, "__call__", _timed_pass)


def _timed_pass(original: Callable[..., Any]) -> Callable[..., Any]:
    from stepscope.capture.frameworks.tensorflow import functions  # which needs TensorFlow

    symbol = KERAS.find("symbol")
    has_no_tape = TENSORFLOW.find("is_tape_set_empty") or (lambda: False)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if _call.is_active:
            return original(self, *args, **kwargs)
        span = None
        if not functions.is_eager():
            functions.add_contents(functions.Contents.MODEL)
        elif not (args and _is_symbolic(args[0], symbol)):  # of a model that is being built
            progress.notify_work_start()
            span = _pass_probe.start(Kind.FORWARD, type(self).__name__, id(self))
        flags = Flag.NO_GRAD if has_no_tape() else 0
        if not progress.has_optimizer:
            flags |= Flag.NO_OPTIMIZER
        _call.is_active = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _call.is_active = False
            _pass_probe.end(span, flags=flags)

    return __call__


def _is_symbolic(value: Any, symbol: type) -> bool:
    """Return True for a symbol, or a list or dictionary that begins with one."""
    while isinstance(value, (list, tuple, dict)) and value:
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return isinstance(value, symbol)
