"""Keras 3 on PyTorch, TensorFlow and JAX, and Keras 2 on TensorFlow.

`install` runs once, right after `import keras`. Phases within a step are those of the backend.

    training   modes, epochs, callbacks, checkpoints, logged numbers; batches and waits for them;
               optimizer steps, compiled steps of JAX, forward passes on TensorFlow
"""

from __future__ import annotations

import sys

from stepscope.capture.frameworks.keras import training
from stepscope.capture.frameworks.progress import record_versions
from stepscope.capture.guard import Probe

_probe = Probe("Keras")


def install() -> None:
    """Patch the imported keras."""
    _install()


@_probe.protect
def _install() -> None:
    keras = sys.modules["keras"]
    backend = keras.backend.backend()
    record_versions(lambda: {"keras": keras.__version__, "keras_backend": backend})
    training.install()
    training.install_steps(backend)
    training.install_datasets(backend)
    if backend != "torch":  # which compiles nothing by default
        training.install_settings()
    if backend == "tensorflow":
        training.install_passes()
