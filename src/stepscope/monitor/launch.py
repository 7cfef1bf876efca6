"""Start of stepscope's own processes next to a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from stepscope.capture.kineto_daemon import PREFIX
from stepscope.monitor.config import MonitorConfig

KINETO_LINK = "kineto"
"""Link in the spool to the directory of libkineto's sockets, so that both are removed together."""


def open_log() -> int:
    """Return the descriptor of a log in memory: the disks of the run and of the spool may be full
    when there is something to say."""
    return os.memfd_create("stepscope-log")


def start_monitor(config: MonitorConfig, log: int) -> subprocess.Popen[bytes]:
    """Start the monitor, with a log of `open_log`."""
    argument = msgspec.json.encode(config).decode()
    return start_beside("stepscope.monitor", argument, log=log)


def start_beside(
    module: str, *arguments: str, log: int, message: bytes = b""
) -> subprocess.Popen[bytes]:
    """Start a module of stepscope in a session of its own, so that Ctrl-C does not reach it.

    Args:
        module: module for `python -m`.
        log: descriptor for its output.
        message: content of its standard input.
    """
    package_parent = Path(__file__).resolve().parents[2]
    path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{package_parent}{os.pathsep}{path}" if path else str(package_parent),
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE if message else subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
    )
    if process.stdin is not None:
        with process.stdin as stdin:
            stdin.write(message)
    return process


def last_line(log: int) -> str:
    """Read the last line of a log."""
    text = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
    return text.strip().rpartition("\n")[2] or "its log is empty"


def remove_spool(spool: Path) -> None:
    """Remove a spool and its directory of sockets."""
    link = spool / KINETO_LINK
    sockets = link.readlink() if link.is_symlink() else None
    if sockets is not None and sockets.name.startswith(PREFIX):
        shutil.rmtree(sockets, ignore_errors=True)
    shutil.rmtree(spool, ignore_errors=True)
