"""A run, or whatever else, in a bucket: the promises of `ObjectStore` kept by `Bucket`.

A query needs files, so segments are copied to this machine, each once. Which segments there are,
and with what content, is read from the bucket's listing; that of a whole run is one request for a
thousand objects, and is believed for a second, because one view lists the same several times.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from stepscope.store.bucket import Bucket, Entry, Place, in_parallel
from stepscope.store.cache import ObjectCache
from stepscope.store.objectstore import check_key, check_prefix, is_hidden

__all__ = ["RemoteStore"]

BELIEVED_S = 1.0
"""How long a listing is."""
MOST_WHOLE = 5000
"""Objects of a run that is listed as a whole; of a larger one, only what is asked for."""


class RemoteStore:
    """A prefix of a bucket.

    Args:
        url: such as s3://bucket/prefix.

    Raises:
        UsageError: it is no such URL, or obstore is not installed.
    """

    def __init__(self, url: str) -> None:
        self.place = Place.of(url)
        self._bucket = Bucket(self.place)
        self._cache = ObjectCache(self.place.url)
        self._listings: dict[str, tuple[float, dict[str, Entry]]] = {}
        self._large = False

    def __repr__(self) -> str:
        return f"RemoteStore({self.place.url!r})"

    def list(self, prefix: str) -> Iterable[str]:
        """Keys below `prefix`, sorted."""
        check_prefix(prefix)
        return sorted(key for key in self._listed(prefix) if key.startswith(prefix))

    def entries(self) -> Sequence[Entry]:
        """Everything as it is now, sorted by key."""
        self.look_again()
        self._large = False  # it is asked for as a whole
        return [entry for _, entry in sorted(self._listed("").items())]

    def get(self, key: str) -> bytes:
        """The object; FileNotFoundError when there is none."""
        check_key(key)
        return self._bucket.get(key)

    def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Several, side by side; None for one that there is not."""

        def get(key: str) -> bytes | None:
            try:
                return self.get(key)
            except FileNotFoundError:
                return None

        return in_parallel(get, keys)

    def put(self, key: str, data: bytes) -> None:
        """Writes or replaces an object."""
        check_key(key)
        self._bucket.put(key, data)
        self.look_again()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes an object that is not there yet."""
        check_key(key)
        try:
            return self._bucket.put(key, data, only_new=True)
        finally:
            self.look_again()

    def staging_path(self, key: str) -> Path:
        """A new empty file among the copies, where there is room for large ones."""
        check_key(key)
        return self._cache.staging_path(key.rpartition("/")[2])

    def put_file(self, key: str, local_path: Path) -> bool:
        """Sends a finished local file, which is gone afterwards."""
        check_key(key)
        try:
            return self._bucket.put(key, local_path, only_new=True)
        finally:
            local_path.unlink(missing_ok=True)
            self.look_again()

    def delete(self, key: str) -> None:
        """Removes an object if it is there."""
        check_key(key)
        self._bucket.delete(key)
        self.look_again()

    def local_path(self, key: str) -> Path:
        """A copy of an object that never changes."""
        return self.local_paths([key])[0]

    def local_paths(self, keys: Sequence[str]) -> Sequence[Path]:
        """Copies of objects that never change; those that are not there yet are fetched side by
        side.

        Raises:
            FileNotFoundError: one is no longer in the bucket.
        """
        entries = [self._entry(key) for key in keys]
        paths = [self._cache.path(entry.key, entry.tag) for entry in entries]
        wanting = [
            (entry, path) for entry, path in zip(entries, paths, strict=True) if not path.exists()
        ]
        self._cache.use(paths)  # so that none of them makes room for another
        if wanting:
            self._cache.make_room()
            in_parallel(self._fetch, wanting)
            self._cache.make_room()
        return paths

    def at_hand(self, key: str) -> bool:
        """Whether the copy is still there."""
        try:
            entry = self._entry(key)
        except FileNotFoundError:
            return False
        return self._cache.path(entry.key, entry.tag).exists()

    def look_again(self) -> None:
        """Forgets listings."""
        self._listings = {}

    def _fetch(self, wanted: tuple[Entry, Path]) -> None:
        entry, path = wanted
        try:
            self._cache.add(path, lambda file: self._bucket.download(entry.key, entry.tag, file))
        except FileNotFoundError:
            self.look_again()
            raise

    def _entry(self, key: str) -> Entry:
        """An object as it was listed last, or else now."""
        check_key(key)
        prefix = key.rpartition("/")[0] + "/" if "/" in key else ""
        for _, listing in [*self._listings.values()]:
            if key in listing:
                return listing[key]
        entry = self._listed(prefix).get(key)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "There is no such object", (self.place / key).url)
        return entry

    def _listed(self, prefix: str) -> dict[str, Entry]:
        """The objects below a prefix, and perhaps others."""
        now = time.monotonic()
        for scope in ("", prefix):
            began, listing = self._listings.get(scope, (-BELIEVED_S, {}))
            if now - began < BELIEVED_S:
                return listing
        scope = prefix if self._large else ""
        listing = {
            entry.key: entry for entry in self._bucket.entries(scope) if not is_hidden(entry.key)
        }
        self._large = self._large or len(listing) > MOST_WHOLE
        fresh = {s: each for s, each in self._listings.items() if now - each[0] < BELIEVED_S}
        self._listings = {**fresh, scope: (now, listing)}  # an older one may contradict it
        return listing
