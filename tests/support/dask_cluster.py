"""Dask clusters for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import LocalCluster

_CLUSTER = """
import sys
import dask
import distributed

if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with distributed.LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextmanager
def dask_cluster(workers: int) -> Iterator[str]:
    """Run a scheduler with workers, each in a process of its own; give its address.

    Args:
        workers: number of workers. One that dies is replaced; a part on which two die has failed.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER, str(workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, "the scheduler has not started"
        yield address
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


@contextmanager
def threaded_cluster() -> Iterator[LocalCluster]:
    """Run a scheduler and one worker in threads of this process."""
    import distributed

    with distributed.LocalCluster(
        n_workers=1, processes=False, protocol="tcp://", dashboard_address=":0"
    ) as cluster:
        yield cluster
