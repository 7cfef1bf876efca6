"""What can be done when a rule fires. Each action takes its time, and fails with ActionError."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Protocol

import msgspec

from stepscope._optional import require
from stepscope._version import __version__
from stepscope.errors import UsageError
from stepscope.schema import Finding
from stepscope.watch.config import ActionConfig, ActionKind
from stepscope.watch.stop_wish import StopWish, write_wish

WEBHOOK_LIMIT_S = 10.0
COMMAND_LIMIT_S = 60.0


class ActionError(Exception):
    """It did not work; it may the next time."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What receivers are told: a rule has fired."""

    id: str
    """The same whenever this finding of this run is sent again."""
    run_id: str
    run: str
    """Where the run lies."""
    rule: str
    text: str
    """One sentence for people."""
    recorded_ns: int
    """When it was first known, epoch nanoseconds."""
    finding: Finding


def make_alert(run_id: str, run: str, finding: Finding, recorded_ns: int) -> Alert:
    """The news of a finding."""
    said = finding.sentences[0] if finding.sentences else "it found an issue."
    return Alert(
        id=f"{run_id}/{finding.rule}",
        run_id=run_id,
        run=run,
        rule=finding.rule,
        text=f"{finding.rule} fired in {run_id}: {said}",
        recorded_ns=recorded_ns,
        finding=finding,
    )


class Action(Protocol):
    """Something to do about a finding."""

    def act(self, alert: Alert) -> None:
        """Do it; ActionError when it did not work."""


class StopJob:
    """Has the launcher stop the job."""

    def __init__(self, wish: str) -> None:
        self._wish = Path(wish)

    def act(self, alert: Alert) -> None:
        """See `Action.act`."""
        try:
            write_wish(self._wish, StopWish(rule=alert.rule))
        except OSError as error:
            raise ActionError(f"the launcher cannot be told: {error}") from error


class RunCommand:
    """Runs a command of the shell with the alert as JSON on its standard input."""

    def __init__(self, command: str, limit_s: float = COMMAND_LIMIT_S) -> None:
        self._command = command
        self._limit_s = limit_s

    def act(self, alert: Alert) -> None:
        """See `Action.act`. A command that takes too long is killed with what it has started."""
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                env={**os.environ, **_variables(alert)},
                start_new_session=True,
            )
        except OSError as error:
            raise ActionError(f"it cannot be started: {_reason(error)}") from error
        try:
            child.communicate(msgspec.json.encode(alert), self._limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise ActionError(f"it took more than {self._limit_s:g} s and was killed") from None
        if child.returncode:
            raise ActionError(f"it ended with status {child.returncode}")


class PostWebhook:
    """Posts the alert as JSON."""

    def __init__(self, url: str, limit_s: float = WEBHOOK_LIMIT_S) -> None:
        self._url = url
        self._limit_s = limit_s

    def act(self, alert: Alert) -> None:
        """See `Action.act`."""
        request = urllib.request.Request(  # noqa: S310 - its scheme was checked with the options
            self._url,
            msgspec.json.encode(alert),
            {"Content-Type": "application/json", "User-Agent": f"stepscope/{__version__}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self._limit_s) as answer:  # noqa: S310
                answer.read(1)
        except urllib.error.HTTPError as error:
            error.close()
            raise ActionError(f"it answered {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise ActionError(_reason(error)) from error


class Notify:
    """Sends mail or a chat message, by the many ways that apprise knows."""

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
            raise ActionError("apprise could not deliver it")


class Notifier(Protocol):
    """Sends a title and a text; False when that did not work."""

    def __call__(self, title: str, body: str) -> bool: ...


def make_notifier(url: str) -> Notifier:
    """What sends messages to one of apprise's URLs.

    Raises:
        UsageError: apprise is not installed, or does not know such URLs.
    """
    apprise = require("apprise", extra="alerts", otherwise="use --webhook or --on-finding")
    sender = apprise.Apprise()
    if not sender.add(url):
        scheme = url.partition(":")[0]
        raise UsageError(
            f"apprise cannot notify by such a URL ({scheme}:…); https://appriseit.com lists them."
        )

    def send(title: str, body: str) -> bool:
        return bool(sender.notify(title=title, body=body))

    return send


def make_action(config: ActionConfig) -> Action:
    """The action of a configuration."""
    return _ACTIONS[config.kind](config.address)


_ACTIONS: dict[ActionKind, type[StopJob | RunCommand | PostWebhook | Notify]] = {
    "stop": StopJob,
    "command": RunCommand,
    "webhook": PostWebhook,
    "notify": Notify,
}


def _reason(error: Exception) -> str:
    """What went wrong, without numbers of the operating system."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    told = cause.strerror if isinstance(cause, OSError) else None
    return told or str(cause) or type(cause).__name__


def _variables(alert: Alert) -> dict[str, str]:
    first = alert.finding.first_ns
    found = {
        "ID": alert.id,
        "RULE": alert.rule,
        "RUN": alert.run,
        "TEXT": alert.text,
        "FIRST_NS": "" if first is None else str(first),
    }
    return {f"STEPSCOPE_FINDING_{name}": value for name, value in found.items()}
