"""Windows that the framework's profiler records from within, where libkineto hears no monitor.

And for memory events, which libkineto's own windows do not hold. It is switched on and off in the
training thread; the file is written by another thread, without the interpreter lock.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.copies import device_driver_present
from stepscope.spool import Depth, WindowPlan, finished_file


class ProfilerRecorder:
    """One window."""

    warm_up_steps = 0

    def __init__(self, plan: WindowPlan, directory: str) -> None:
        self._path = finished_file(directory, plan.number, os.getpid())
        self._profiler: Any = torch.profiler.profile(**_arguments(plan))
        self._writer = threading.Thread(target=self._write, name="stepscope-window", daemon=True)

    def prepare(self) -> bool:
        """There is nothing to prepare."""
        return True

    def start(self) -> None:
        """Record from here on."""
        self._profiler.start()

    def stop(self) -> None:
        """Record no more."""
        self._profiler.stop()
        self._writer.start()

    def written(self) -> bool:
        """True when the file is there, or will not come."""
        return not self._writer.is_alive()

    def release(self) -> None:
        """There is nothing to release."""

    def finish(self, limit_s: float) -> bool:
        """Wait until the file is there; False when it is not in time."""
        self._writer.join(limit_s)
        return self.written()

    def _write(self) -> None:
        self._profiler.profiler.kineto_results.save(self._path + ".tmp")
        os.rename(self._path + ".tmp", self._path)


def _arguments(plan: WindowPlan) -> dict[str, Any]:
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CUDA] if device_driver_present() else []
    if plan.depth == Depth.FULL or not activities:  # some activity there must be
        activities.append(kinds.CPU)
    options = plan.options
    return {
        "activities": activities,
        "record_shapes": "shapes" in options or "flops" in options,
        "with_stack": "stacks" in options or "modules" in options,
        "profile_memory": "memory" in options,
        "with_flops": "flops" in options,
        "with_modules": "modules" in options,
    }
