"""Steps and phases of an unmodified TensorFlow 2 script.

`install` runs once, right after `import tensorflow`. It patches methods that every training loop
calls once per batch or step; models, optimizers and datasets are not changed.

    functions   calls of `tf.function` by what was found in tracing; eager gradients and updates
    iterators   the wait for tf.data, in Python and in compiled functions; strategies

`TensorFlowProfiler` records windows with `tf.profiler.experimental`.
"""

from __future__ import annotations

import sys
from typing import Any

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.progress import record_versions, watch_steps
from stepscope.capture.frameworks.tables import TENSORFLOW
from stepscope.capture.frameworks.tensorflow import functions, iterators
from stepscope.capture.frameworks.xplane import XPlaneProfiler, guard_start
from stepscope.capture.guard import Probe, install_parts
from stepscope.capture.patching import patch_in_place

_window_probe = Probe("windows of TensorFlow", coarse=True)


def install() -> None:
    """Patch the imported tensorflow."""
    install_parts(
        "TensorFlow",
        functions.install, functions.install_gradients, iterators.install,
        iterators.install_strategies, _install_windows,
    )  # fmt: skip
    watch_steps()
    record_versions(lambda: {"tensorflow": sys.modules["tensorflow"].__version__})


@_window_probe.protect
def _install_windows() -> None:
    """Follow the monitor's plans, unless windows are disabled."""
    if windows.is_enabled() and TENSORFLOW.find("profiler_lock") is not None:
        module = sys.modules["tensorflow.python.profiler.profiler_v2"]
        windows.install(TensorFlowProfiler(module))
        patch_in_place(module.start, guard_start)  # `tf.compat.v2` has it too


class TensorFlowProfiler(XPlaneProfiler):
    """Profiler of TensorFlow.

    Args:
        module: `tf.profiler.experimental`, with its state.
    """

    framework = "TensorFlow"

    def __init__(self, module: Any) -> None:
        self._module = module

    def start(self, directory: str, *, host_level: int, python_level: int) -> None:
        """Start recording."""
        options = self._module.ProfilerOptions(
            host_tracer_level=host_level, python_tracer_level=python_level
        )
        was_active = self.is_active()
        try:
            self._module.start(directory, options)
        except Exception:
            if not was_active:  # TensorFlow keeps the session, and the job could start none
                with self._module._profiler_lock:
                    self._module._profiler = None
            raise

    def stop(self) -> None:
        """Stop recording and write the file."""
        self._module.stop()

    def is_active(self) -> bool:
        """Return True while the job records a profile."""
        return self._module._profiler is not None

    def will_train(self) -> bool:
        """Return True if the process has updated weights."""
        return functions.has_trained()

    def has_worked(self) -> bool:
        """Return True if the process has updated weights, or called models or gradients."""
        return functions.has_worked()
