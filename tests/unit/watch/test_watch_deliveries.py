"""Once to each receiver, again after failures, and nobody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from stepscope.schema import Delivery, DeliveryState
from stepscope.watch.actions import ActionError, Alert
from stepscope.watch.config import ActionConfig
from stepscope.watch.deliveries import Deliveries, Retry

Make = Callable[..., Alert]
QUICK = Retry(tries=3, first_wait_s=0.001)
HOOK = ActionConfig(kind="webhook", address="", target="hook")
STOP = ActionConfig(kind="stop", address="", target="the job", rules=["Slow"])


class Recorder:
    """An action that keeps what it was given, and fails as often as it is told."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.acted: list[str] = []
        self.failures = failures
        self.error = error or ActionError("no")

    def act(self, alert: Alert) -> None:
        self.acted.append(alert.rule)
        if len(self.acted) <= self.failures:
            raise self.error


def settled(deliveries: Deliveries) -> list[Delivery]:
    deadline = time.monotonic() + 10
    while deliveries.pending:
        assert time.monotonic() < deadline, "something is still on its way"
        time.sleep(0.001)
    return deliveries.entries


def test_each_finding_goes_once_to_each_action(make: Make) -> None:
    hook, stop = Recorder(), Recorder()
    deliveries = Deliveries([(HOOK, hook), (STOP, stop)], retry=QUICK)
    for _ in range(3):
        for rule in ("Slow", "Hot"):
            deliveries.announce(make(rule))
    assert {(each.action, each.rule, each.state) for each in settled(deliveries)} == {
        ("webhook", "Slow", DeliveryState.SENT),
        ("webhook", "Hot", DeliveryState.SENT),
        ("stop", "Slow", DeliveryState.SENT),
    }
    assert hook.acted == ["Slow", "Hot"]
    assert stop.acted == ["Slow"]


def test_what_fails_is_tried_again(make: Make) -> None:
    hook = Recorder(failures=2)
    deliveries = Deliveries([(HOOK, hook)], retry=QUICK)
    deliveries.announce(make())
    (entry,) = settled(deliveries)
    assert (entry.state, entry.try_count, entry.error) == (DeliveryState.SENT, 3, None)


@pytest.mark.parametrize(
    ("error", "said"), [(None, "no"), (KeyError("who"), "KeyError: 'who'")], ids=["told", "a bug"]
)
def test_it_is_given_up_after_some_tries(error: Exception, said: str, make: Make) -> None:
    hook = Recorder(failures=99, error=error)
    deliveries = Deliveries([(HOOK, hook)], retry=QUICK)
    deliveries.announce(make())
    (entry,) = settled(deliveries)
    assert (entry.state, entry.try_count, entry.error) == (DeliveryState.FAILED, 3, said)


def test_pauses_grow() -> None:
    assert [Retry().wait_s(failures) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]


def test_one_that_waits_for_its_next_try_holds_up_no_other(make: Make) -> None:
    hook = Recorder(failures=1)
    deliveries = Deliveries([(HOOK, hook)], retry=Retry(first_wait_s=0.5))
    deliveries.announce(make("Slow"))
    deliveries.announce(make("Hot"))
    settled(deliveries)
    assert hook.acted == ["Slow", "Hot", "Slow"]


def test_an_action_that_hangs_blocks_nobody(make: Make) -> None:
    class Hanging:
        def act(self, alert: Alert) -> None:
            released.wait(30)

    released, hook = threading.Event(), Recorder()
    deliveries = Deliveries([(STOP, Hanging()), (HOOK, hook)], retry=QUICK)
    deliveries.announce(make())
    deadline = time.monotonic() + 10
    while not hook.acted:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert deliveries.pending
    deliveries.give_up()
    states = {each.action: each.state for each in deliveries.entries}
    assert states == {"stop": DeliveryState.FAILED, "webhook": DeliveryState.SENT}
    released.set()


def test_a_queue_that_is_full_is_said_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        def act(self, alert: Alert) -> None:
            begun.set()
            released.wait(30)

    monkeypatch.setattr("stepscope.watch.deliveries.MOST_WAITING", 1)
    released, begun = threading.Event(), threading.Event()
    deliveries = Deliveries([(HOOK, Hanging())], retry=QUICK)
    deliveries.announce(make("A"))
    assert begun.wait(10)
    deliveries.announce(make("B"))
    deliveries.announce(make("C"))
    assert deliveries.entries[2].error == "1 others were waiting"
    released.set()


def test_another_process_repeats_only_what_was_not_done(make: Make) -> None:
    def entry(rule: str, state: DeliveryState) -> Delivery:
        return Delivery(action="webhook", number=0, target="hook", rule=rule, state=state)

    earlier = [
        entry("Sent", DeliveryState.SENT),
        entry("Failed", DeliveryState.FAILED),
        entry("Pending", DeliveryState.PENDING),
    ]
    hook = Recorder()
    deliveries = Deliveries([(HOOK, hook)], earlier=earlier, retry=QUICK)
    for each in earlier:
        deliveries.announce(make(each.rule))
    settled(deliveries)
    assert hook.acted == ["Pending"]


def test_a_job_that_has_ended_is_not_stopped(make: Make) -> None:
    stop = Recorder()
    deliveries = Deliveries([(STOP, stop)], retry=QUICK)
    deliveries.announce(make(), why_no_stop="the job had ended before")
    assert deliveries.entries[0].error == "the job had ended before"
    assert stop.acted == []


def test_every_change_is_reported(make: Make) -> None:
    changes: list[int] = []
    deliveries = Deliveries(
        [(HOOK, Recorder(failures=1))], changed=lambda: changes.append(1), retry=QUICK
    )
    deliveries.announce(make())
    settled(deliveries)
    assert len(changes) == 3  # begun, failed, sent
