"""What commands print without a console: JSON, and remarks beside their output."""

from __future__ import annotations

import click
import msgspec


def json_text(payload: object) -> str:
    """A payload as JSON for people and machines."""
    return msgspec.json.format(msgspec.json.encode(payload)).decode()


def print_json(payload: object) -> None:
    """A payload as JSON on stdout."""
    click.echo(json_text(payload))


def say(text: str) -> None:
    """Print a remark on stderr, if stderr can be written."""
    try:
        click.echo(f"stepscope: {text}", err=True)
    except (OSError, ValueError):  # closed or full: the exit status of a job must not depend on it
        pass
