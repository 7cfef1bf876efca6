"""Which runs there are below the served directory or URL, and where a name leads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from stepscope.errors import NotARunError, StepscopeError, UsageError
from stepscope.store import RUN_KEY, is_remote, revision_of

DEEPEST = 6
"""Directories between the served one and a run."""
MOST_RUNS = 10_000
MOST_DIRECTORIES = 100_000
ROOT_ID = "."
"""What is served, itself."""


class FoundRun(NamedTuple):
    """A run by the name that it has in the API: its path below what is served."""

    id: str
    location: str
    made_ns: int
    """When it was made, as the file system or the bucket says."""


class RunGoneError(NotARunError):
    """A run that was there before."""


class Listing(NamedTuple):
    """The runs, in no order, and what was left out."""

    runs: list[FoundRun]
    notes: list[str]


class Catalog(Protocol):
    """The runs below one directory or URL. Nothing outside of it is ever named or opened."""

    believed_s: float
    """How long a revision is: a page asks for several views at once."""

    def listing(self) -> Listing:
        """All runs that there are now."""
        ...

    def locate(self, run_id: str) -> str:
        """Where a run lies.

        Raises:
            RunGoneError: it was there before.
            NotARunError: there never was one of this name.
        """
        ...

    def revision(self, location: str) -> int:
        """See `stepscope.store.revision_of`."""
        ...

    def revisions(self, runs: list[FoundRun]) -> dict[str, int]:
        """The revision of each run by its id; without those that cannot be served."""
        ...


def served_root(location: str) -> Path | str:
    """What to serve: a directory without links in its path, or a URL.

    Raises:
        UsageError: there is no such directory, or nothing below the URL.
        OSError: the bucket cannot be reached.
    """
    if is_remote(location):
        from stepscope.server.bucket_catalog import served_url

        return served_url(location)
    root = Path(location)
    if not root.is_dir():
        raise UsageError(f"{location} is no directory; name one that holds runs.")
    return root.resolve()


def catalog_of(root: Path | str) -> Catalog:
    """The runs below what `served_root` has found."""
    if isinstance(root, Path):
        return DirectoryCatalog(root)
    from stepscope.server.bucket_catalog import BucketCatalog

    return BucketCatalog(root)


class DirectoryCatalog:
    """The runs below a directory.

    Args:
        root: the directory, without links in its path.
    """

    believed_s = 0.25

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: set[str] = set()

    def listing(self) -> Listing:
        """All runs that there are now."""
        notes: list[str] = []
        found: list[FoundRun] = []
        for place, made_ns in self._places(notes):
            try:
                run_id = str(place.relative_to(self.root))
                run_id.encode()
            except UnicodeEncodeError:
                notes.append("A run whose name is no text was left out.")
                continue
            if len(found) == MOST_RUNS:
                notes.append(f"There are more than {MOST_RUNS} runs; the rest was left out.")
                break
            found.append(FoundRun(run_id, str(place), made_ns))
        self._known.update(run.id for run in found)
        return Listing(found, sorted(set(notes)))

    def locate(self, run_id: str) -> str:
        """Where a run lies.

        Raises:
            RunGoneError: it was there before.
            NotARunError: there never was one of this name.
        """
        place = self._inside(run_id)
        if place is not None and _made_ns(place) is not None:
            self._known.add(run_id)
            return str(place)
        raise no_run(run_id, was_there=run_id in self._known)

    def revision(self, location: str) -> int:
        """See `revision_of`."""
        return revision_of(location)

    def revisions(self, runs: list[FoundRun]) -> dict[str, int]:
        """The revision of each run by its id; without those that cannot be served."""
        found = {}
        for run in runs:
            try:
                found[run.id] = revision_of(run.location)
            except (OSError, StepscopeError):
                continue
        return found

    def _inside(self, run_id: str) -> Path | None:
        """The directory that a name means; None when it would not be below ours."""
        if run_id == ROOT_ID:
            return self.root
        if any(part in {"", ".", ".."} for part in run_id.split("/")):
            return None
        try:
            place = (self.root / run_id).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # no such file, a circle of links, no name
            return None
        return place if place.is_relative_to(self.root) else None

    def _places(self, notes: list[str]) -> Iterator[tuple[Path, int]]:
        """Directories of runs, and when those were made; what is below one is its own."""
        waiting, seen = [(self.root, 0)], {self.root}
        while waiting:
            directory, depth = waiting.pop()
            made_ns = _made_ns(directory)
            if made_ns is not None:
                yield directory, made_ns
            elif depth < DEEPEST:
                below = set(self._below(directory)) - seen
                seen |= below
                waiting += [(each, depth + 1) for each in below]
            if len(seen) > MOST_DIRECTORIES:
                notes.append(f"There are more than {MOST_DIRECTORIES} directories to look into.")
                return

    def _below(self, directory: Path) -> Iterator[Path]:
        try:
            with os.scandir(directory) as scan:
                entries = [entry for entry in scan if not entry.name.startswith(".")]
        except OSError:  # not ours to read, or gone
            return
        for entry in entries:
            place = Path(entry.path)
            if entry.is_symlink():
                try:
                    place = place.resolve(strict=True)
                except (OSError, RuntimeError):  # it leads nowhere, or in a circle
                    continue
                if place.is_relative_to(self.root) and place.is_dir():
                    yield place
            elif entry.is_dir(follow_symlinks=False):
                yield place


def _made_ns(directory: Path) -> int | None:
    """When the run in a directory was made; None where there is none."""
    try:
        found = (directory / RUN_KEY).lstat()
    except OSError:
        return None
    return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else None


def no_run(run_id: str, *, was_there: bool) -> NotARunError:
    """What to raise for a name that leads to no run."""
    if was_there:
        return RunGoneError(f"The run {shown(run_id)} has disappeared.")
    return NotARunError(f"There is no run {shown(run_id)} here.")


def shown(run_id: str) -> str:
    """A name as part of a sentence."""
    return repr(run_id if len(run_id) <= 200 else run_id[:200] + "…")
