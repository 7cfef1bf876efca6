"""Monitors that look for requests in the run of a running job."""

from __future__ import annotations

import time

from stepscope.errors import UsageError
from stepscope.quantities import duration
from stepscope.run.job_times import is_lost
from stepscope.store import RunReader


def find_listening_nodes(run: str, reader: RunReader) -> list[str]:
    """List the nodes with a listening monitor.

    Raises:
        UsageError: no monitor is listening.
    """
    if not reader.is_local:
        raise UsageError(
            f"{run} is in an object store, where no monitor looks for requests; name the directory "
            "that the job is recorded into"
        )
    statuses = reader.statuses()
    if not statuses:
        raise UsageError(f"no monitor has written to {run} yet; is its job running?")
    running = {node: status for node, status in statuses.items() if not status.state.is_final}
    if not running:
        raise UsageError(f"the job of {run} is over")
    listening = [node for node, status in running.items() if not is_lost(status)]
    if not listening:
        age = min((time.time_ns() - status.heartbeat_ns) / 1e9 for status in running.values())
        raise UsageError(
            f"the monitor of {run} has sent no heartbeat for {duration(1e9 * age)}; if the job is "
            f"gone, recover the rest with: stepscope recover {run}"
        )
    return listening
