"""Runs below a URL of an object store, from its listings."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stepscope import errors, store
from stepscope.run.catalog import base

LISTING_TTL_S = 10.0
"""Minimum time for which a listing of all runs is cached."""
MAX_OBJECTS = 200_000


def resolve_url(location: str) -> str:
    """Check and normalise the URL to serve.

    Raises:
        UsageError: it is not a valid URL, or there is nothing below it.
        OSError: the bucket cannot be reached.
    """
    root = store.BucketLocation.parse(location)
    prefixes, entries = _first_level(store.Bucket(root))
    if not prefixes and not entries:
        raise errors.UsageError(
            f"There is nothing below {root.url}. Pass a URL that contains runs."
        )
    return root.url


class BucketCatalog:
    """Runs below a URL.

    The runs and their revisions come from one flat listing: one request per thousand objects, most
    of which are segments. A walk from prefix to prefix would take a request per run, which has some
    hundreds of objects, so that it would take more requests; and it would not tell which runs have
    changed. The listing is cached for ten seconds, or for ten times as long as it took: 100 runs of
    300 objects are 30 requests, at most every ten seconds while a client shows the list. A client
    that shows one run causes one listing of that run every two seconds.

    Args:
        url: the URL, from `resolve_url`.
    """

    revision_ttl_s = 2.0

    def __init__(self, url: str) -> None:
        self.root = store.BucketLocation.parse(url)
        self._bucket = store.Bucket(self.root)
        self._former_ids: set[str] = set()
        self._lock = threading.Lock()
        self._listing = base.RunListing([], [])
        self._revisions: Mapping[str, int] = {}
        self._expiry_s = 0.0
        """Time at which the listing expires, on the monotonic clock."""

    def list_runs(self) -> base.RunListing:
        """List the runs, from the cache; while the bucket cannot be reached, the former runs."""
        with self._lock:
            start_s = time.monotonic()
            if start_s >= self._expiry_s:
                try:
                    self._update_listing()
                except OSError as error:
                    note = f"The list may be out of date: {error}."
                    self._listing = base.RunListing(self._listing.runs, [note])
                end_s = time.monotonic()
                self._expiry_s = end_s + max(LISTING_TTL_S, 10 * (end_s - start_s))
            return self._listing

    def locate(self, run_id: str) -> str:
        """See `Catalog.locate`."""
        if run_id != base.ROOT_ID and (not store.is_path(run_id) or not _is_valid_id(run_id)):
            raise base.missing_run_error(run_id, existed=False)
        run_url = self._place(run_id)
        if run_id in self._revisions or store.Bucket(run_url).has(store.RUN_KEY):
            self._former_ids.add(run_id)
            return run_url.url  # the revision reveals a removal since the listing
        raise base.missing_run_error(run_id, existed=run_id in self._former_ids)

    def locate_trace(self, trace_id: str) -> Path:
        """See `Catalog.locate_trace`; traces in buckets are not listed."""
        raise base.missing_trace_error(trace_id)

    def revision(self, location: str) -> int:
        """See `Catalog.revision`."""
        return store.revision_of(location)

    def revisions(self, runs: list[base.CatalogRun]) -> dict[str, int]:
        """See `Catalog.revisions`; the revisions are those of the listing."""
        return {run.id: self._revisions[run.id] for run in runs if run.id in self._revisions}

    def _update_listing(self) -> None:
        entries, incomplete = self._bucket.entries_despite_invalid_names(
            depth=base.MAX_DEPTH, limit=MAX_OBJECTS
        )
        notes = [
            f"Some runs below {base.quote_id(prefix or self.root.url)} may be missing: there are "
            "objects whose names are not paths."
            for prefix in incomplete
        ]
        if len(entries) >= MAX_OBJECTS:
            notes.append(f"There are more than {MAX_OBJECTS} objects; the others were left out.")
        objects = _objects_by_run(entries)
        if len(objects) > base.MAX_RUNS:
            notes.append(f"There are more than {base.MAX_RUNS} runs; the others were left out.")
            objects = dict(list(objects.items())[: base.MAX_RUNS])
        self._revisions = {
            run_id: store.revision_of_entries(run) for run_id, run in objects.items()
        }
        runs = [
            base.CatalogRun(run_id, self._place(run_id).url, _created_ns(run))
            for run_id, run in objects.items()
        ]
        self._former_ids.update(objects)
        self._listing = base.RunListing(runs, notes)

    def _place(self, run_id: str) -> store.BucketLocation:
        return self.root if run_id == base.ROOT_ID else self.root / run_id


def _objects_by_run(entries: Iterable[store.Entry]) -> dict[str, Sequence[store.Entry]]:
    """Group objects by run id, with keys relative to the run. A run contains no other runs, and
    hidden objects belong to none."""
    visible = [entry for entry in entries if not store.is_hidden(entry.key)]
    run_prefixes = {
        entry.key.removesuffix(store.RUN_KEY)
        for entry in visible
        if entry.key.rpartition("/")[2] == store.RUN_KEY and entry.key.count("/") <= base.MAX_DEPTH
    }
    objects: defaultdict[str, list[store.Entry]] = defaultdict(list)
    for entry in visible:
        prefix = next((prefix for prefix in _prefixes(entry.key) if prefix in run_prefixes), None)
        if prefix is not None:
            key = entry.key.removeprefix(prefix)
            objects[prefix.rstrip("/") or base.ROOT_ID].append(entry._replace(key=key))
    return dict(objects)


def _prefixes(key: str) -> Iterable[str]:
    """Yield the prefixes of a key from the shortest, down to the maximum depth of a run."""
    yield ""
    parts = key.split("/")[: base.MAX_DEPTH + 1]
    for count in range(1, min(len(parts), key.count("/") + 1)):
        yield "/".join(parts[:count]) + "/"


def _created_ns(entries: Sequence[store.Entry]) -> int:
    return next(entry.changed_ns for entry in entries if entry.key == store.RUN_KEY)


def _is_valid_id(run_id: str) -> bool:
    try:
        run_id.encode()
    except UnicodeEncodeError:
        return False
    return not store.is_hidden(run_id)


def _first_level(bucket: store.Bucket) -> tuple[Sequence[str], Sequence[store.Entry]]:
    """List the top level; if that is impossible, the part of it that can be listed."""
    entries, incomplete = bucket.entries_despite_invalid_names(depth=0, limit=1)
    return incomplete, entries
