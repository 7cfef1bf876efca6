"""The process beside the job: samples the node, drains the spool, keeps the job's status.

Belongs here: everything that reads /proc, drivers and the spool while a job runs, and turns it
into segments of the run. Does not belong here: what the numbers mean.

`launch.start_monitor` starts one; `drain` is also what `stepscope recover` uses.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
