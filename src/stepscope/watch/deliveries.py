"""Delivery of each finding, once to every action.

Every action has a thread and a bounded queue of its own, so that neither the scan loop nor another
action waits for it. A failed delivery is retried with exponential backoff.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from stepscope import schema
from stepscope.watch.actions import Action, Alert
from stepscope.watch.config import ActionConfig, ActionError

MAX_QUEUED = 100


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Retry policy of failed actions: exponential backoff."""

    tries: int = 5
    first_wait_s: float = 1.0
    growth: float = 2.0

    def wait_s(self, failures: int) -> float:
        """Wait after this number of failures, in seconds."""
        return self.first_wait_s * self.growth ** (failures - 1)


_RETRY = Retry()


class Deliveries:
    """Deliveries of findings to actions, finished and pending.

    Args:
        actions: actions with their configurations.
        earlier: deliveries that a previous watch process has recorded. Its pending ones are
            repeated, because their receivers may not have got them.
        on_change: called, from any thread, when there is something new to record.
        retry: policy for all actions.
    """

    def __init__(
        self,
        actions: Iterable[tuple[ActionConfig, Action]],
        *,
        earlier: Iterable[schema.Delivery] = (),
        on_change: Callable[[], None] = lambda: None,
        retry: Retry = _RETRY,
    ) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._entries = {
            _key(delivery): delivery
            for delivery in earlier
            if delivery.state is not schema.DeliveryState.PENDING
        }
        self._threads = [
            (config, _DeliveryThread(action, self._put, retry)) for config, action in actions
        ]

    @property
    def entries(self) -> list[schema.Delivery]:
        """All deliveries, in the order in which they were started."""
        with self._lock:
            return list(self._entries.values())

    @property
    def has_pending(self) -> bool:
        """True while a delivery is neither sent nor failed."""
        return any(delivery.state is schema.DeliveryState.PENDING for delivery in self.entries)

    def announce(self, alert: Alert, *, stop_obstacle: str | None = None) -> None:
        """Send an alert to every action that has not had it; returns at once.

        Args:
            alert: the alert.
            stop_obstacle: why the job cannot be stopped; None when it can.
        """
        for number, (config, thread) in enumerate(self._threads):
            if config.rules is not None and alert.rule not in config.rules:
                continue
            delivery = schema.Delivery(
                action=config.kind, number=number, target=config.target, rule=alert.rule
            )
            if _key(delivery) in {_key(entry) for entry in self.entries}:
                continue
            if config.kind == "stop" and stop_obstacle is not None:
                self._put(_fail(delivery, stop_obstacle))
                continue
            self._put(delivery)
            if not thread.send(alert, delivery):
                self._put(_fail(delivery, f"the queue of {MAX_QUEUED} alerts is full"))

    def forget(self, rule: str) -> None:
        """Forget the deliveries of a rule: the next alert of it is sent again."""
        with self._lock:
            self._entries = {k: entry for k, entry in self._entries.items() if entry.rule != rule}

    def give_up(self) -> None:
        """Mark all pending deliveries as failed."""
        for delivery in self.entries:
            if delivery.state is schema.DeliveryState.PENDING:
                error = delivery.error or "no response before the watch process ended"
                failed = _fail(delivery, error)
                self._put(msgspec.structs.replace(failed, last_ns=delivery.last_ns))

    def _put(self, delivery: schema.Delivery) -> None:
        with self._lock:
            self._entries[_key(delivery)] = delivery
        self._on_change()


class _DeliveryThread:
    """Action with its queue and thread."""

    def __init__(
        self, action: Action, report: Callable[[schema.Delivery], None], retry: Retry
    ) -> None:
        self._action = action
        self._report = report
        self._retry = retry
        self._queue: queue.Queue[tuple[Alert, schema.Delivery]] = queue.Queue(MAX_QUEUED)
        self._thread: threading.Thread | None = None

    def send(self, alert: Alert, delivery: schema.Delivery) -> bool:
        """Queue an alert; returns False when the queue is full."""
        if self._thread is None:
            # A daemon, because an action that hangs must not keep the process alive.
            self._thread = threading.Thread(target=self._work, name=delivery.action, daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((alert, delivery))
        except queue.Full:
            return False
        return True

    def _work(self) -> None:
        """Try new alerts before failed ones, so that one alert does not delay the next."""
        failed: list[
            tuple[float, int, Alert, schema.Delivery]
        ] = []  # ordered by the time of the retry
        for order in itertools.count():
            wait_s = max(0.0, failed[0][0] - time.monotonic()) if failed else None
            try:
                alert, delivery = self._queue.get(timeout=wait_s)
            except queue.Empty:
                _, _, alert, delivery = heapq.heappop(failed)
            delivery = self._try(alert, delivery)
            if delivery.state is schema.DeliveryState.PENDING:
                retry_s = time.monotonic() + self._retry.wait_s(delivery.try_count)
                heapq.heappush(failed, (retry_s, order, alert, delivery))
            self._report(delivery)

    def _try(self, alert: Alert, delivery: schema.Delivery) -> schema.Delivery:
        error = None
        try:
            self._action.act(alert)
        except ActionError as failure:
            error = str(failure)
        except Exception as failure:  # noqa: BLE001 - a library's mistake must not end the thread
            error = f"{type(failure).__name__}: {failure}"
        count = delivery.try_count + 1
        if error is None:
            state = schema.DeliveryState.SENT
        else:
            is_last = count >= self._retry.tries
            state = schema.DeliveryState.FAILED if is_last else schema.DeliveryState.PENDING
        return msgspec.structs.replace(
            delivery, state=state, try_count=count, last_ns=time.time_ns(), error=error
        )


def _key(delivery: schema.Delivery) -> tuple[int, str]:
    return delivery.number, delivery.rule


def _fail(delivery: schema.Delivery, error: str) -> schema.Delivery:
    return msgspec.structs.replace(
        delivery, state=schema.DeliveryState.FAILED, last_ns=time.time_ns(), error=error
    )
