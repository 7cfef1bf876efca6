"""Results that were computed of a run that has ended, stored beside its records.

    results/<name>.json     a result, and what it was computed from

A result holds as long as the files of the run are those it was computed from, by name, size and
time of change (in a bucket by entity tag), and its maker, a version of stepscope, is the same.
Results are no records: losing one costs time, and they do not count for the revision of a run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import msgspec

from stepscope import schema
from stepscope.store import layout
from stepscope.store.local import LocalStore
from stepscope.store.location import open_store
from stepscope.store.objectstore import ObjectStore

T = TypeVar("T")


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """`results/<name>.json`: a result of a run that has ended."""

    maker: str
    """Version of stepscope that computed it, and other software that it depends on."""
    contents: str
    """Digest of the names, sizes and times of change of the run's files."""
    result: msgspec.Raw


class Contents(NamedTuple):
    """Files of a run without its results."""

    digest: str
    size_bytes: int
    changed_ns: int
    """Time of the latest change, epoch nanoseconds."""


class Results:
    """Results of a run.

    Args:
        location: path or URL of the run.
        maker: see `StoredResult`.
        uses_findings: the results depend on the findings of the watch process, which may write them
            when the verdict of the job is there already.
    """

    def __init__(self, location: str, maker: str, *, uses_findings: bool = True) -> None:
        self._store = open_store(location)
        self._maker = maker
        self._ignored = (layout.RESULTS, layout.VERDICT_KEY if uses_findings else layout.FINDINGS)
        self.contents = self._describe_contents()
        """Files of the run when this object was made."""

    def get(self, name: str, as_type: type[T]) -> T | None:
        """Return a result; None if there is none of these files by this maker, or it cannot be
        read."""
        result, is_current = self.get_of_any_maker(name, as_type)
        return result if is_current else None

    def get_of_any_maker(self, name: str, as_type: type[T]) -> tuple[T | None, bool]:
        """Return a result as of `get`, also of another version of stepscope; and True if it is of
        this maker."""
        try:
            content = self._store.get(_key(name))
            stored = msgspec.json.decode(content, type=StoredResult)
            if stored.contents != self.contents.digest:
                return None, False
            result = msgspec.json.decode(stored.result, type=as_type)
        except (OSError, *schema.MALFORMED_JSON):
            return None, False
        return result, stored.maker == self._maker

    def put(self, name: str, encoded: bytes) -> bool:
        """Store an encoded result; False, and nothing is stored, where the files of the run have
        changed meanwhile or it cannot be written, such as one of another user."""
        if self._describe_contents() != self.contents:
            return False
        stored = StoredResult(
            maker=self._maker, contents=self.contents.digest, result=msgspec.Raw(encoded)
        )
        try:
            self._store.put(_key(name), msgspec.json.encode(stored))
        except OSError:
            return False
        return True

    def _describe_contents(self) -> Contents:
        """Describe the files of the run, without its results and the verdict of its job."""
        digest, size_bytes, latest_ns = hashlib.blake2b(digest_size=16), 0, 0
        digest.update(repr(self._ignored).encode())
        ignored = (*self._ignored, layout.LABELS)  # no result depends on labels
        for key, size, state, changed_ns in _list_files(self._store, ignored):
            digest.update(f"{key}\0{size}\0{state}\0".encode("utf-8", "surrogateescape"))
            size_bytes += size
            latest_ns = max(latest_ns, changed_ns)
        return Contents(digest.hexdigest(), size_bytes, latest_ns)


def _key(name: str) -> str:
    return layout.document_key(layout.RESULTS.rstrip("/"), name)


def _list_files(
    store: ObjectStore, ignored: tuple[str, ...]
) -> Iterator[tuple[str, int, str, int]]:
    """Yield key, size, state and time of change of the files of a run without ignored ones; equal
    states mean equal content."""
    if isinstance(store, LocalStore):
        for key in store.list(""):
            if key.startswith(ignored):
                continue
            try:
                status = os.stat(f"{store.root}/{key}")  # noqa: PTH116 - a Path takes longer
            except FileNotFoundError:  # merged into another file since the listing
                continue
            yield key, status.st_size, str(status.st_mtime_ns), status.st_mtime_ns
        return
    from stepscope.store.remote import RemoteStore  # 10 ms, for buckets alone

    if isinstance(store, RemoteStore):
        for entry in store.entries():
            if not entry.key.startswith(ignored):
                yield entry.key, entry.size_bytes, entry.tag, entry.changed_ns
