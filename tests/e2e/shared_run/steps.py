"""Take steps, and end in a given way: `steps.py COUNT [EXIT_CODE] [WAIT_FOR_FILE]`.

With MEETING, a directory, the ranks of the first start of torchrun take twelve steps, wait there
for each other, and fail.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import stepscope

count, exit_code = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
fails = "MEETING" in os.environ and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
for _ in range((12 if fails else count) + 1):  # a step is the time between two marks
    with stepscope.annotate("work"):
        sum(range(20_000))
    stepscope.step()
pause = threading.Event()
if fails:
    meeting = Path(os.environ["MEETING"])
    (meeting / os.environ["RANK"]).touch()
    while len(list(meeting.iterdir())) < int(os.environ["WORLD_SIZE"]):
        pause.wait(0.02)
    os._exit(3)
if len(sys.argv) > 3:
    end = Path(sys.argv[3])
    while not end.exists():
        pause.wait(0.02)
sys.exit(exit_code)
