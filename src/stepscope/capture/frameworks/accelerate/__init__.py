"""Hugging Face Accelerate: numbers that the script logs, and saved states.

Steps and phases, with gradient accumulation, are those of PyTorch.
"""

from __future__ import annotations

import sys

from stepscope.capture.frameworks.trainers import record_as, record_numbers
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_probe = Probe("Accelerate")


def install() -> None:
    """Patch the class `Accelerator`, which has been imported."""
    accelerator = sys.modules["accelerate.accelerator"].Accelerator
    patch(accelerator, "log", _records_numbers)
    patch(accelerator, "save_state", record_as(Kind.CHECKPOINT, "Accelerator.save_state"))


def _records_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    record = _probe.protect(record_numbers)

    def log(self: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(values, dict):
            record(values)
        return original(self, values, *args, **kwargs)

    return log
