"""Engine on the workers of a Dask scheduler."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any

from stepscope._optional import require
from stepscope.errors import NotARunError, StepscopeError, UsageError
from stepscope.run.engine import Engine, Part, RunT, Table, Task
from stepscope.run.executors import compute_on

CONNECT_TIMEOUT_S = 10
REPLACEMENT_TIMEOUT_S = 30
"""Time in which lost workers have to be replaced."""
PACKAGES = ("distributed", "stepscope", "numpy")
"""Packages of which a scheduler and its workers have the version of this machine: tasks are
pickled, and sums depend on NumPy in their last digits."""


class DaskEngine(Engine):
    """Engine on the workers of a Dask scheduler.

    Args:
        address: of the scheduler, such as tcp://10.0.0.1:8786.

    Raises:
        UsageError: the scheduler does not answer, has no workers, or other versions of packages.
    """

    def __init__(self, address: str) -> None:
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
                raise UsageError(
                    f"No Dask scheduler answers at {address}. Start one with `dask scheduler`, and "
                    "pass the address that it prints."
                ) from error
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
            self._check_versions(self._client.get_versions(packages=list(PACKAGES)))
        except TimeoutError:
            self.close()
            raise UsageError(
                f"The Dask scheduler at {address} has no workers. Start at least one with "
                f"`dask worker {address}`."
            ) from None
        except UsageError:
            self.close()
            raise

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()

    def compute(self, task: Task[RunT, Part, Table]) -> list[Table]:
        """See `Engine.compute`. Parts of a lost worker are computed by the others."""
        executor, presence = self._client.get_executor(pure=False), _Presence(self._client)
        try:
            return compute_on(executor, task, check=presence.check)
        except self._losses as error:
            raise StepscopeError(
                f"The workers of the Dask scheduler at {self._address} were lost while they read "
                "the run, probably because their memory ran out. Start workers with more memory, "
                "and repeat the command."
            ) from error
        except NotARunError as error:
            raise UsageError(
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
                    raise UsageError(
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
