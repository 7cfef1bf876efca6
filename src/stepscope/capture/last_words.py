"""Record of the end of a process: what it wrote to `sys.stderr` last, its uncaught exception, and
its stacks at a fatal signal."""

from __future__ import annotations

import os
import stat
import sys

from stepscope.spool import NO_OUTPUT_VARIABLE, OutputRing, note_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

FATAL_SIGNALS = (4, 6, 7, 8, 11)
"""SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV, for which `faulthandler` installs handlers."""
MIN_DESCRIPTOR = 200
"""Descriptors from here on survive a job that closes and opens again the first ones."""


def note_uncaught(spool: str, exception: str) -> None:
    """Note the exception that the interpreter has just printed.

    Raises:
        OSError: the spool cannot be written.
    """
    value = getattr(sys, "last_value", None)
    traceback = getattr(sys, "last_traceback", None)
    message = _read_message(value)
    frames = _list_frames(traceback)
    lines = _format(value, traceback)
    if not lines:
        lines = [f'  File "{file}", line {line}, in {name}' for file, line, name in frames[::-1]]
        lines += f"{exception}: {message}".splitlines()
    note_failure(spool, exception, message, frames=frames, traceback=lines)


def _read_message(value: BaseException | None) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - code of the job, which has failed once already
        return ""


def _list_frames(traceback: TracebackType | None) -> list[tuple[str, int, str]]:
    """List file, line and function of the frames of a traceback, innermost first."""
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # Python 3.11
        frames.append((code.co_filename, traceback.tb_lineno, name))
        traceback = traceback.tb_next
    return frames[::-1]


def _format(value: BaseException | None, traceback: TracebackType | None) -> list[str]:
    """Format an exception as the interpreter prints it, with the module of that name that the job
    has loaded: importing one now might run a file of the job. Empty without it."""
    module = sys.modules.get("traceback")
    try:
        text = "".join(module.format_exception(type(value), value, traceback))  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001 - code of the job, which has failed once already
        return []
    return text.splitlines()


_ring: OutputRing | None = None
"""Ring of this process; None in forks until they record, and where a file keeps the output."""


def record_error_output(path: str) -> None:
    """Record what the program writes to `sys.stderr`, beside where it goes.

    A regular file keeps it anyway. What is written to the descriptor without Python is not seen.
    """
    global _ring
    stream = sys.stderr
    try:
        if os.environ.get(NO_OUTPUT_VARIABLE) == "1":
            return
        is_replaced = stream is not sys.__stderr__
        if stream is None or is_replaced or stat.S_ISREG(os.fstat(2).st_mode):
            return
        _ring = OutputRing(path)
        if "write" in vars(stream):
            return
        write = stream.write

        def write_and_record(text: str) -> int:
            count = write(text)
            if _ring is not None:
                try:
                    _ring.write(text)
                except Exception:  # noqa: BLE001, S110 - it was written where it should
                    pass
            return count

        vars(stream)["write"] = write_and_record
        os.register_at_fork(after_in_child=_forget_ring)
    except Exception:  # noqa: BLE001 - without the output, as with a stream of another kind
        _ring = None


def _forget_ring() -> None:
    global _ring
    _ring = None


def write_crashes_to(path: str) -> None:
    """Let the interpreter write its stacks into a file at a signal that is a fault of the process,
    but not those of its forks.

    Nothing changes where a handler is installed, which may resume the process, as those of a Java
    machine do, or where the job itself has enabled `faulthandler`.
    """
    try:
        import faulthandler
        import fcntl

        if faulthandler.is_enabled() or _has_handlers():
            return
        low = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            descriptor = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, MIN_DESCRIPTOR)
        finally:
            os.close(low)
        options = {"c_stack": False} if sys.version_info >= (3, 14) else {}
        faulthandler.enable(descriptor, **options)
        os.register_at_fork(after_in_child=lambda: _forget_file(descriptor, path))
    except Exception:  # noqa: BLE001, S110 - without stacks, as under a limit of the process
        pass


def _forget_file(descriptor: int, path: str) -> None:
    """Let a fork write its stacks nowhere: the file is that of its parent."""
    try:
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor, inheritable=False)
            os.close(null)
    except OSError:  # it was closed
        pass


def _has_handlers() -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        mask = next((line.split()[1] for line in file if line.startswith("SigCgt")), "0")
    return any(int(mask, 16) >> (number - 1) & 1 for number in FATAL_SIGNALS)
