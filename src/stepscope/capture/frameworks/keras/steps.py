"""Optimizer steps of Keras, the compiled steps of JAX, and forward passes on TensorFlow.

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
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch, patch_in_place
from stepscope.spool import Flag, Kind

_probe = Probe("optimizer steps of Keras", coarse=True)
_wait_probe = Probe("waits of Keras for the device", coarse=True)


def install(backend: str) -> None:
    """Patch the optimizers, and the trainer of JAX.

    Args:
        backend: `torch`, `tensorflow`, `jax` or another one.
    """
    _patch_optimizers(backend)
    if backend == "jax":
        _patch_trainer()
        _patch_conversion()


@_probe.protect
def _patch_optimizers(backend: str) -> None:
    modules = sys.modules
    optimizers = [modules["keras.src.optimizers.base_optimizer"].BaseOptimizer]
    # It calls the optimizer that it has unless gradients have overflown.
    optimizers.append(modules["keras.src.optimizers.loss_scale_optimizer"].LossScaleOptimizer)
    is_eager, after_step = _find_hooks(backend)
    for optimizer in optimizers:
        patch(optimizer, "apply", _timed_apply(is_eager, after_step))


def _find_hooks(backend: str) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Return functions of a backend: is the code that runs no trace of a compiler, and what to
    call after a step."""
    if backend == "torch":
        base = sys.modules["keras.src.optimizers.base_optimizer"].BaseOptimizer
        patch(base, "__init__", _noticed)
        return lambda: True, progress.notify_optimizer_step
    if backend == "tensorflow":
        from stepscope.capture.frameworks.tensorflow import functions

        return functions.is_eager_step, functions.note_step
    in_stateless_scope = sys.modules["keras.src.backend.common.stateless_scope"].in_stateless_scope
    return lambda: not in_stateless_scope(), progress.notify_optimizer_step


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
            span = _probe.start(Kind.OPTIMIZER, type(self).__name__, id(self))
            try:
                return original(self, *args, **kwargs)
            finally:
                _probe.end(span)
                after_step()

        return apply

    return make_wrapper


@_probe.protect
def _patch_trainer() -> None:
    trainer = sys.modules["keras.src.backend.jax.trainer"].JAXTrainer
    patch(trainer, "make_train_function", _times_train_function)


@_wait_probe.protect
def _patch_conversion() -> None:
    core = sys.modules["keras.src.backend.jax.core"]
    from stepscope.capture.frameworks.jax import device_times  # which needs JAX

    # Keras reads the logs of each batch with it, where callbacks get them.
    patch_in_place(core.convert_to_numpy, device_times.await_argument)


def _times_train_function(original: Callable[..., Any]) -> Callable[..., Any]:
    @_probe.protect
    def time_function(model: Any) -> None:
        function = model.train_function
        if not hasattr(function, "_is_timed"):
            model.train_function = _timed_function(function, type(model).__name__, id(model))

    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        time_function(self)
        return result

    return make_train_function


def _timed_function(function: Callable[..., Any], name: str, identity: int) -> Callable[..., Any]:
    def train_function(*args: Any) -> Any:
        span = _probe.start(Kind.OPTIMIZER, name, identity)
        try:
            result = function(*args)
        except BaseException:  # the end of the epoch, too
            _probe.abandon(span)
            raise
        _probe.end(span)
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
    patch(sys.modules["keras.src.layers.layer"].Layer, "__call__", _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    from stepscope.capture.frameworks.tensorflow import functions  # which needs TensorFlow

    symbol = sys.modules["keras.src.backend.common.keras_tensor"].KerasTensor
    has_no_tape = sys.modules["tensorflow.python.pywrap_tfe"].TFE_Py_TapeSetIsEmpty

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
