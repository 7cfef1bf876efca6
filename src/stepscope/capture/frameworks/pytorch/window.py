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
- A child forked after the start of its thread hangs at exit: it waits for that thread, which fork
  does not copy.
- A job in which a window was recorded exits up to two seconds later: libkineto's thread sleeps for
  a second at a time, and the exit joins it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.profilers import WindowRecorder
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import models
from stepscope.capture.frameworks.pytorch.device_clock import device_driver_present
from stepscope.capture.frameworks.pytorch.patching import patch_internal
from stepscope.capture.kineto_daemon import (
    DIRECTORY_VARIABLE,
    USE_DAEMON_VARIABLE,
    libkineto_variables,
)
from stepscope.spool import SPOOL_VARIABLE, Depth, Recorder, WindowPlan, finished_file


def install() -> None:
    """Follow the monitor's plans, unless windows are disabled."""
    internals = PYTORCH.find_all(
        "enable_record_function", "prepare_trace", "profiler_enabled",
        loss="Detailed windows are not recorded",
    )  # fmt: skip
    if windows.is_enabled() and internals is not None:
        windows.install(TorchProfiler())
        patch_internal("prepare_trace", _guarded)


def is_job_profiling() -> bool:
    """Return True while the framework's profiler records for the job, not for a window."""
    is_enabled = PYTORCH.find("profiler_enabled")
    return is_enabled is not None and is_enabled() and not windows.is_open()


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
        """Let libkineto ask for configurations."""
        start_libkineto()

    def exit_without_cleanup(self) -> None:
        """Skip libkineto's cleanup, which would crash."""
        exit_without_cleanup()

    def leave_to_parent(self) -> None:
        """Stop recording in a forked child, whose memory would grow without limit."""
        exit_without_cleanup()
        torch._C._autograd._enable_record_function(False)


_job_profiler: weakref.ref[Any] | None = None
_has_profiled = False
"""A profiler has started in this process, with which libkineto has set itself up."""


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    def _prepare_trace(self: Any) -> Any:
        global _job_profiler, _has_profiled
        _has_profiled = True
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
            _without_warning(self._profiler.prepare_trace)
        return True

    def start(self) -> None:
        """Start recording."""
        if self._warms_up:
            self._profiler.start_trace()
        else:
            _without_warning(self._profiler.start)

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


def _without_warning(start: Callable[[], object]) -> None:
    """Start a profiler without the warning of PyTorch 2.12, which prints already at the first cycle
    that later ones replace its events: stderr of the job stays as it is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        start()


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

FIRST_SAFE_RELEASE = (2, 10)
"""First release in which the start of libkineto's thread is no race, after which some jobs crashed
(https://github.com/pytorch/kineto/pull/1157), and whose thread reads no closed socket at exit."""
_LIBRARY = "libtorch_cpu.so"
_START = "_ZN5torch18global_kineto_initEv"
"""torch::global_kineto_init(), which starts the thread if KINETO_USE_DAEMON is set."""
_LOADER = "_ZN9libkineto12ConfigLoader8instanceEv"
_STOP = "_ZN9libkineto12ConfigLoader10stopThreadEv"
"""libkineto::ConfigLoader: `instance()`, and its `stopThread()`, which joins the thread."""

_has_started = False


def start_libkineto() -> None:
    """Let libkineto ask the monitor for configurations, from a thread of its own.

    It starts in a process that trains rather than at the import of torch, as KINETO_USE_DAEMON
    would have it: workers, and processes that are forked before, have no such thread. It does not
    start once a profiler has: libkineto would set itself up again, and free what that one uses.
    """
    global _has_started
    directory, spool = os.environ.get(DIRECTORY_VARIABLE), os.environ.get(SPOOL_VARIABLE, "")
    is_possible = not (_has_started or _has_profiled or USE_DAEMON_VARIABLE in os.environ)
    is_possible = is_possible and ".." not in spool  # libkineto refuses such a path
    if directory is None or not is_possible or release_of(torch.__version__) < FIRST_SAFE_RELEASE:
        return
    functions, count_step = _find_functions(), PYTORCH.find("kineto_step")
    if functions is None or count_step is None:
        return
    start, loader, stop = functions
    _has_started = True
    os.environ.update(libkineto_variables(directory, spool))
    os.environ[USE_DAEMON_VARIABLE] = "1"
    try:
        start()
    finally:
        del os.environ[USE_DAEMON_VARIABLE]  # child processes must not start it at an import
    process = os.getpid()

    def stop_in_parent() -> None:
        if os.getpid() == process:
            stop(loader())

    atexit.register(stop_in_parent)
    os.register_at_fork(after_in_child=exit_without_cleanup)
    count_step()  # before it, a window is assumed to be limited by duration


def release_of(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version; (0, 0) if it does not start with them.

    >>> release_of("2.10.0a0+git1234")
    (2, 10)
    """
    first, second, *_ = [*str(version).split("."), "", ""]
    return (int(first), int(second)) if first.isdecimal() and second.isdecimal() else (0, 0)


def _find_functions() -> tuple[Callable[..., Any], ...] | None:
    """Find the functions that start libkineto's thread, return its owner, and stop it."""
    path = os.path.join(os.path.dirname(torch.__file__), "lib", _LIBRARY)
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        start, loader, stop = library[_START], library[_LOADER], library[_STOP]
    except (OSError, AttributeError):  # another build
        return None
    start.restype, start.argtypes = None, []
    loader.restype, loader.argtypes = ctypes.c_void_p, []
    stop.restype, stop.argtypes = None, [ctypes.c_void_p]
    return start, loader, stop


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
