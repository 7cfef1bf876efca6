"""Actions on findings. An action may block, and fails with ActionError.

HTTP for webhooks: limits on the addresses and redirects that they may lead to. Services of clouds
that hand out the credentials of a machine have link-local addresses. Neither the owner of a name
nor the receiver of a webhook, by a redirect, may direct a request there.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from stepscope import masking, schema
from stepscope._version import __version__
from stepscope.errors import UsageError, require
from stepscope.quantities import duration
from stepscope.watch.config import ActionConfig, ActionKind, StopRequest, write_stop_request

WEBHOOK_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0


class ActionError(Exception):
    """Failure of an action that a rule starts; a retry may succeed.

    The job and the run are not affected, and the finding lists the attempts. Check the command, URL
    or address of the option that asks for the action.
    """


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
            raise ActionError(f"cannot start the command: {_reason(error)}") from error
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
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked with the options
            self._url,
            msgspec.json.encode(alert),
            {"Content-Type": "application/json", "User-Agent": f"stepscope/{__version__}"},
        )
        try:
            with open_webhook(request, self._timeout_s) as response:
                response.read(1)
        except urllib.error.HTTPError as error:
            error.close()
            raise ActionError(
                f"the webhook returned {error.code} {masking.mask_text(str(error.reason))}"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ActionError(_reason(error)) from error


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


def _reason(error: Exception) -> str:
    """Describe an error without the error numbers of the operating system."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    message = cause.strerror if isinstance(cause, OSError) else None
    return message or masking.mask_text(str(cause)) or type(cause).__name__


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


_METADATA_ADDRESSES = (
    ipaddress.ip_address("fd00:ec2::254"),  # Amazon
    ipaddress.ip_address("100.100.100.200"),  # Alibaba
)
"""Addresses of metadata services that are not link-local."""


class ForbiddenTargetError(OSError):
    """Address or redirect to which no webhook is sent."""


def open_webhook(request: urllib.request.Request, timeout_s: float) -> Any:
    """Send a request; returns the response.

    Raises:
        ForbiddenTargetError: the host or a redirect leads to an address that is not allowed.
        urllib.error.HTTPError: the response reports an error.
        OSError, http.client.HTTPException: there is no response.
    """
    return _OPENER.open(request, timeout=timeout_s)


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same scheme, or from http to https."""

    def redirect_request(  # noqa: PLR0917 - the signature of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage | Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in {"https", req.type}:
            raise ForbiddenTargetError(f"the webhook redirects from {req.type} to {scheme}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _connect(
    address: tuple[str, int],
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
) -> socket.socket:
    """Connect to an address of a host that is not that of a metadata service.

    The checked address is the one of the connection: a second resolution of the name could have
    another result.
    """
    host, port = address
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    candidates = [str(target[4][0]) for target in resolved]
    allowed = [candidate for candidate in candidates if not _is_forbidden(candidate)]
    if not allowed:
        raise ForbiddenTargetError(f"{host} has a link-local address, as metadata services have")
    errors: list[OSError] = []
    for candidate in allowed:
        try:
            return socket.create_connection((candidate, port), timeout, source_address)
        except OSError as error:
            errors.append(error)
    raise errors[0]


def _is_forbidden(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_link_local
    return address.is_link_local or address in _METADATA_ADDRESSES


class _Connection(http.client.HTTPConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._create_connection = _connect  # as http.client's own tests replace it


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._create_connection = _connect


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req)


_OPENER = urllib.request.build_opener(_Handler, _TlsHandler, _RedirectHandler)
