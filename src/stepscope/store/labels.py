"""Title, tags and notes that users give to a run: `labels/run.json`.

They are no records of the job: its results do not depend on them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import replace

from stepscope import errors, schema
from stepscope.store.documents import UserDocument
from stepscope.store.location import is_remote
from stepscope.store.revision import import_cache


class _Limits(NamedTuple):
    """Maximum lengths, in characters, and number of tags."""

    title: int = 200
    tag: int = 60
    tags: int = 50
    notes: int = 20_000


_LIMITS = _Limits()


class RunLabels(msgspec.Struct, frozen=True, kw_only=True):
    """Title, tags and notes of a run."""

    title: str | None = None
    """Name of the run on all surfaces; null for that of its directory."""
    tags: Annotated[list[str], schema.field_label("tags")] = []
    """Sorted, each once."""
    notes: str = ""


def read_labels(location: str | Path) -> RunLabels:
    """Read the labels of a run; empty ones where there are none, or they are damaged."""
    return UserDocument(location, "run", RunLabels).read()


def run_name(location: str | Path, run_id: str) -> str:
    """Name a run as on all surfaces: by its title, else by its directory."""
    return read_labels(location).title or directory_name(location, run_id)


def directory_name(location: str | Path, run_id: str) -> str:
    """Name a run without a title by its directory; a cached import by its id, which is the name
    of its source."""
    if is_remote(location):
        return str(location).rstrip("/").rpartition("/")[2]
    parent, name = os.path.split(os.path.abspath(location))  # noqa: PTH100 - a link has a name, too
    if parent == str(import_cache()):
        return run_id
    return name.encode(errors="replace").decode() or run_id


def update_labels(
    location: str | Path,
    *,
    title: str | None = None,
    tags: Iterable[str] | None = None,
    notes: str | None = None,
) -> RunLabels:
    """Change labels of a run; None leaves one as it is, an empty text removes it.

    Raises:
        UsageError: a label is too long.
        OSError: the run cannot be written.
    """
    stored = UserDocument(location, "run", RunLabels)
    labels = before = stored.read()
    if title is not None:
        labels = replace(labels, title=_check("The title", title, _LIMITS.title) or None)
    if tags is not None:
        texts = {_check("A tag", tag, _LIMITS.tag) for tag in tags} - {""}
        if len(texts) > _LIMITS.tags:
            raise errors.UsageError(f"A run has at most {_LIMITS.tags} tags.")
        labels = replace(labels, tags=sorted(texts))
    if notes is not None:
        labels = replace(labels, notes=_check("The notes", notes, _LIMITS.notes))
    if labels != before:
        stored.write(labels)
    return labels


def _check(name: str, text: str, limit: int) -> str:
    stripped = text.strip()
    if len(stripped) > limit:
        raise errors.UsageError(f"{name} has {len(stripped)} characters; at most {limit} fit.")
    return stripped
