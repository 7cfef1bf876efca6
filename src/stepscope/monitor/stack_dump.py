"""Stack of a process that does not answer, by py-spy, which needs no cooperation."""

from __future__ import annotations

import shutil
import subprocess

import msgspec

from stepscope.schema import MALFORMED_JSON

TIMEOUT_S = 5.0
"""Time for all stacks of one account: the monitor reads nothing else meanwhile."""
NO_ANSWER = "it does not answer, because a thread holds the interpreter lock"


class _Frame(msgspec.Struct):
    name: str
    filename: str = ""
    line: int = 0


class _Thread(msgspec.Struct):
    thread_id: int
    thread_name: str | None = None
    os_thread_id: int | None = None
    frames: list[_Frame] = []


def dump_stack(pid: int, timeout_s: float = TIMEOUT_S) -> tuple[list[tuple[str, int, str]], str]:
    """Read the stack of the main thread.

    Args:
        pid: the process.
        timeout_s: time for it; without any the process is not read.

    Returns:
        File, line and function of its frames, innermost first; and why the process has not
        answered, with the reason why there is no stack.
    """
    program = shutil.which("py-spy")
    if program is None:
        return [], f"{NO_ANSWER}; py-spy, which could read its stack, is not installed"
    if timeout_s <= 0:
        return [], f"{NO_ANSWER}; there was no time to read its stack"
    try:
        result = subprocess.run(
            [program, "dump", "--pid", str(pid), "--json", "--nonblocking", "--full-filenames"],
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        threads = msgspec.json.decode(result.stdout, type=list[_Thread])
    except (OSError, subprocess.TimeoutExpired, *MALFORMED_JSON):
        return [], f"{NO_ANSWER}; py-spy could not read its stack"
    for thread in threads:
        if thread.os_thread_id == pid or thread.thread_name == "MainThread":
            frames = [(frame.filename, frame.line, frame.name) for frame in thread.frames]
            return frames, NO_ANSWER
    return [], NO_ANSWER
