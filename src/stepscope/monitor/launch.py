"""Starting processes of ours beside a job."""

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
"""In the spool: leads to the directory of libkineto's sockets, so that both go together."""


def start_monitor(config: MonitorConfig) -> subprocess.Popen[bytes]:
    """Start the monitor; its messages go to `monitor.log` in the spool."""
    argument = msgspec.json.encode(config).decode()
    return start_beside("stepscope.monitor", argument, log=Path(config.spool, LOG_NAME))


def start_beside(
    module: str, *arguments: str, log: Path, message: bytes = b""
) -> subprocess.Popen[bytes]:
    """Start a module of ours in a session of its own, so that a terminal's Ctrl-C passes it by.

    Args:
        module: run as `python -m`.
        log: where its messages go.
        message: what it finds on its standard input.
    """
    package_parent = Path(__file__).resolve().parents[2]
    path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{package_parent}{os.pathsep}{path}" if path else str(package_parent),
        "OMP_NUM_THREADS": "1",
    }
    with log.open("ab") as messages:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE if message else subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
            env=environment,
            start_new_session=True,
        )
    if process.stdin is not None:
        with process.stdin as stdin:
            stdin.write(message)
    return process


def last_line(log: Path) -> str:
    """The last thing that a process beside the job has said."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it left no message"


def remove_spool(spool: Path) -> None:
    """Remove a spool and the directory of sockets that goes with it."""
    link = spool / KINETO_LINK
    sockets = link.readlink() if link.is_symlink() else None
    if sockets is not None and sockets.name.startswith(PREFIX):
        shutil.rmtree(sockets, ignore_errors=True)
    shutil.rmtree(spool, ignore_errors=True)
