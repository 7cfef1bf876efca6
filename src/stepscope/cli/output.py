"""Output of commands without a console: JSON on stdout, messages on stderr."""

from __future__ import annotations

import click
import msgspec


def json_text(payload: object) -> str:
    """Encode a payload as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(payload)).decode()


def print_json(payload: object) -> None:
    """Print a payload as JSON on stdout."""
    click.echo(json_text(payload).encode())


def print_json_line(payload: object) -> None:
    """Print a payload as one line of JSON on stdout."""
    click.echo(msgspec.json.encode(payload))


def say(text: str) -> None:
    """Print a message on stderr, if stderr can be written."""
    try:
        click.echo(f"stepscope: {text}", err=True)
    except (OSError, ValueError):  # closed or full: the exit status of a job must not depend on it
        pass
