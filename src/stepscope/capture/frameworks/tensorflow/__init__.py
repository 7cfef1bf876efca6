"""Steps and phases of an unmodified TensorFlow 2 script.

`install` runs once, right after `import tensorflow`. It patches methods that every training loop
calls once per batch or step; models, optimizers and datasets are not changed.

    functions   calls of `tf.function`, by what was found when they were traced; tracing
    gradients   gradients and updates that run eagerly
    iterators   the wait for tf.data, in Python and in compiled functions
"""

from __future__ import annotations

from stepscope.capture.frameworks.tensorflow import functions, gradients, iterators
from stepscope.capture.guard import Probe

_probe = Probe("TensorFlow")


def install() -> None:
    """Patch the imported tensorflow."""
    for adapter in (functions, gradients, iterators):
        _probe.protect(adapter.install)()
