"""Starting a monitor beside a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from stepscope.monitor.config import MonitorConfig

LOG_NAME = "monitor.log"


def start_monitor(config: MonitorConfig) -> subprocess.Popen[bytes]:
    """Start the monitor in a session of its own, so that a terminal's Ctrl-C passes it by.

    Its messages go to `monitor.log` in the spool.
    """
    package_parent = Path(__file__).resolve().parents[2]
    path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{package_parent}{os.pathsep}{path}" if path else str(package_parent),
        "OMP_NUM_THREADS": "1",
    }
    with Path(config.spool, LOG_NAME).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "stepscope.monitor", msgspec.json.encode(config).decode()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
