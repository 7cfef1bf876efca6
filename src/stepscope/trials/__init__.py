"""Trials of changes: the job's own command, run alternately with and without a change.

    candidates   changes to try: those of fixes, or named by the user
    schedule     command of a recorded job, reasons not to repeat it; warm-up and measured steps
    processes    start of one trial, and its report
    sandbox      supervisor of one trial: discards its writes, ends its processes
    session      pairs of trials, and their result

Patches inside the job belong to `capture.trial`, formulas to `analysis`, text to `cli`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
