"""Dask clusters for tests, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CLUSTER = """
import sys
import distributed.versions

recorded = distributed.versions._version_cached
changed = dict(text.split("=") for text in sys.argv[2:])
distributed.versions._version_cached = lambda name: changed.get(name) or recorded(name)

if __name__ == "__main__":
    with distributed.LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, dashboard_address=None
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextmanager
def dask_cluster(workers: int, **versions: str) -> Iterator[str]:
    """Run a scheduler with workers; give its address.

    Args:
        workers: number of workers. One that dies is replaced.
        versions: versions of packages that the scheduler reports instead of the real ones.
    """
    changed = [f"{name}={version}" for name, version in versions.items()]
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER, str(workers), *changed],
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
