"""Monitor of a job, in a process of its own: samples the node, drains the spool, writes the status
of the job.

Belongs here: reading /proc, drivers and the spool while a job runs, and writing segments of the
run. Does not belong here: the interpretation of the figures.

    launch       starts a monitor
    loop         sampling and flushing, until the job has ended
    samplers     samples of the node
    sample_log   the samples in the spool
    spool_lock   one process at a time stores a spool
    process_logs the files of one process in the spool
    drain        records of the spool as rows of tables
    node_writer  a node's part of the run, for the monitor and for `stepscope recover`
    windows      detailed windows
    attached     processes of a job that was running already, from outside
    registration launchers of one job in a run that they share
    handshake    files through which launcher and monitor exchange the state of the job
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
