"""`stepscope ui [DIR|URL]`: the web UI."""

from __future__ import annotations

import os
import secrets
import sys
import webbrowser
from pathlib import Path

import click
from click.core import ParameterSource

from stepscope import errors, server
from stepscope.cli.output import say
from stepscope.job_environment import RUNS_DIRECTORY

TOKEN_VARIABLE = "STEPSCOPE_TOKEN"  # noqa: S105 - a name
TOKEN_WARNING = (
    "Other users can read the token of --token in the list of processes while the command starts; "
    f"set {TOKEN_VARIABLE} instead."
)


@click.command(
    "ui",
    help="Show the runs below DIR, or a URL such as s3://bucket/runs, in a browser, including runs "
    "that are being recorded, and import traces below DIR. Default: "
    f"{RUNS_DIRECTORY} if it exists, else the current directory. "
    "Ctrl-C stops the server, not the jobs.",
)
@click.argument("location", metavar="[DIR|URL]", required=False)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help=f"Port to listen on. Default: the first free one from {server.FIRST_PORT}.",
)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    metavar="SECRET",
    help=f"Access token; other users can read it while the command starts. Default: "
    f"${TOKEN_VARIABLE}, which they cannot read, or a generated one. The printed address contains "
    "it; browsers then keep a cookie.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Additional host name that browsers may use, e.g. that of a proxy; may be repeated.",
)
@click.option(
    "--source-root",
    "source_roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Show source files below DIR; may be repeated. On loopback, files below the "
    "working directory of a job are always shown.",
)
def command(  # noqa: PLR0917 - click passes options by name
    location: str | None,
    host: str,
    port: int,
    no_browser: bool,
    token: str | None,
    allowed_hosts: tuple[str, ...],
    source_roots: tuple[Path, ...],
) -> None:
    if token and len(token) < server.MIN_TOKEN_LENGTH:
        raise errors.UsageError(
            f"The token is too short; use at least {server.MIN_TOKEN_LENGTH} characters."
        )
    source = click.get_current_context().get_parameter_source("token")
    if token and source is ParameterSource.COMMANDLINE:
        say(TOKEN_WARNING)
        _hide_token(token)
    server.start_fork_server()
    # While that process starts, this one imports the rest.
    from stepscope.run.catalog import resolve_root
    from stepscope.server import serve, url_of

    root = resolve_root(_default_location() if location is None else location)
    in_runs = isinstance(root, Path) and root.name == RUNS_DIRECTORY
    settings = server.Settings(
        root=root,
        runs_directory="." if in_runs else RUNS_DIRECTORY,
        host=host,
        port=port,
        token=token or secrets.token_urlsafe(32),
        allowed_hosts=allowed_hosts,
        source_roots=source_roots,
    )

    def started(listening: server.Settings) -> None:
        click.echo(url_of(listening))
        sys.stdout.flush()
        if not no_browser and _has_display():
            webbrowser.open(url_of(listening))
        say(f"Serving the runs below {listening.root}. Ctrl-C stops the server, not the jobs.")

    serve(settings, started)


def _hide_token(token: str) -> None:
    """Start this command again with the token in its environment, which other users cannot read."""
    words = iter(sys.orig_argv)
    command: list[str] = []
    for word in words:
        if word == "--token":
            next(words, None)
        elif word != f"--token={token}":
            command.append(word)
    if len(command) < len(sys.orig_argv):
        os.execve(sys.executable, command, {**os.environ, TOKEN_VARIABLE: token})  # noqa: S606


def _default_location() -> str:
    return RUNS_DIRECTORY if Path(RUNS_DIRECTORY).is_dir() else "."


def _has_display() -> bool:
    """Return True if this machine has a display for a browser."""
    return sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
