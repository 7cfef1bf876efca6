"""Windows that PyTorch's own library records in a thread of its own, as the monitor tells it.

libkineto asks the monitor for a configuration once a second (`monitor.kineto_peer`). What it is
told never names an iteration: recording begins and ends with the calls made here, so a window
keeps to the steps that stepscope reports, whatever the job's optimizers do.

    prepare   the first call after libkineto has its configuration: device tracing warms up
    start     the second: recording
    stop      the third: the rest happens in libkineto's own threads

What had to be known of libkineto (torch 2.13):

- It records operators whatever activity types it is told; only the file leaves them out. A light
  window therefore switches operator callbacks off in the training thread.
- A process that ends, or starts a profiler of its own, while a window is recorded or written
  dies of a segmentation fault. Both wait until the file is there.
- A child forked after torch was imported hangs when it ends: it waits for libkineto's thread,
  which fork has not copied.
- A job in which a window was recorded ends up to two seconds later: libkineto's thread sleeps a
  second at a time, and is waited for.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

from stepscope.capture.kineto_daemon import DIRECTORY_VARIABLE
from stepscope.spool import Depth, WindowPlan, finished_file

POLL_S = 0.01
THREAD_NAME = "Kineto Activity"
"""Of the thread that writes the file; a nameless one, made at the end of a window, precedes it."""
NICENESS = 10
SETTLE_S = 0.1
"""Between the file's last byte and libkineto's readiness for another profiler."""

_serves = False


def install() -> None:
    """Take over the counting of steps, and let forked children end."""
    global _serves
    _serves = _asks_our_monitor()
    if not _serves:
        return
    profiler: Any = torch.autograd.profiler
    profiler._kineto_step = _count_nothing
    os.register_at_fork(after_in_child=end_at_once)


def begin_counting() -> None:
    """Before the first call, libkineto would take a window for one with a duration."""
    if _serves:
        torch._C._autograd._kineto_step()


class LibkinetoRecorder:
    """One window."""

    warm_up_steps = 1

    def __init__(self, plan: WindowPlan, directory: str) -> None:
        self._temporary = finished_file(directory, plan.number, os.getpid()) + ".tmp"
        self._light = plan.depth == Depth.LIGHT

    def prepare(self) -> bool:
        """Begin to warm up; False while libkineto has no configuration yet."""
        torch._C._autograd._kineto_step()
        return not self.written()

    def start(self) -> None:
        """Record from here on."""
        torch._C._autograd._kineto_step()
        if self._light:
            torch._C._autograd._enable_record_function(False)

    def stop(self) -> None:
        """Record no more. libkineto's thread takes a while to stop; this one does at once."""
        torch._C._autograd._enable_record_function(False)
        before = _threads()
        torch._C._autograd._kineto_step()
        for thread in _threads():
            if thread not in before or _thread_name(thread).startswith(THREAD_NAME):
                _step_back(int(thread))

    def written(self) -> bool:
        """True when nothing is under way."""
        return not os.path.exists(self._temporary)

    def release(self) -> None:
        """Let operator callbacks be called again, in the thread that stopped them."""
        torch._C._autograd._enable_record_function(True)

    def finish(self, limit_s: float) -> bool:
        """Wait until the file is there; False when it is not in time."""
        deadline = time.monotonic() + limit_s
        while not self.written():
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
    except OSError:  # it has ended
        return ""


def _step_back(thread: int) -> None:
    """Where cores are short, training goes before the writing of the file."""
    try:
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
    except OSError:  # it has ended, or the job has stepped back further
        pass


def end_at_once() -> None:
    """Have this process end without the profiler's clean-up, which would wait or crash.

    When it comes to exit, C's buffered output is written and the process is gone, with the exit
    status that it wanted. Functions that C code registered before this call do not run.
    """
    libc = ctypes.CDLL(None)
    on_exit, at_exit = libc.on_exit, libc.__cxa_atexit
    on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    at_exit(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)  # runs before the other


def _asks_our_monitor() -> bool:
    """True where this torch was imported with the monitor as its daemon."""
    ours = os.environ.get(DIRECTORY_VARIABLE)
    if not ours or os.environ.get("KINETO_IPC_SOCKET_DIR") != ours:
        return False
    hooks = _global_optimizer_post_hooks.values()  # torch counts steps for a daemon only
    return any(getattr(hook, "__name__", "") == "_optimizer_post_hook" for hook in hooks)


def _count_nothing() -> None:
    """In the place of torch's own counting."""
