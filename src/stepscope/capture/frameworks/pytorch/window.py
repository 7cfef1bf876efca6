"""Detailed windows with PyTorch's profilers, in-process or in libkineto's threads.

A process can have only one active profiler. While the job uses one, a window waits; when the job
starts one during a window, the window is closed first.

Recorder of windows with the framework's profiler, in-process. Used if libkineto has no connection
to the monitor, and for memory events, which windows recorded by libkineto do not contain. The
profiler is started and stopped in the training thread; another thread writes the file, without
holding the GIL.

Recorder of windows with PyTorch's libkineto, in its threads, configured by the monitor. libkineto
polls the monitor for a configuration once a second. The configuration never names an iteration:
recording starts and ends with the calls made here, so a window covers exactly the steps that
stepscope reports, regardless of the job's optimizers.

    prepare   the first call after libkineto has its configuration: device tracing warms up
    start     the second call: recording
    stop      the third call: libkineto's threads write the file

Properties of libkineto (torch 2.13) that this module depends on:

- It records operators for any set of activity types, and only omits them from the file. A light
  window therefore disables operator callbacks in the training thread.
- A process that exits, or starts another profiler, while a window is recorded or written crashes
  with a segmentation fault. Both wait until the file is complete.
- A child forked after the import of torch hangs at exit: it waits for libkineto's thread, which
  fork does not copy.
- A job in which a window was recorded exits up to two seconds later: libkineto's thread sleeps for
  a second at a time, and the exit joins it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import get_worker_info

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.profilers import WindowRecorder
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import models
from stepscope.capture.frameworks.pytorch.device_clock import device_driver_present
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.kineto_daemon import DIRECTORY_VARIABLE
from stepscope.spool import Depth, Recorder, WindowPlan, finished_file


def install() -> None:
    """Follow the monitor's plans, unless windows are disabled."""
    if windows.is_enabled():
        install_libkineto()
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
        start_counting()

    def exit_without_cleanup(self) -> None:
        """Skip libkineto's cleanup, which would crash."""
        exit_without_cleanup()

    def leave_to_parent(self) -> None:
        """Stop recording in a forked child, whose memory would grow without limit."""
        exit_without_cleanup()
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


POLL_S = 0.01
THREAD_NAME = "Kineto Activity"
"""Name of the thread that writes the file; an unnamed thread, created at the end of a window,
precedes it."""
NICENESS = 10
SETTLE_S = 0.1
"""Delay between the last byte of the file and libkineto's readiness for another profiler."""

_uses_monitor = False


def install_libkineto() -> None:
    """Take over libkineto's step counting, and let forked children exit."""
    global _uses_monitor
    hook = _find_counting_hook()
    if hook is None or not _is_monitor_the_daemon():
        return
    _uses_monitor = True
    del _global_optimizer_post_hooks[hook]  # without a daemon there is none
    profiler: Any = torch.autograd.profiler
    profiler._kineto_step = _skip_step
    os.register_at_fork(after_in_child=exit_without_cleanup)


def start_counting() -> None:
    """Count the first step: before it, libkineto assumes that a window is limited by duration."""
    if _uses_monitor:
        torch._C._autograd._kineto_step()


class LibkinetoRecorder:
    """Recorder of one window with libkineto."""

    kind = Recorder.LIBKINETO
    warm_up_steps = 1

    def __init__(self, plan: WindowPlan, directory: str) -> None:
        self._temporary = finished_file(directory, plan.number, os.getpid()) + ".tmp"
        self._light = plan.depth == Depth.LIGHT

    def prepare(self) -> bool:
        """Start the warm-up; False while libkineto has no configuration yet."""
        torch._C._autograd._kineto_step()
        return not self.is_written()

    def start(self) -> None:
        """Start recording."""
        torch._C._autograd._kineto_step()
        if self._light:
            torch._C._autograd._enable_record_function(False)

    def stop(self) -> None:
        """Stop recording: this thread immediately, libkineto's thread a little later."""
        torch._C._autograd._enable_record_function(False)
        before = _threads()
        torch._C._autograd._kineto_step()
        for thread in _threads():
            if thread not in before or _thread_name(thread).startswith(THREAD_NAME):
                _lower_priority(int(thread))

    def is_written(self) -> bool:
        """Return True if no file is being recorded or written."""
        return not os.path.exists(self._temporary)

    def release(self) -> None:
        """Enable operator callbacks again, in the thread that disabled them."""
        torch._C._autograd._enable_record_function(True)

    def finish(self, timeout_s: float) -> bool:
        """Wait until the file is complete; False at the timeout."""
        deadline = time.monotonic() + timeout_s
        while not self.is_written():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        time.sleep(SETTLE_S)
        return True


def _threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def _thread_name(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the thread has ended
        return ""


def _lower_priority(thread: int) -> None:
    """Give training priority over the thread that writes the file."""
    try:
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
    except OSError:  # the thread has ended, or the job has a lower priority already
        pass


def exit_without_cleanup() -> None:
    """Make this process exit without the clean-up of the profiler, which would hang or crash.

    At exit, C's buffered output is flushed and the process ends with its exit status. Functions
    that C code registered before this call do not run.
    """
    libc = ctypes.CDLL(None)
    on_exit, at_exit = libc.on_exit, libc.__cxa_atexit
    on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    at_exit(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)  # runs before `_exit`


def _is_monitor_the_daemon() -> bool:
    """Return True if the monitor is the daemon of this process."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return bool(directory) and os.environ.get("KINETO_IPC_SOCKET_DIR") == directory


def _find_counting_hook() -> int | None:
    """Find the hook with which torch counts optimizer steps for a daemon; None if torch was
    imported without one."""
    for key, hook in _global_optimizer_post_hooks.items():
        if getattr(hook, "__name__", "") == "_optimizer_post_hook":
            return key
    return None


def _skip_step() -> None:
    """Replace the step counting of the job's profilers by a no-op."""
