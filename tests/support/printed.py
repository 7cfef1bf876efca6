"""Text of a payload, as `stepscope show` prints it."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from stepscope.cli.writers import write


def print_text(payload: msgspec.Struct, *, width: int = 100) -> str:
    """Return what is printed in a terminal of a width without colors."""
    stream = io.StringIO()
    write(Console(file=stream, width=width, highlight=False), payload)
    return stream.getvalue()
