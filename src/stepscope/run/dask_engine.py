"""Engine on the workers of a Dask scheduler."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from stepscope._optional import require
from stepscope.errors import StepscopeError, UsageError
from stepscope.run.engine import Engine, Part, RunT, Table
from stepscope.run.executors import map_on

CONNECT_TIMEOUT_S = 10
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
        self._failures = (distributed.KilledWorker, CancelledError, OSError)
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
            self._check_workers()
            self._check_versions(self._client.get_versions(packages=list(PACKAGES)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()

    def map(
        self,
        run: RunT,
        function: Callable[[RunT, Part], Table],
        parts: Sequence[Part],
        *,
        tables: Sequence[str] = (),
    ) -> list[Table]:
        """See `Engine.map`. Parts of a lost worker are computed by the others."""
        executor = self._client.get_executor(pure=False)
        try:
            return map_on(executor, run, function, parts, tables=tables, check=self._check_workers)
        except self._failures as error:
            raise StepscopeError(
                f"The workers of the Dask scheduler at {self._address} were lost while they read "
                "the run, probably because their memory ran out. Start workers with more memory, "
                "and repeat the command."
            ) from error

    def _check_workers(self) -> None:
        if not self._client.scheduler_info(n_workers=-1)["workers"]:
            raise UsageError(
                f"The Dask scheduler at {self._address} has no workers. Start at least one with "
                f"`dask worker {self._address}`."
            )

    def _check_versions(self, versions: Mapping[str, Any]) -> None:
        """Refuse a scheduler or workers with other versions than those of this machine."""
        own = versions["client"]["packages"]
        others = {"The Dask scheduler": versions["scheduler"], **versions["workers"]}
        for name, other in others.items():
            for package in PACKAGES:
                version = other["packages"].get(package)
                if version != own[package]:
                    where = name if name.startswith("The ") else f"The Dask worker {name}"
                    has = f"{package} {version}" if version else f"no {package}"
                    raise UsageError(
                        f"{where} has {has}, but this machine has {own[package]}. Install the same "
                        "version on both."
                    )
