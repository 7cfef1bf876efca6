"""Runs below a URL of an object store, by its listings."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stepscope.errors import UsageError
from stepscope.server.catalog import (
    DEEPEST,
    MOST_RUNS,
    ROOT_ID,
    FoundRun,
    Listing,
    no_run,
    shown,
)
from stepscope.store import (
    RUN_KEY,
    Bucket,
    Entry,
    Place,
    is_hidden,
    is_path,
    revision_of,
    revision_of_entries,
)

LISTED_S = 10.0
"""How long a listing of all runs is believed."""
MOST_OBJECTS = 200_000


def served_url(location: str) -> str:
    """The URL to serve.

    Raises:
        UsageError: it is no URL, or there is nothing below it.
        OSError: the bucket cannot be reached.
    """
    place = Place.of(location)
    prefixes, entries = _first_level(Bucket(place))
    if not prefixes and not entries:
        raise UsageError(f"There is nothing below {place.url}; name a URL below which runs are.")
    return place.url


class BucketCatalog:
    """The runs below a URL.

    All of them, and the revision of each, come from one flat listing: a request for each thousand
    objects, whichever of them are segments. A walk from prefix to prefix would take a request for
    each run, and each run has some hundreds of objects, so that it would take more of them; and it
    would say nothing of what has changed in a run. The listing is believed for ten seconds, and
    for ten times as long as it took: 100 runs of 300 objects are 30 requests, at most every ten
    seconds while somebody looks at the list. Who looks at one run causes one listing of that run
    every two seconds.

    Args:
        url: as `served_url` returns it.
    """

    believed_s = 2.0

    def __init__(self, url: str) -> None:
        self.place = Place.of(url)
        self._bucket = Bucket(self.place)
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._listing = Listing([], [])
        self._revisions: Mapping[str, int] = {}
        self._again_s = 0.0
        """When to list again, on the monotonic clock."""

    def listing(self) -> Listing:
        """The runs of a moment ago. While the bucket cannot be reached, those that are known."""
        with self._lock:
            began = time.monotonic()
            if began >= self._again_s:
                try:
                    self._list()
                except OSError as error:
                    note = f"The list may be out of date: {error}."
                    self._listing = Listing(self._listing.runs, [note])
                took_s = time.monotonic() - began
                self._again_s = began + took_s + max(LISTED_S, 10 * took_s)
            return self._listing

    def locate(self, run_id: str) -> str:
        """Where a run lies."""
        if run_id != ROOT_ID and (not is_path(run_id) or not _has_text(run_id)):
            raise no_run(run_id, was_there=False)
        place = self.place if run_id == ROOT_ID else self.place / run_id
        if run_id in self._revisions or Bucket(place).holds(RUN_KEY):
            self._known.add(run_id)
            return place.url  # if it has gone since the listing, its revision will say so
        raise no_run(run_id, was_there=run_id in self._known)

    def revision(self, location: str) -> int:
        """See `revision_of`."""
        return revision_of(location)

    def revisions(self, runs: list[FoundRun]) -> dict[str, int]:
        """The revisions as of the listing."""
        return {run.id: self._revisions[run.id] for run in runs if run.id in self._revisions}

    def _list(self) -> None:
        entries, spoiled = self._bucket.despite_odd_names(depth=DEEPEST, most=MOST_OBJECTS)
        notes = [
            f"Some runs below {shown(each or self.place.url)} may be missing: there are objects "
            "whose names are no paths."
            for each in spoiled
        ]
        if len(entries) >= MOST_OBJECTS:
            notes.append(f"There are more than {MOST_OBJECTS} objects; the rest was left out.")
        runs = _runs(entries)
        if len(runs) > MOST_RUNS:
            notes.append(f"There are more than {MOST_RUNS} runs; the rest was left out.")
            runs = dict(list(runs.items())[:MOST_RUNS])
        self._revisions = {run_id: revision_of_entries(own) for run_id, own in runs.items()}
        found = [FoundRun(run_id, self._url(run_id), _made_ns(own)) for run_id, own in runs.items()]
        self._known.update(runs)
        self._listing = Listing(found, notes)

    def _url(self, run_id: str) -> str:
        return (self.place if run_id == ROOT_ID else self.place / run_id).url


def _runs(entries: Iterable[Entry]) -> dict[str, Sequence[Entry]]:
    """The objects of each run by its id, with keys relative to it. What is below a run is its
    own, and what is hidden is nobody's."""
    shown_ones = [entry for entry in entries if not is_hidden(entry.key)]
    places = {
        entry.key.removesuffix(RUN_KEY)
        for entry in shown_ones
        if entry.key.rpartition("/")[2] == RUN_KEY and entry.key.count("/") <= DEEPEST
    }
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in shown_ones:
        place = next((each for each in _above(entry.key) if each in places), None)
        if place is not None:
            found[place.rstrip("/") or ROOT_ID].append(
                entry._replace(key=entry.key.removeprefix(place))
            )
    return dict(found)


def _above(key: str) -> Iterable[str]:
    """The prefixes of a key, the shortest first, as far down as runs may lie."""
    yield ""
    parts = key.split("/")[: DEEPEST + 1]
    for count in range(1, min(len(parts), key.count("/") + 1)):
        yield "/".join(parts[:count]) + "/"


def _made_ns(entries: Sequence[Entry]) -> int:
    return next(entry.changed_ns for entry in entries if entry.key == RUN_KEY)


def _has_text(run_id: str) -> bool:
    try:
        run_id.encode()
    except UnicodeEncodeError:
        return False
    return not is_hidden(run_id)


def _first_level(bucket: Bucket) -> tuple[Sequence[str], Sequence[Entry]]:
    """What lies at the top; where that cannot be listed, all that can."""
    entries, spoiled = bucket.despite_odd_names(depth=0, most=1)
    return spoiled, entries
