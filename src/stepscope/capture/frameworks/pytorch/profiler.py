"""Recorder of windows with the framework's profiler, in-process.

Used if libkineto has no connection to the monitor, and for memory events, which windows recorded
by libkineto do not contain. The profiler is started and stopped in the training thread; another
thread writes the file, without holding the GIL.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.copies import device_driver_present
from stepscope.spool import Depth, Recorder, WindowPlan, finished_file


class ProfilerRecorder:
    """Recorder of one window with the framework's profiler."""

    kind = Recorder.PROFILER
    warm_up_steps = 0

    def __init__(self, plan: WindowPlan, directory: str) -> None:
        self._path = finished_file(directory, plan.number, os.getpid())
        self._profiler: Any = torch.profiler.profile(**_arguments(plan))
        self._warms_up = plan.warmup_steps > 0
        self._writer = threading.Thread(target=self._write, name="stepscope-window", daemon=True)

    def prepare(self) -> bool:
        """Start the warm-up of a plan that asks for one, and return True."""
        if self._warms_up:
            self._profiler.prepare_trace()
        return True

    def start(self) -> None:
        """Start recording."""
        if self._warms_up:
            self._profiler.start_trace()
        else:
            self._profiler.start()

    def stop(self) -> None:
        """Stop recording."""
        self._profiler.stop()
        self._writer.start()

    def is_written(self) -> bool:
        """Return True if the file is complete, or its writing has failed."""
        return not self._writer.is_alive()

    def release(self) -> None:
        """Do nothing: this recorder disables no callbacks."""

    def finish(self, timeout_s: float) -> bool:
        """Wait until the file is complete; False at the timeout."""
        self._writer.join(timeout_s)
        return self.is_written()

    def _write(self) -> None:
        self._profiler.profiler.kineto_results.save(self._path + ".tmp")
        os.rename(self._path + ".tmp", self._path)


def _arguments(plan: WindowPlan) -> dict[str, Any]:
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CUDA] if device_driver_present() else []
    if plan.depth == Depth.FULL or not activities:  # the profiler needs at least one activity
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
