"""Actions on findings. An action may block, and fails with ActionError."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Protocol

import msgspec

from stepscope import schema
from stepscope.errors import UsageError, require
from stepscope.quantities import duration
from stepscope.watch.config import (
    ActionConfig,
    ActionError,
    ActionKind,
    StopRequest,
    write_stop_request,
)

WEBHOOK_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Message to receivers: a rule has fired."""

    id: str
    """Identifier of this finding of this run; the same at every retry."""
    run_id: str
    run: str
    """Directory or URL of the run."""
    rule: str
    text: str
    """One sentence for people."""
    recorded_ns: int
    """Time at which the finding was first recorded, epoch nanoseconds."""
    finding: schema.Finding


def make_alert(run_id: str, run: str, finding: schema.Finding, recorded_ns: int) -> Alert:
    """Create the alert of a finding."""
    sentence = finding.sentences[0] if finding.sentences else "it found an issue."
    return Alert(
        id=f"{run_id}/{finding.rule}",
        run_id=run_id,
        run=run,
        rule=finding.rule,
        text=f"{finding.rule} fired in {run_id}: {sentence}",
        recorded_ns=recorded_ns,
        finding=finding,
    )


class Action(Protocol):
    """Action on a finding."""

    def act(self, alert: Alert) -> None:
        """Perform the action.

        Raises:
            ActionError: it failed.
        """


class StopJob:
    """Stop of the job, by its launcher."""

    def __init__(self, request: str) -> None:
        self._request = Path(request)

    def act(self, alert: Alert) -> None:
        """See `Action.act`."""
        try:
            write_stop_request(self._request, StopRequest(rule=alert.rule))
        except OSError as error:
            raise ActionError(f"cannot send the stop request to the launcher: {error}") from error


class RunCommand:
    """Shell command that gets the alert as JSON on its standard input."""

    def __init__(self, command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._command = command
        self._timeout_s = timeout_s

    def act(self, alert: Alert) -> None:
        """See `Action.act`. A command that times out is killed, with its child processes."""
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                env={**os.environ, **_make_variables(alert)},
                start_new_session=True,
            )
        except OSError as error:
            raise ActionError(f"cannot start the command: {error.strerror}") from error
        try:
            child.communicate(msgspec.json.encode(alert), self._timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise ActionError(
                f"the command took more than {duration(1e9 * self._timeout_s)} and was killed"
            ) from None
        if child.returncode:
            raise ActionError(f"the command exited with status {child.returncode}")


class PostWebhook:
    """Webhook that gets the alert as JSON."""

    def __init__(self, url: str, timeout_s: float = WEBHOOK_TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s

    def act(self, alert: Alert) -> None:
        """See `Action.act`."""
        from stepscope.watch.webhook import post  # most jobs need no HTTP

        post(self._url, msgspec.json.encode(alert), self._timeout_s)


class Notify:
    """Mail or chat message, through one of apprise's services."""

    def __init__(self, url: str) -> None:
        self._url = url

    def act(self, alert: Alert) -> None:
        """See `Action.act`."""
        try:
            sender = make_notifier(self._url)
        except UsageError as error:
            raise ActionError(str(error)) from error
        advice = alert.finding.recommendation
        body = "\n".join([*alert.finding.sentences, *([f"What to do: {advice}"] if advice else [])])
        if not sender(f"{alert.rule} fired in {alert.run_id}", body or alert.text):
            raise ActionError("apprise could not deliver the message")


class Notifier(Protocol):
    """Sender of a title and a text; returns False when sending failed."""

    def __call__(self, title: str, body: str) -> bool: ...


def make_notifier(url: str) -> Notifier:
    """Create a sender of messages to one of apprise's URLs.

    Raises:
        UsageError: apprise is not installed, or does not support such URLs.
    """
    apprise = require("apprise", extra="alerts", alternative="use --webhook or --on-finding")
    sender = apprise.Apprise()
    if not sender.add(url):
        scheme = url.partition(":")[0]
        raise UsageError(
            f"apprise does not support this URL ({scheme}:…). Supported services: "
            "https://appriseit.com"
        )

    def send(title: str, body: str) -> bool:
        return bool(sender.notify(title=title, body=body))

    return send


def make_action(config: ActionConfig) -> Action:
    """Create the action of a configuration."""
    return _ACTIONS[config.kind](config.address)


_ACTIONS: dict[ActionKind, type[StopJob | RunCommand | PostWebhook | Notify]] = {
    "stop": StopJob,
    "command": RunCommand,
    "webhook": PostWebhook,
    "notify": Notify,
}


def _make_variables(alert: Alert) -> dict[str, str]:
    first = alert.finding.first_ns
    variables = {
        "ID": alert.id,
        "RULE": alert.rule,
        "RUN": alert.run,
        "TEXT": alert.text,
        "FIRST_NS": "" if first is None else str(first),
    }
    return {f"STEPSCOPE_FINDING_{name}": value for name, value in variables.items()}
