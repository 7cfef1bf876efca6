"""Engines on executors of `concurrent.futures`.

A worker opens the run itself, at its directory or URL, and reads only its part.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context

from stepscope import store
from stepscope.cores import available_cores
from stepscope.errors import StepscopeError
from stepscope.run.engine import Engine, Part, RunT, Table, Task
from stepscope.store import RunReader

POLL_S = 1.0
"""Interval at which an executor without results is checked."""
Unreadable = dict[str, tuple[str, str]]
"""As of `RunReader.unreadable`."""


class ProcessEngine(Engine):
    """Engine with as many processes as there are cores, from its first call until it is closed."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None

    def compute(self, task: Task[RunT, Part, Table]) -> list[Table]:
        """See `Engine.compute`."""
        if self._executor is None:
            # A fork would inherit the locks of DuckDB, but not its threads.
            self._executor = ProcessPoolExecutor(
                available_cores(), get_context("spawn"), _ignore_interrupts
            )
        try:
            return compute_on(self._executor, task)
        except BrokenProcessPool:
            self.close()
            raise StepscopeError(
                "A process that read a part of the run was killed, probably because memory ran "
                "out. Close other programs, or read the run on other machines with "
                "`stepscope show RUN VIEW --scheduler ADDRESS`."
            ) from None

    def close(self) -> None:
        """End the processes."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


def compute_on(
    executor: Executor,
    task: Task[RunT, Part, Table],
    *,
    check: Callable[[], None] = lambda: None,
) -> list[Table]:
    """Compute the results of a task, in the order of its parts.

    Args:
        executor: its workers can import stepscope and open the run.
        check: raises an error if the executor has failed; called while there are no results.
    """
    reader = task.run.reader
    for table in task.tables:
        reader.has(table)  # the listing shows whether files are missing
    futures: list[Future[tuple[Table, Unreadable]]] = [
        executor.submit(_call, type(task.run), reader.location, task.function, part)
        for part in task.parts
    ]
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            if not done:
                check()
            for future in done:
                future.result()
    finally:
        for future in pending:
            future.cancel()
    results = [future.result() for future in futures]
    for _, unreadable in results:
        reader.add_unreadable(unreadable)
    return [table for table, _ in results]


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which ends its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _call(
    run_type: type[RunT],
    location: str,
    function: Callable[[RunT, Part], Table],
    part: Part,
) -> tuple[Table, Unreadable]:
    """Call a function in a worker; return its result and the segments that were unreadable."""
    reader = _open_reader(location)
    return function(run_type(reader), part), reader.unreadable


@lru_cache(maxsize=1)
def _open_reader(location: str) -> RunReader:
    """Open a run once for the parts of one worker; there is a worker for each core."""
    return store.open_run(location, threads=1)
