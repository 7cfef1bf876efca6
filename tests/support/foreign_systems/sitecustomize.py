"""Imitation of macOS and Windows on Linux, for Python processes with this directory in PYTHONPATH.

The process lacks what Python has on Linux only, on Windows also what POSIX systems have, and the
file system of the kernel. The standard library, which has chosen its implementation before, and
packages of third parties are those of Linux: what they need is imported first.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import concurrent.futures.thread  # noqa: F401
import ctypes
import getpass  # noqa: F401
import importlib
import os
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from multiprocessing import spawn
from types import FrameType, ModuleType
from typing import Any

SYSTEM = os.environ["IMITATED_SYSTEM"]
PACKAGES = """
    _duckdb click.shell_completion isal.igzip msgspec multiprocessing.connection
    multiprocessing.popen_forkserver multiprocessing.popen_spawn_posix numpy.ma numpy.random psutil
    rich.console rich.table starlette.applications starlette.responses unittest.mock
    uvicorn.lifespan.on uvicorn.protocols.http.h11_impl webbrowser
"""
LINUX: dict[ModuleType, str] = {
    os: "sched_getaffinity sched_setaffinity posix_fadvise memfd_create pidfd_open eventfd "
    "getxattr copy_file_range splice setns unshare O_TMPFILE",
    signal: "sigtimedwait sigwaitinfo",
}
POSIX: dict[ModuleType, str] = {
    os: "getuid geteuid getgid getegid fork forkpty statvfs nice chown chroot killpg setsid getsid "
    "getpgid getpgrp sysconf pread pwrite preadv pwritev O_CLOEXEC O_NONBLOCK O_NOFOLLOW "
    "O_DIRECTORY mkfifo posix_spawn posix_spawnp uname getloadavg fchmod fchown lchown "
    "register_at_fork wait3 wait4 ttyname openpty",
    signal: "SIGALRM SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGCONT SIGSTOP SIGBUS SIGQUIT SIGPIPE SIGXFSZ "
    "ITIMER_REAL setitimer alarm sigpending",
}
"""Less what `multiprocessing` calls here."""
POSIX_MODULES = "crypt fcntl grp posix pty pwd readline resource syslog termios tty"
KERNEL_FILES = ("/proc/", "/sys/", "/dev/shm/")  # noqa: S108
USERS_OF_KERNEL_FILES = ("/psutil/", "/multiprocessing/")
"""Parts of paths of code that stands for that of the other system."""


class WindowsLibrary(ctypes.CDLL):
    """Library in C; on Windows the program itself is none."""

    def __init__(self, name: str | None, *arguments: Any, **options: Any) -> None:
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(name, *arguments, **options)


def hide_kernel_files(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to open a file of the kernel; see `sys.addaudithook`."""
    if event != "open" or not str(arguments[0]).startswith(KERNEL_FILES):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in USERS_OF_KERNEL_FILES):
            return
        frame = frame.f_back
    raise FileNotFoundError(2, "No such file or directory", arguments[0])


def run_spawned(*arguments: Any) -> int:
    """Run what a process of `multiprocessing` does after it has read its pipe as on Linux."""
    sys.platform = SYSTEM
    return run_process(*arguments)


for package in PACKAGES.split():
    importlib.import_module(package)
for hidden in (LINUX, POSIX) if SYSTEM == "win32" else (LINUX,):
    for module, names in hidden.items():
        for name in names.split():
            vars(module).pop(name, None)
if SYSTEM == "win32":
    sys.modules.update(dict.fromkeys(POSIX_MODULES.split()))  # type: ignore[arg-type]
    ctypes.CDLL = WindowsLibrary  # type: ignore[misc]
sys.addaudithook(hide_kernel_files)
run_process = spawn._main
spawn._main = run_spawned
if "--multiprocessing-fork" not in sys.orig_argv:
    sys.platform = SYSTEM
