"""Actions with real receivers: they work, or fail with a sentence that gives the reason."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.errors import UsageError
from stepscope.watch.actions import (
    ActionError,
    Alert,
    Notify,
    PostWebhook,
    RunCommand,
    StopJob,
    make_notifier,
)
from stepscope.watch.stop_request import read_stop_request
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
    with receiving() as other:
        for target, message in (
            ("ftp://127.0.0.1/", r"redirects from http to ftp|Redirection"),
            ("file:///etc/hosts", r"redirects from http to ftp|Redirection"),
            (other.url, "501"),
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
