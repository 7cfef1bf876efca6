"""Object store in a bucket, with local copies of the immutable objects.

A query needs files, so segments are copied to this machine, each once. Which segments exist, and
with what content, comes from a listing of the bucket. Listing a run takes one request per
thousand objects; a listing is reused for a second, because one view lists several tables. Of a
large run, only the requested prefix is listed; the segments of its tables are found through lists
that the recording machines have written (`stepscope.store.mirror_journal`), where there are any.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path

from stepscope import schema
from stepscope.store import layout
from stepscope.store.bucket import Bucket, BucketLocation, Entry, map_parallel
from stepscope.store.cache import ObjectCache
from stepscope.store.mirror_journal import parse_segments
from stepscope.store.objectstore import check_key, check_prefix, is_hidden

LISTING_MAX_AGE_S = 1.0
"""Time for which a listing is reused."""
MAX_FULL_LISTING = 5000
"""Objects up to which the complete run is listed at once; above, only the requested prefix."""


class RemoteStore:
    """Objects below a prefix of a bucket.

    Args:
        url: for example s3://bucket/prefix.

    Raises:
        UsageError: the URL is not that of a bucket, or obstore is not installed.
    """

    def __init__(self, url: str) -> None:
        self.location = BucketLocation.parse(url)
        self._bucket = Bucket(self.location)
        self._cache = ObjectCache(self.location.url)
        self._listings: dict[str, tuple[float, dict[str, Entry]]] = {}
        self._large = False

    def __repr__(self) -> str:
        return f"RemoteStore({self.location.url!r})"

    @property
    def url(self) -> str:
        """URL of the prefix in the bucket."""
        return self.location.url

    def list(self, prefix: str) -> Iterable[str]:
        """List the keys below `prefix`, sorted."""
        check_prefix(prefix)
        return sorted(key for key in self._listing(prefix) if key.startswith(prefix))

    def entries(self) -> Sequence[Entry]:
        """List all objects as they are now, sorted by key."""
        self.refresh()
        self._large = False  # list the complete run
        return [entry for _, entry in sorted(self._listing("").items())]

    def get(self, key: str) -> bytes:
        """Read an object; FileNotFoundError if it does not exist."""
        check_key(key)
        return self._bucket.get(key)

    def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Read several objects concurrently; None for a missing one."""

        def get(key: str) -> bytes | None:
            try:
                return self.get(key)
            except FileNotFoundError:
                return None

        return map_parallel(get, keys)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        check_key(key)
        self._bucket.put(key, data)
        self.refresh()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object if it does not exist yet."""
        check_key(key)
        try:
            return self._bucket.put(key, data, only_new=True)
        finally:
            self.refresh()

    def staging_path(self, key: str) -> Path:
        """Create an empty file in the cache directory, which has room for large files."""
        check_key(key)
        return self._cache.staging_path(key.rpartition("/")[2])

    def put_file(self, key: str, local_path: Path) -> bool:
        """Upload a finished local file and remove it."""
        check_key(key)
        try:
            is_new = self._bucket.put(key, local_path, only_new=True)
        finally:
            self.refresh()
        if is_new:
            local_path.unlink()
        return is_new

    def deferring_sync(self) -> AbstractContextManager[None]:
        """Defer nothing: an object that was uploaded is durable."""
        return nullcontext()

    def sync(self) -> None:
        """Do nothing."""

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        check_key(key)
        self._bucket.delete(key)
        self.refresh()

    def local_path(self, key: str) -> Path:
        """Return the path of a local copy of an immutable object."""
        return self.local_paths([key])[0]

    def local_paths(self, keys: Sequence[str]) -> Sequence[Path]:
        """Return the paths of local copies; missing copies are downloaded concurrently.

        Raises:
            FileNotFoundError: an object is no longer in the bucket.
        """
        entries = [self._entry(key) for key in keys]
        paths = [self._cache.path(entry.key, entry.tag) for entry in entries]
        missing = [
            (entry, path) for entry, path in zip(entries, paths, strict=True) if not path.exists()
        ]
        self._cache.touch(paths)  # so that none of them is evicted to make room for another
        if missing:
            self._cache.evict()
            map_parallel(self._fetch, missing)
            self._cache.evict()
        return paths

    def has_local_file(self, key: str) -> bool:
        """Return True if the copy exists."""
        try:
            entry = self._entry(key)
        except FileNotFoundError:
            return False
        return self._cache.path(entry.key, entry.tag).exists()

    def refresh(self) -> None:
        """Drop cached listings."""
        self._listings = {}

    def _fetch(self, download: tuple[Entry, Path]) -> None:
        entry, path = download
        try:
            self._cache.add(
                path, lambda file: self._bucket.download(entry.key, file, tag=entry.tag)
            )
        except FileNotFoundError:
            self.refresh()
            raise

    def _entry(self, key: str) -> Entry:
        """Look an object up in the cached listings, or in a new one."""
        check_key(key)
        prefix = key.rpartition("/")[0] + "/" if "/" in key else ""
        for _, listing in [*self._listings.values()]:
            if key in listing:
                return listing[key]
        entry = self._listing(prefix).get(key)
        if entry is None:
            url = (self.location / key).url
            raise FileNotFoundError(errno.ENOENT, "The object does not exist", url)
        return entry

    def _listing(self, prefix: str) -> dict[str, Entry]:
        """Return the objects below a prefix, possibly with others of the run."""
        now = time.monotonic()
        for scope in ("", prefix):
            listed_s, listing = self._listings.get(scope, (-LISTING_MAX_AGE_S, {}))
            if now - listed_s < LISTING_MAX_AGE_S:
                return listing
        run = None if self._large else self._list_run()
        scope, listing = (prefix, self._list_part(prefix)) if run is None else ("", run)
        fresh = {
            key: cached
            for key, cached in self._listings.items()
            if now - cached[0] < LISTING_MAX_AGE_S
        }
        self._listings = {**fresh, scope: (now, listing)}  # an older one may contradict it
        return listing

    def _list_run(self) -> dict[str, Entry] | None:
        """List all objects; None if there are more than are worth listing each time."""
        entries = list(islice(self._bucket.entries(), MAX_FULL_LISTING + 1))
        if len(entries) <= MAX_FULL_LISTING:
            return _by_key(entries)
        self._large = True
        return None

    def _list_part(self, prefix: str) -> dict[str, Entry]:
        """List the objects below a prefix."""
        is_of_table = prefix.startswith("tables/") and prefix.count("/") > 1
        listed = self._list_by_nodes(prefix) if is_of_table else {}
        return listed or _by_key(self._bucket.entries(prefix))

    def _list_by_nodes(self, prefix: str) -> dict[str, Entry]:
        """Return the files of a table that lists of its nodes name; none without lists.

        Imported runs, and those that another tool has copied, have no lists.
        """
        lists = self._bucket.entries(layout.segments_prefix(prefix.split("/")[1]))
        keys = [
            entry.key
            for entry in lists
            if layout.table_prefix_of(entry.key).startswith(prefix)
            or prefix.startswith(layout.table_prefix_of(entry.key))
        ]
        contents = zip(keys, self.get_all(keys), strict=True)
        try:
            return _by_key(
                entry
                for key, content in contents
                if content is not None
                for entry in parse_segments(key, content)
            )
        except schema.MALFORMED_JSON:  # a damaged list: the bucket tells
            return {}


def _by_key(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.key: entry for entry in entries if not is_hidden(entry.key)}
