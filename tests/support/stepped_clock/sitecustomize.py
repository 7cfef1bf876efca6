"""Wall clock that goes back by an hour as soon as the file $CLOCK_STEP exists."""

import os
import pathlib
import time

HOUR_NS = 3_600_000_000_000


def _set_back(read_ns):
    def read():
        return read_ns() - (HOUR_NS if pathlib.Path(os.environ["CLOCK_STEP"]).exists() else 0)

    return read


time.time_ns = _set_back(time.time_ns)
