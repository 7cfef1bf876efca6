"""Take steps, and end in a given way: `steps.py COUNT [EXIT_CODE] [WAIT_FOR_FILE]`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import stepscope

count, exit_code = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
for _ in range(count + 1):  # a step is the time between two marks
    with stepscope.annotate("work"):
        sum(range(20_000))
    stepscope.step()
if len(sys.argv) > 3:
    pause, end = threading.Event(), Path(sys.argv[3])
    while not end.exists():
        pause.wait(0.02)
sys.exit(exit_code)
