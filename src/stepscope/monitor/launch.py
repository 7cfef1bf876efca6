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

LOG_NAME = "monitor.log"
KINETO_LINK = "kineto"
"""Link in the spool to the directory of libkineto's sockets, so that both are removed together."""


def start_monitor(config: MonitorConfig) -> subprocess.Popen[bytes]:
    """Start the monitor, with `monitor.log` in the spool as its log."""
    argument = msgspec.json.encode(config).decode()
    return start_beside("stepscope.monitor", argument, log=Path(config.spool, LOG_NAME))


def start_beside(
    module: str, *arguments: str, log: Path, message: bytes = b""
) -> subprocess.Popen[bytes]:
    """Start a module of stepscope in a session of its own, so that Ctrl-C does not reach it.

    Args:
        module: module for `python -m`.
        log: file for its output.
        message: content of its standard input.
    """
    package_parent = Path(__file__).resolve().parents[2]
    path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{package_parent}{os.pathsep}{path}" if path else str(package_parent),
        "OMP_NUM_THREADS": "1",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE if message else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    if process.stdin is not None:
        with process.stdin as stdin:
            stdin.write(message)
    return process


def last_line(log: Path) -> str:
    """Read the last line of a log."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "its log is empty"


def remove_spool(spool: Path) -> None:
    """Remove a spool and its directory of sockets."""
    link = spool / KINETO_LINK
    sockets = link.readlink() if link.is_symlink() else None
    if sockets is not None and sockets.name.startswith(PREFIX):
        shutil.rmtree(sockets, ignore_errors=True)
    shutil.rmtree(spool, ignore_errors=True)
