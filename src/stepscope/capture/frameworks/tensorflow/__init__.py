"""Steps and phases of an unmodified TensorFlow 2 script.

`install` runs once, right after `import tensorflow`. It patches methods that every training loop
calls once per batch or step; models, optimizers and datasets are not changed.

    functions   calls of `tf.function` by what was found in tracing; eager gradients and updates
    iterators   the wait for tf.data, in Python and in compiled functions; strategies
    profiler    recorder of windows: `tf.profiler.experimental`
"""

from __future__ import annotations

import sys

from stepscope.capture.frameworks.progress import record_versions, watch_steps
from stepscope.capture.frameworks.tensorflow import functions, iterators, profiler
from stepscope.capture.guard import Probe

_probe = Probe("TensorFlow")


def install() -> None:
    """Patch the imported tensorflow."""
    for install_part in (
        functions.install, functions.install_gradients, iterators.install,
        iterators.install_strategies, profiler.install,
    ):  # fmt: skip
        _probe.protect(install_part)()
    watch_steps()
    record_versions(lambda: {"tensorflow": sys.modules["tensorflow"].__version__})
