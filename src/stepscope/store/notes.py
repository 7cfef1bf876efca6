"""Notes on the timeline of a run, and views of the page that users save: `labels/notes.json`.

They are no records of the job: its results do not depend on them.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from stepscope import errors
from stepscope.store.documents import UserDocument

MAX_NOTES = 500
MAX_TEXT_LENGTH = 2_000
MAX_PATH_LENGTH = 8_000
_PATH = re.compile(r"/(?:[\w-][\w./-]*)?(?:\?[^\s#\\]*)?")
"""Paths of the page: never of another server."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Note on a time or a range of the timeline."""

    text: str
    from_after_ns: int
    """Start, after the run's origin."""
    to_after_ns: int | None = None
    """End; null for a moment."""


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """Screen of the page with its selections."""

    name: str
    path: str
    """Path and query below the address of the server, without the run."""


class RunNotes(msgspec.Struct, frozen=True, kw_only=True):
    """Notes and saved views of a run."""

    notes: list[Note] = []
    """In time order."""
    views: list[SavedView] = []
    """By name, each once."""


def read_notes(location: str | Path) -> RunNotes:
    """Read the notes of a run; none where there are none, or they are damaged."""
    return UserDocument(location, "notes", RunNotes).read()


def update_notes(location: str | Path, *, add: RunNotes, remove: RunNotes) -> RunNotes:
    """Add notes and saved views to those of a run, and remove others; returns all.

    A saved view replaces an earlier one of its name.

    Raises:
        UsageError: a text is empty or too long, a path is none, or there are too many notes.
        OSError: the run cannot be written.
    """
    for note in add.notes:
        _check("note", note.text, MAX_TEXT_LENGTH)
        if note.to_after_ns is not None and note.to_after_ns < note.from_after_ns:
            raise errors.UsageError("The range of a note ends before its start.")
    for view in add.views:
        _check("name of a view", view.name, MAX_TEXT_LENGTH)
        if len(view.path) > MAX_PATH_LENGTH or not _PATH.fullmatch(view.path):
            raise errors.UsageError("The path of a view is not one of this page.")
    stored = UserDocument(location, "notes", RunNotes)
    before = stored.read()
    kept_notes = [note for note in before.notes if note not in remove.notes + add.notes]
    replaced = {view.name for view in remove.views + add.views}
    kept_views = [view for view in before.views if view.name not in replaced]
    notes = RunNotes(
        notes=sorted(kept_notes + add.notes, key=lambda note: (note.from_after_ns, note.text)),
        views=sorted(kept_views + add.views, key=lambda view: view.name),
    )
    if max(len(notes.notes), len(notes.views)) > MAX_NOTES:
        raise errors.UsageError(f"A run has at most {MAX_NOTES} notes and saved views.")
    if notes != before:
        stored.write(notes)
    return notes


def _check(name: str, text: str, limit: int) -> None:
    if not text.strip() or len(text) > limit:
        raise errors.UsageError(f"A {name} has 1 to {limit} characters, not {len(text)}.")
