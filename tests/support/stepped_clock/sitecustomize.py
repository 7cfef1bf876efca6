"""Clocks that are ahead or behind by what the file $CLOCK_STEP says, from its creation on.

It holds the seconds for the wall clock and those for the monotonic clock. Both ahead is what a
process sees that was suspended.
"""

import os
import pathlib
import time

NS = 1_000_000_000


def _offset_ns(index):
    try:
        seconds = pathlib.Path(os.environ["CLOCK_STEP"]).read_text(encoding="ascii").split()
        return round(NS * float(seconds[index]))
    except FileNotFoundError:  # not stepped yet
        return 0


def _step(index, read_ns):
    def step_ns():
        return read_ns() + _offset_ns(index)

    return step_ns, lambda: step_ns() / NS


time.time_ns, time.time = _step(0, time.time_ns)
time.monotonic_ns, time.monotonic = _step(1, time.monotonic_ns)
