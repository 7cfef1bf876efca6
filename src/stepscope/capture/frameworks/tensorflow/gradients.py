"""Gradients and updates of a loop with `tf.GradientTape`.

Optimizers are those of Keras, which its adapter records, and those of TensorFlow 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks.tensorflow import functions
from stepscope.capture.frameworks.tensorflow.functions import Contents
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

_probe = Probe("gradients of TensorFlow", coarse=True)
_update_probe = Probe("optimizers of TensorFlow 1", coarse=True)


def install() -> None:
    """Patch `GradientTape.gradient` and the base class of TensorFlow 1's optimizers."""
    patch(sys.modules["tensorflow.python.eager.backprop"].GradientTape, "gradient", _timed_gradient)
    _patch_optimizers()


@_update_probe.protect
def _patch_optimizers() -> None:
    optimizer = sys.modules["tensorflow.python.training.optimizer"].Optimizer
    patch(optimizer, "apply_gradients", _timed_update)


def _timed_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not functions.is_eager():
            functions.add_contents(Contents.GRADIENT)
            return original(self, *args, **kwargs)
        span = _probe.start(Kind.BACKWARD, "GradientTape.gradient")
        try:
            return original(self, *args, **kwargs)
        finally:
            _probe.end(span)

    return gradient


def _timed_update(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not functions.is_eager_step():
            return original(self, *args, **kwargs)
        span = _update_probe.start(Kind.OPTIMIZER, type(self).__name__, id(self))
        try:
            return original(self, *args, **kwargs)
        finally:
            _update_probe.end(span)
            functions.note_step()

    return apply_gradients
