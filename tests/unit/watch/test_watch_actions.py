"""Actions with real receivers, and their deliveries: once each, again after failures."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.errors import UsageError
from stepscope.schema import Delivery, DeliveryState
from stepscope.watch.actions import Alert, Notify, PostWebhook, RunCommand, StopJob, make_notifier
from stepscope.watch.config import ActionConfig, ActionError, read_stop_request
from stepscope.watch.deliveries import Deliveries, Retry
from tests.support.waiting import wait_until
from tests.support.webhooks import receiving

Make = Callable[..., Alert]


def test_a_webhook_gets_the_finding(receiver: Any, make: Make) -> None:
    PostWebhook(receiver.url).act(make("Slow"))
    (body,) = receiver.bodies
    assert msgspec.convert(body, Alert) == make("Slow")
    assert body["id"] == "run-1/Slow"
    assert body["text"] == "Slow fired in run-1: rank 0 is slow."


def test_a_webhook_that_fails(receiver: Any, make: Make) -> None:
    receiver.responses = [500, 0]
    with pytest.raises(ActionError, match="the webhook returned 500"):
        PostWebhook(receiver.url).act(make())
    with pytest.raises(ActionError, match="timed out"):
        PostWebhook(receiver.url, timeout_s=0.2).act(make())
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(ActionError, match="timed out"):
            PostWebhook(silent, timeout_s=0.2).act(make())
    with pytest.raises(ActionError, match="Connection refused"):
        PostWebhook(silent).act(make())


def test_redirects_of_a_webhook(receiver: Any, make: Make) -> None:
    """Not to another scheme; the second request of one to the same scheme is a GET."""
    with receiving() as receiver_of_gets:
        for target, message in (
            ("ftp://127.0.0.1/", r"redirects from http to ftp|Redirection"),
            ("file:///etc/hosts", r"redirects from http to ftp|Redirection"),
            (receiver_of_gets.url, "501"),
        ):
            receiver.responses, receiver.location = [302], target
            with pytest.raises(ActionError, match=message):
                PostWebhook(receiver.url).act(make())


METADATA = ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"]


@pytest.mark.parametrize("host", [*METADATA, "metadata.test"])
def test_a_webhook_never_reaches_a_metadata_service(
    receiver: Any, make: Make, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    resolve = socket.getaddrinfo

    def resolve_metadata(name: str, *arguments: Any, **options: Any) -> Any:
        """Name server of somebody else: its names have the addresses that they like."""
        return resolve(name.replace("metadata.test", "169.254.1.1"), *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_metadata)
    url = f"http://{host}/latest/meta-data/"
    receiver.responses, receiver.location = [302], url
    for address in (url, receiver.url):  # at once, and by a redirect
        with pytest.raises(ActionError, match="link-local"):
            PostWebhook(address, timeout_s=0.2).act(make())


def test_an_error_does_not_tell_the_secret_of_a_webhook(make: Make) -> None:
    with pytest.raises(ActionError) as caught:
        PostWebhook("http://127.0.0.1:1/x?token=squirrel and nuts").act(make())
    assert "squirrel" not in str(caught.value)


def test_a_command_gets_the_finding(tmp_path: Path, make: Make) -> None:
    out = tmp_path / "out"
    variables = '" $STEPSCOPE_FINDING_RULE of $STEPSCOPE_FINDING_RUN"'
    RunCommand(f"cat > {out}; echo {variables} >> {out}").act(make("Slow"))
    document, _, rest = out.read_text().rpartition("}")
    assert json.loads(document + "}")["finding"]["sentences"] == ["rank 0 is slow."]
    assert rest == " Slow of /runs/run-1\n"


def test_a_command_that_fails(make: Make) -> None:
    with pytest.raises(ActionError, match="the command exited with status 7"):
        RunCommand("exit 7").act(make())
    with pytest.raises(ActionError, match="cannot start the command: Argument list too long"):
        RunCommand("true " + "x" * 3_000_000).act(make())
    # It need not read its input.
    RunCommand("exec <&-; true").act(make(sentences=["It is slow."] * 100_000))


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path, make: Make) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(ActionError, match=r"the command took more than 500 ms"):
        RunCommand(f"sleep 60 & echo $! > {pid_file}; wait", timeout_s=0.5).act(make())
    stat = Path(f"/proc/{pid_file.read_text().strip()}/stat")

    def has_ended() -> bool:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(has_ended, timeout_s=5, waiting_for="the child of the command is still running")


def test_a_stop_reaches_the_launcher(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "request.json"
    assert read_stop_request(path) is None
    StopJob(str(path)).act(make("Slow"))
    request = read_stop_request(path)
    assert request.rule == "Slow"
    with pytest.raises(ActionError, match="cannot send the stop request"):
        StopJob(str(tmp_path / "missing" / "request.json")).act(make())


def test_notifying_without_apprise(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(UsageError, match=r"pip install 'stepscope\[alerts\]'"):
        make_notifier("mailto://example.org")
    with pytest.raises(ActionError, match="apprise is not installed"):
        Notify("mailto://example.org").act(make())


# Its plugins import modules that newer Python versions deprecate.
by_apprise = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.seed("DBT-10")
@by_apprise
def test_notifying_by_apprise(receiver: Any, make: Make) -> None:
    pytest.importorskip("apprise")
    patient = "?cto=60&rto=60"  # seconds; apprise waits four by default, on a busy machine too few
    Notify(receiver.url.replace("http:", "json:") + patient).act(make("Slow"))
    (note,) = receiver.bodies
    assert note["title"] == "Slow fired in run-1"
    assert note["message"] == "rank 0 is slow.\nWhat to do: Make it faster."


@by_apprise
def test_a_url_that_apprise_does_not_know() -> None:
    pytest.importorskip("apprise")
    with pytest.raises(UsageError, match=r"apprise does not support this URL \(pigeon:…\)"):
        make_notifier("pigeon://post")


@by_apprise
def test_a_note_that_is_not_delivered(make: Make) -> None:
    pytest.importorskip("apprise")
    with pytest.raises(ActionError, match="apprise could not deliver the message"):
        Notify("json://127.0.0.1:9/").act(make())


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
