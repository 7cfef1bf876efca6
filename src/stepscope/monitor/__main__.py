"""`python -m stepscope.monitor CONFIG-AS-JSON`: started by the launcher, not by people."""

from __future__ import annotations

import os
import sys

import msgspec

from stepscope.monitor.config import MonitorConfig
from stepscope.monitor.loop import Monitor

NICENESS = 10
"""The job goes first."""


def main() -> None:
    """Run one monitor."""
    config = msgspec.json.decode(sys.argv[1], type=MonitorConfig)
    os.nice(NICENESS)
    Monitor(config).run()


if __name__ == "__main__":
    main()
