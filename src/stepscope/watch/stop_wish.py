"""How the wish to stop a job reaches its launcher: a small file beside the span logs.

A file, because either may be killed at any time: the wish of a watch process that is gone is still
heard. It is local, so that looking for it never makes the launcher wait.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

FILE_NAME = "stop-wish.json"


class StopWish(msgspec.Struct, frozen=True, kw_only=True):
    """A rule or somebody wants the job to be stopped."""

    rule: str | None = None
    by: str | None = None
    """Who, where it is no rule."""


def write_wish(path: Path, wish: StopWish) -> None:
    """Leave a wish; OSError where that is not possible."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(msgspec.json.encode(wish))
    temporary.replace(path)


def read_wish(path: Path) -> StopWish | None:
    """The wish; None while there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StopWish)
    except (OSError, msgspec.MsgspecError):
        return None
