"""Fleet: the hours and the money of many runs, and what would save some of them.

    run_figures   figures of one run, from the summary that is stored with it
    reading       the runs below a directory or URL, read where they are or on other machines
    payload       the report
    add_up        sums by class of time, bottleneck, fix, and group of runs

Hours are GPU-hours of a run with GPUs, else core-hours; they are never added to each other. Sums
are rounded once, so that they do not depend on the order of the runs.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
