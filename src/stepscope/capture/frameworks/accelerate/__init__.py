"""Hugging Face Accelerate: numbers that the script logs, and saved states.

Steps and phases, with gradient accumulation, are those of PyTorch.
"""

from __future__ import annotations

import sys

from stepscope.capture.frameworks.trainers import record_as, record_logged
from stepscope.capture.patching import patch
from stepscope.spool import Kind


def install() -> None:
    """Patch the class `Accelerator`, which has been imported."""
    accelerator = sys.modules["accelerate.accelerator"].Accelerator
    patch(accelerator, "log", record_logged("values"))
    patch(accelerator, "save_state", record_as(Kind.CHECKPOINT, "Accelerator.save_state"))
