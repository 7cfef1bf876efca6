"""Deliveries: once to each receiver, again after failures, without delaying other actions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from stepscope.schema import Delivery, DeliveryState
from stepscope.watch.actions import ActionError, Alert
from stepscope.watch.config import ActionConfig
from stepscope.watch.deliveries import Deliveries, Retry
from tests.support.waiting import wait_until

Make = Callable[..., Alert]
QUICK = Retry(tries=3, first_wait_s=0.001)
HOOK = ActionConfig(kind="webhook", address="", target="hook")
STOP = ActionConfig(kind="stop", address="", target="the job", rules=["Slow"])


class Recorder:
    """Action that records its alerts, and fails a number of times first."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.acted: list[str] = []
        self.failures = failures
        self.error = error or ActionError("no")

    def act(self, alert: Alert) -> None:
        self.acted.append(alert.rule)
        if len(self.acted) <= self.failures:
            raise self.error


def settled(deliveries: Deliveries) -> list[Delivery]:
    wait_until(lambda: not deliveries.has_pending, timeout_s=10, waiting_for="delivery")
    return deliveries.entries


def test_each_finding_goes_once_to_each_action(make: Make) -> None:
    hook, stop = Recorder(), Recorder()
    deliveries = Deliveries([(HOOK, hook), (STOP, stop)], retry=QUICK)
    for _ in range(3):
        for rule in ("Slow", "Hot"):
            deliveries.announce(make(rule))
    assert {(entry.action, entry.rule, entry.state) for entry in settled(deliveries)} == {
        ("webhook", "Slow", DeliveryState.SENT),
        ("webhook", "Hot", DeliveryState.SENT),
        ("stop", "Slow", DeliveryState.SENT),
    }
    assert hook.acted == ["Slow", "Hot"]
    assert stop.acted == ["Slow"]


def test_a_failed_delivery_is_retried(make: Make) -> None:
    hook = Recorder(failures=2)
    deliveries = Deliveries([(HOOK, hook)], retry=QUICK)
    deliveries.announce(make())
    (entry,) = settled(deliveries)
    assert (entry.state, entry.try_count, entry.error) == (DeliveryState.SENT, 3, None)


@pytest.mark.parametrize(
    ("error", "message"),
    [(None, "no"), (KeyError("who"), "KeyError: 'who'")],
    ids=["reported", "a bug"],
)
def test_it_is_given_up_after_some_tries(error: Exception, message: str, make: Make) -> None:
    hook = Recorder(failures=99, error=error)
    deliveries = Deliveries([(HOOK, hook)], retry=QUICK)
    deliveries.announce(make())
    (entry,) = settled(deliveries)
    assert (entry.state, entry.try_count, entry.error) == (DeliveryState.FAILED, 3, message)


def test_waits_grow() -> None:
    assert [Retry().wait_s(failures) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]


def test_a_delivery_that_waits_for_its_retry_delays_no_other(make: Make) -> None:
    hook = Recorder(failures=1)
    deliveries = Deliveries([(HOOK, hook)], retry=Retry(first_wait_s=0.5))
    deliveries.announce(make("Slow"))
    deliveries.announce(make("Hot"))
    settled(deliveries)
    assert hook.acted == ["Slow", "Hot", "Slow"]


def test_an_action_that_hangs_blocks_no_other(make: Make) -> None:
    class Hanging:
        def act(self, alert: Alert) -> None:
            released.wait(30)

    released, hook = threading.Event(), Recorder()
    deliveries = Deliveries([(STOP, Hanging()), (HOOK, hook)], retry=QUICK)
    deliveries.announce(make())
    wait_until(lambda: hook.acted, timeout_s=10)
    assert deliveries.has_pending
    deliveries.give_up()
    states = {entry.action: entry.state for entry in deliveries.entries}
    assert states == {"stop": DeliveryState.FAILED, "webhook": DeliveryState.SENT}
    released.set()


def test_a_full_queue_is_reported(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        def act(self, alert: Alert) -> None:
            started.set()
            released.wait(30)

    monkeypatch.setattr("stepscope.watch.deliveries.MAX_QUEUED", 1)
    released, started = threading.Event(), threading.Event()
    deliveries = Deliveries([(HOOK, Hanging())], retry=QUICK)
    deliveries.announce(make("A"))
    assert started.wait(10)
    deliveries.announce(make("B"))
    deliveries.announce(make("C"))
    assert deliveries.entries[2].error == "the queue of 1 alerts is full"
    released.set()


def test_another_process_repeats_only_pending_deliveries(make: Make) -> None:
    def entry(rule: str, state: DeliveryState) -> Delivery:
        return Delivery(action="webhook", number=0, target="hook", rule=rule, state=state)

    earlier = [
        entry("Sent", DeliveryState.SENT),
        entry("Failed", DeliveryState.FAILED),
        entry("Pending", DeliveryState.PENDING),
    ]
    hook = Recorder()
    deliveries = Deliveries([(HOOK, hook)], earlier=earlier, retry=QUICK)
    for delivery in earlier:
        deliveries.announce(make(delivery.rule))
    settled(deliveries)
    assert hook.acted == ["Pending"]


def test_a_job_that_has_ended_is_not_stopped(make: Make) -> None:
    stop = Recorder()
    deliveries = Deliveries([(STOP, stop)], retry=QUICK)
    deliveries.announce(make(), stop_obstacle="the job has already ended")
    assert deliveries.entries[0].error == "the job has already ended"
    assert stop.acted == []


def test_every_change_is_reported(make: Make) -> None:
    changes: list[int] = []
    deliveries = Deliveries(
        [(HOOK, Recorder(failures=1))], on_change=lambda: changes.append(1), retry=QUICK
    )
    deliveries.announce(make())
    settled(deliveries)
    assert len(changes) == 3  # started, failed, sent
