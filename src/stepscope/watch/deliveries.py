"""The news of each finding, once to every action.

Every action has a thread and a bounded queue of its own: whatever it does, neither the scan loop
nor another action waits for it. What fails is tried again, after pauses that grow.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from stepscope.schema import Delivery, DeliveryState
from stepscope.watch.actions import Action, ActionError, Alert
from stepscope.watch.config import ActionConfig

MOST_WAITING = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and when a failed action is tried again."""

    tries: int = 5
    first_wait_s: float = 1.0
    growth: float = 2.0

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures."""
        return self.first_wait_s * self.growth ** (failures - 1)


class Deliveries:
    """Who was told of what, and who is being told.

    Args:
        actions: what to do, and how.
        earlier: what a watch process before this one has recorded. What it had begun and not
            ended is done again, because nobody knows whether it arrived.
        changed: called, from any thread, when there is something new to record.
        retry: of all actions.
    """

    def __init__(
        self,
        actions: Iterable[tuple[ActionConfig, Action]],
        *,
        earlier: Iterable[Delivery] = (),
        changed: Callable[[], None] = lambda: None,
        retry: Retry = Retry(),
    ) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._entries = {
            _key(each): each for each in earlier if each.state is not DeliveryState.PENDING
        }
        self._couriers = [
            (config, _Courier(action, self._put, retry)) for config, action in actions
        ]

    @property
    def entries(self) -> list[Delivery]:
        """All of them, in the order in which they were begun."""
        with self._lock:
            return list(self._entries.values())

    @property
    def pending(self) -> bool:
        """True while something is on its way."""
        return any(each.state is DeliveryState.PENDING for each in self.entries)

    def announce(self, alert: Alert, *, why_no_stop: str | None = None) -> None:
        """Have everybody told who was not told before; returns at once.

        Args:
            alert: of what.
            why_no_stop: why the job cannot be stopped; None when it can.
        """
        for number, (config, courier) in enumerate(self._couriers):
            if config.rules is not None and alert.rule not in config.rules:
                continue
            delivery = Delivery(
                action=config.kind, number=number, target=config.target, rule=alert.rule
            )
            if _key(delivery) in {_key(each) for each in self.entries}:
                continue
            if config.kind == "stop" and why_no_stop is not None:
                self._put(_failed(delivery, why_no_stop))
                continue
            self._put(delivery)
            if not courier.send(alert, delivery):
                self._put(_failed(delivery, f"{MOST_WAITING} others were waiting"))

    def give_up(self) -> None:
        """Nothing more will be tried."""
        for each in self.entries:
            if each.state is DeliveryState.PENDING:
                error = each.error or "it had not been answered when the job's watch ended"
                self._put(msgspec.structs.replace(_failed(each, error), last_ns=each.last_ns))

    def _put(self, delivery: Delivery) -> None:
        with self._lock:
            self._entries[_key(delivery)] = delivery
        self._changed()


class _Courier:
    """One action, and the thread that it runs on."""

    def __init__(self, action: Action, report: Callable[[Delivery], None], retry: Retry) -> None:
        self._action = action
        self._report = report
        self._retry = retry
        self._queue: queue.Queue[tuple[Alert, Delivery]] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def send(self, alert: Alert, delivery: Delivery) -> bool:
        """Take an alert; False when too many wait already."""
        if self._thread is None:
            # A daemon, because an action that hangs must not keep the process.
            self._thread = threading.Thread(target=self._work, name=delivery.action, daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((alert, delivery))
        except queue.Full:
            return False
        return True

    def _work(self) -> None:
        """Try what is new before what has failed: one alert does not hold up the next."""
        failed: list[tuple[float, int, Alert, Delivery]] = []  # by when to try again
        for order in itertools.count():
            wait_s = max(0.0, failed[0][0] - time.monotonic()) if failed else None
            try:
                alert, delivery = self._queue.get(timeout=wait_s)
            except queue.Empty:
                _, _, alert, delivery = heapq.heappop(failed)
            delivery = self._try(alert, delivery)
            if delivery.state is DeliveryState.PENDING:
                again = time.monotonic() + self._retry.wait_s(delivery.try_count)
                heapq.heappush(failed, (again, order, alert, delivery))
            self._report(delivery)

    def _try(self, alert: Alert, delivery: Delivery) -> Delivery:
        error = None
        try:
            self._action.act(alert)
        except ActionError as failure:
            error = str(failure)
        except Exception as failure:  # noqa: BLE001 - a library's mistake must not end the thread
            error = f"{type(failure).__name__}: {failure}"
        count = delivery.try_count + 1
        if error is None:
            state = DeliveryState.SENT
        else:
            last = count >= self._retry.tries
            state = DeliveryState.FAILED if last else DeliveryState.PENDING
        return msgspec.structs.replace(
            delivery, state=state, try_count=count, last_ns=time.time_ns(), error=error
        )


def _key(delivery: Delivery) -> tuple[int, str]:
    return delivery.number, delivery.rule


def _failed(delivery: Delivery, error: str) -> Delivery:
    return msgspec.structs.replace(
        delivery, state=DeliveryState.FAILED, last_ns=time.time_ns(), error=error
    )
