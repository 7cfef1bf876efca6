"""Changes of the configuration while the job runs: the monitors decide on them, and apply them."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from stepscope.errors import UsageError
from stepscope.monitor.windows.service import WindowService
from stepscope.schema import ConfigurationDecision, ConfigurationRequest
from stepscope.store import ConfigurationChanges


class Reconfiguration:
    """Changes of the configuration of a run, in their order.

    Args:
        run: local directory of the run.
        windows: detailed windows of this node.
    """

    def __init__(self, run: str, windows: WindowService) -> None:
        self._changes = ConfigurationChanges(run)
        self._windows = windows
        self._count = 0
        """Number of requests that are decided and, if accepted, applied."""

    def poll(self, set_interval: Callable[[int], None]) -> None:
        """Decide on new requests, and apply the newest configuration.

        Args:
            set_interval: sets the sampling interval, in milliseconds.

        Raises:
            OSError: the run or the spool cannot be written; the next call tries again.
        """
        newest, number = None, self._count
        while (request := self._changes.read_request(number + 1)) is not None:
            decision = self._changes.read_decision(request.number)
            if decision is None:
                if newest is not None:
                    break  # that one applies first
                decision = self._changes.decide(request.number, self._decide(request))
            newest, number = decision.configuration or newest, request.number
        if newest is not None:
            self._windows.configure(newest, number)
            set_interval(newest.interval_ms)
        self._count = number

    def _decide(self, request: ConfigurationRequest) -> ConfigurationDecision:
        now_ns = time.time_ns()
        try:
            schedules = self._windows.admit(request.configuration.schedules)
        except UsageError as error:
            return ConfigurationDecision(decided_ns=now_ns, configuration=None, refusal=str(error))
        return ConfigurationDecision(
            decided_ns=now_ns,
            configuration=msgspec.structs.replace(request.configuration, schedules=schedules),
        )
