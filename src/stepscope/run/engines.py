"""Engines for the parts of a run: this process, executors, workers of a Dask scheduler.

Engines on executors of `concurrent.futures`. A worker opens the run itself, at its directory or
URL, and reads only its part. Executors are imported where they are used, which takes 30 ms: most
runs have few parts.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from stepscope import cores, errors, store
from stepscope.errors import require
from stepscope.run.model.engine import Engine, Part, RunT, Table, Task
from stepscope.store import RunReader

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

MIN_POOL_PARTS = 8
"""Parts from which processes are worth their start."""


class LocalEngine(Engine):
    """Engine that starts processes on this machine for a run of many parts."""

    def __init__(self) -> None:
        self._processes: Engine | None = None

    def compute(self, task: Task[RunT, Part, Table]) -> list[Table]:
        """See `Engine.compute`."""
        return self._choose(len(task.parts)).compute(task)

    def apply(self, function: Callable[[Part], Table], items: Sequence[Part]) -> list[Table]:
        """See `Engine.apply`."""
        return self._choose(len(items)).apply(function, items)

    def _choose(self, part_count: int) -> Engine:
        if part_count < MIN_POOL_PARTS:
            return Engine()
        if self._processes is None:
            self._processes = ProcessEngine()
        return self._processes

    def close(self) -> None:
        """See `Engine.close`."""
        if self._processes is not None:
            self._processes.close()


def choose_engine(scheduler: str | None) -> Engine:
    """Choose the engine for the parts of a run.

    Args:
        scheduler: address of a Dask scheduler; None for this machine.

    Raises:
        StepscopeError: the scheduler cannot be used.
    """
    if scheduler is None:
        return LocalEngine()
    return DaskEngine(scheduler)


POLL_S = 1.0
"""Interval at which an executor without results is checked."""
Unreadable = dict[str, tuple[str, str]]
"""As of `RunReader.unreadable`."""


class ExecutorEngine(Engine):
    """Engine whose parts are computed by `apply`, on workers that open the run themselves."""

    def compute(self, task: Task[RunT, Part, Table]) -> list[Table]:
        """See `Engine.compute`."""
        reader = task.run.reader
        for table in task.tables:
            reader.has(table)  # the listing shows whether files are missing
        call = partial(_call, type(task.run), reader.location, task.function)
        results = self.apply(call, task.parts)
        for _, unreadable in results:
            reader.add_unreadable(unreadable)
        return [table for table, _ in results]


class ProcessEngine(ExecutorEngine):
    """Engine with as many processes as there are cores, from its first call until it is closed."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None

    def apply(self, function: Callable[[Part], Table], items: Sequence[Part]) -> list[Table]:
        """See `Engine.apply`."""
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        if self._executor is None:
            # A fork would inherit the locks of DuckDB, but not its threads.
            self._executor = ProcessPoolExecutor(
                cores.available_cores(), get_context("spawn"), _ignore_interrupts
            )
        try:
            return apply_on(self._executor, function, items)
        except BrokenProcessPool:
            self.close()
            raise errors.StepscopeError(
                "A process that read a part of the run was killed, probably because memory ran "
                "out. Close other programs, or read the run on other machines with "
                "`stepscope show RUN VIEW --scheduler ADDRESS`."
            ) from None

    def close(self) -> None:
        """End the processes."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


def apply_on(
    executor: Executor,
    function: Callable[[Part], Table],
    items: Sequence[Part],
    *,
    check: Callable[[], None] = lambda: None,
) -> list[Table]:
    """Call a function for each item on an executor; results in the order of the items.

    Args:
        executor: its workers can import stepscope.
        check: raises an error if the executor has failed; called while there are no results.
    """
    from concurrent.futures import FIRST_COMPLETED, wait

    futures: list[Future[Table]] = [executor.submit(function, item) for item in items]
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
    return [future.result() for future in futures]


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which ends its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _call(
    run_type: type[RunT], location: str, function: Callable[[RunT, Part], Table], part: Part
) -> tuple[Table, Unreadable]:
    """Call a function in a worker; return its result and the segments that were unreadable."""
    reader = _open_reader(location)
    return function(run_type(reader), part), reader.unreadable


@lru_cache(maxsize=1)
def _open_reader(location: str) -> RunReader:
    """Open a run once for the parts of one worker; there is a worker for each core."""
    return store.open_run(location, threads=1)


CONNECT_TIMEOUT_S = 10
REPLACEMENT_TIMEOUT_S = 30
"""Time in which lost workers have to be replaced."""
PACKAGES = ("distributed", "stepscope", "numpy")
"""Packages of which a scheduler and its workers have the version of this machine: tasks are
pickled, and sums depend on NumPy in their last digits."""


class DaskEngine(ExecutorEngine):
    """Engine on the workers of a Dask scheduler.

    Args:
        address: of the scheduler, such as tcp://10.0.0.1:8786.

    Raises:
        UsageError: the scheduler does not answer, has no workers, or other versions of packages.
    """

    def __init__(self, address: str) -> None:
        import logging
        from concurrent.futures import CancelledError

        distributed = require("distributed", extra="dask")
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # its errors are raised, too
        self._address = address
        self._losses = (
            distributed.KilledWorker,
            distributed.comm.CommClosedError,
            CancelledError,
            NoWorkers,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", distributed.versions.VersionMismatchWarning)
            try:
                self._client = distributed.Client(
                    address, timeout=CONNECT_TIMEOUT_S, set_as_default=False
                )
            except (OSError, ValueError) as error:
                raise errors.UsageError(
                    f"No Dask scheduler answers at {address}. Start one with `dask scheduler`, and "
                    "pass the address that it prints."
                ) from error
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
            self._check_versions(self._client.get_versions(packages=list(PACKAGES)))
        except TimeoutError:
            self.close()
            raise errors.UsageError(
                f"The Dask scheduler at {address} has no workers. Start at least one with "
                f"`dask worker {address}`."
            ) from None
        except errors.UsageError:
            self.close()
            raise

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()

    def apply(self, function: Callable[[Part], Table], items: Sequence[Part]) -> list[Table]:
        """See `Engine.apply`. Parts of a lost worker are computed by the others."""
        executor, presence = self._client.get_executor(pure=False), _Presence(self._client)
        try:
            return apply_on(executor, function, items, check=presence.check)
        except self._losses as error:
            raise errors.StepscopeError(
                f"The workers of the Dask scheduler at {self._address} were lost while they read "
                "the run, probably because their memory ran out. Start workers with more memory, "
                "and repeat the command."
            ) from error
        except errors.NotARunError as error:
            raise errors.UsageError(
                f"A worker of the Dask scheduler at {self._address} cannot open the run: use a "
                "directory that all machines share, or a URL."
            ) from error

    def _check_versions(self, versions: Mapping[str, Any]) -> None:
        """Refuse a scheduler or workers with other versions than those of this machine."""
        expected = versions["client"]["packages"]
        workers = {f"The Dask worker {key}": info for key, info in versions["workers"].items()}
        for name, info in {"The Dask scheduler": versions["scheduler"], **workers}.items():
            for package in PACKAGES:
                version = info["packages"].get(package)
                if version != expected[package]:
                    installed = f"{package} {version}" if version else f"no {package}"
                    raise errors.UsageError(
                        f"{name} has {installed}, but this machine has {expected[package]}. "
                        "Install the same version on both."
                    )


class NoWorkers(Exception):  # noqa: N818 - `compute` states the error
    """Scheduler whose lost workers were not replaced in time."""


class _Presence:
    """Watch over the workers of a scheduler."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last_present_s = time.monotonic()

    def check(self) -> None:
        """Raise NoWorkers if there have been no workers for a while."""
        if len(self._client.scheduler_info(n_workers=-1)["workers"]):
            self._last_present_s = time.monotonic()
        elif time.monotonic() - self._last_present_s > REPLACEMENT_TIMEOUT_S:
            raise NoWorkers
