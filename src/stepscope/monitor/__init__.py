"""Monitor of a job, in a process of its own: samples the node, drains the spool, writes the status
of the job.

Belongs here: reading /proc, drivers and the spool while a job runs, and writing segments of the
run. Does not belong here: the interpretation of the figures.

    samplers/     samples of the node
    windows/      detailed windows
    attached/     processes of a job that was running already, from outside
    config        start of a monitor, and the state that launcher and monitor exchange
    loop          sampling and flushing, until the job has ended
    sampling      samples within the budget of the monitor
    control       ends of processes, stop requests, changes of the configuration
    spool_files   lock and size of a spool, samples in it
    process_logs  the files of one process in the spool
    drain         records of the spool as rows of tables
    node_writer   a node's part of the run, for the monitor and for `stepscope recover`
    registration  launchers of one job in a run that they share; leases
    stuck_watch   ranks that make no progress, and their stacks
    hang_watch    any process that makes none: `process_progress` reads its records,
                  `process_accounts` describes it; `snapshot` for a job that is not recorded
    host          description of the node
    unrecorded    processes that are not recorded, and why
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
