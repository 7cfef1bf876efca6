"""Changes of settings of torch and of the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.debug_variables import DEBUG_VARIABLES
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.trial.measurement import Measurement

WORKER_MODULE = "torch.utils.data._utils.worker"


def set_threads(count: int, measurement: Measurement) -> None:
    """Set the number of intra-op threads, and ignore calls of the script that set it.

    DataLoader workers still use one thread.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    measurement.note_change("intra_op_threads", before, count)

    def ignore(original: Callable[[int], None]) -> Callable[[int], None]:
        def set_num_threads(number: int) -> None:
            if sys._getframe(1).f_globals.get("__name__") == WORKER_MODULE:
                original(number)
            else:
                measurement.note_change("intra_op_threads", number, count)

        return set_num_threads

    patch(torch, "set_num_threads", ignore)


def turn_off_anomaly_detection(measurement: Measurement) -> None:
    """Leave anomaly detection off where the script turns it on."""

    def ignore(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            if enabled:
                measurement.note_change("anomaly_detection", "on", "off")
            original(False, check_nan)

        return set_anomaly_enabled

    patch(torch, "set_anomaly_enabled", ignore)


def unset_debug_variables(measurement: Measurement) -> None:
    """Unset debug variables that the script has set, and ignore those that it sets later."""
    removed = [name for name in DEBUG_VARIABLES if os.environ.pop(name, None) is not None]
    removed += measurement.plan.removed_variables
    if removed:
        measurement.note_change("debug_variables", ", ".join(removed), "unset")

    def ignore(original: Callable[..., None]) -> Callable[..., None]:
        def __setitem__(self: Any, name: str, text: str) -> None:  # noqa: N807
            if name in DEBUG_VARIABLES:
                measurement.note_change("debug_variables", name, "unset")
            else:
                original(self, name, text)

        return __setitem__

    patch(type(os.environ), "__setitem__", ignore)


def set_matmul_precision(precision: str, measurement: Measurement) -> None:
    """Set the precision of float32 matrix products, and ignore calls of the script that set it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    measurement.note_change("matmul_precision", before, precision)
    patch(torch, "set_float32_matmul_precision", lambda _: lambda _precision: None)


def set_cudnn_benchmark(measurement: Measurement, *, is_on: bool) -> None:
    """Set cuDNN's benchmark mode, after the script has set it."""

    cudnn: Any = torch.backends.cudnn

    def enforce() -> None:
        before = cudnn.benchmark
        cudnn.benchmark = is_on
        measurement.note_change("cudnn_benchmark", before, is_on)

    if torch.cuda.is_available() and cudnn.is_available():
        measurement.during_warmup(enforce)
