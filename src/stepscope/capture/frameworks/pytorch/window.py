"""Detailed windows with PyTorch's profilers.

A process can have only one active profiler. While the job uses one, a window waits; when the job
starts one during a window, the window is closed first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.profilers import WindowRecorder
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import libkineto, models
from stepscope.capture.frameworks.pytorch.libkineto import LibkinetoRecorder
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.frameworks.pytorch.profiler import ProfilerRecorder
from stepscope.spool import Recorder, WindowPlan


def install() -> None:
    """Follow the monitor's plans, unless windows are disabled."""
    if windows.is_enabled():
        libkineto.install()
        windows.install(TorchProfiler())
        patch(torch.autograd.profiler.profile, "_prepare_trace", _guarded)


def is_job_profiling() -> bool:
    """Return True while the framework's profiler records for the job, not for a window."""
    return torch._C._autograd._profiler_enabled() and not windows.is_open()


class TorchProfiler:
    """Profiler of PyTorch; see `FrameworkProfiler`."""

    recorders: tuple[str, ...] = (Recorder.LIBKINETO, Recorder.PROFILER)

    def make_recorder(self, plan: WindowPlan, directory: str) -> WindowRecorder:
        """Make the recorder that the plan names."""
        recorder = LibkinetoRecorder if plan.recorder == Recorder.LIBKINETO else ProfilerRecorder
        return recorder(plan, directory)

    def is_active(self) -> bool:
        """Return True while a profiler of the job records or warms up."""
        profiler = _job_profiler() if _job_profiler is not None else None
        is_warming_up = profiler is not None and profiler.kineto_results is None
        return is_warming_up or torch._C._autograd._profiler_enabled()

    def will_train(self) -> bool:
        """Return True for a process with an optimizer that is no worker of a DataLoader."""
        return progress.has_optimizer and get_worker_info() is None

    def has_worked(self) -> bool:
        """Return True if the process has called a model."""
        return models.has_calls()

    def start_process(self) -> None:
        """Let libkineto count steps."""
        libkineto.start_counting()

    def exit_without_cleanup(self) -> None:
        """Skip libkineto's cleanup, which would crash."""
        libkineto.exit_without_cleanup()

    def leave_to_parent(self) -> None:
        """Stop recording in a forked child, whose memory would grow without limit."""
        libkineto.exit_without_cleanup()
        torch._C._autograd._enable_record_function(False)


_job_profiler: weakref.ref[Any] | None = None


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    def _prepare_trace(self: Any) -> Any:
        global _job_profiler
        if not windows.is_opening():
            windows.finish("the job started a profiler")
            _job_profiler = weakref.ref(self)
        return original(self)

    return _prepare_trace
