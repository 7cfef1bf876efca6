"""A bucket of S3, Google Cloud Storage or Azure: what is asked of one, and errors in words.

The library `obstore` does the asking. It is imported when the first bucket is opened, and must not
be used in a process that forks afterwards: children that use it too would hang.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar

from stepscope._optional import require
from stepscope.errors import UsageError

__all__ = [
    "Bucket",
    "Entry",
    "OddNamesError",
    "Place",
    "RefusedError",
    "UnreachableError",
    "in_parallel",
]

T = TypeVar("T")
R = TypeVar("R")
_CLASSES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_CALLED = {"s3": "bucket", "gs": "bucket", "az": "container"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CLIENT = {"connect_timeout": "5 seconds", "read_timeout": "15 seconds", "timeout": "1 hour"}
"""A large file may take long as long as it goes on; by default nothing may take over 30 s."""
_RETRY = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
        "base": 2,
    },
}
"""By default the library goes on for three minutes before it says that there is no network."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOST_ODD = 50
_SIDE_BY_SIDE = 16
_PIECE_BYTES = 1 << 20


class UnreachableError(OSError):
    """A bucket could not be asked; `strerror` says why and what to do."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class RefusedError(UnreachableError, PermissionError):
    """The bucket wants to know who asks, or does not serve whom it knows."""


class OddNamesError(UnreachableError):
    """There are objects whose names are no paths: with '..', nothing between two '/', or control
    characters. The library refuses whole listings because of one."""


class Entry(NamedTuple):
    """An object as a listing has it."""

    key: str
    """Relative to what was listed."""
    size_bytes: int
    tag: str
    """Another one for another content."""
    changed_ns: int


class Place(NamedTuple):
    """A URL in its parts."""

    scheme: str
    bucket: str
    prefix: str
    """Without '/' at its ends."""

    @classmethod
    def of(cls, url: str) -> Self:
        """The place of a URL.

        Raises:
            UsageError: it is none of a bucket.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.rstrip("/")
        named = scheme in _CLASSES and _NAME.fullmatch(bucket)
        if not named or (prefix and not is_path(prefix)):
            raise UsageError(
                f"{url!r} is no URL of a bucket; name one such as s3://bucket/runs/a, "
                "gs://bucket/runs/a or az://container/runs/a."
            )
        return cls(scheme, bucket, prefix)

    @property
    def url(self) -> str:
        """The URL."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def __truediv__(self, key: str) -> Place:
        return Place(self.scheme, self.bucket, f"{self.prefix}/{key}" if self.prefix else key)


def is_path(key: str) -> bool:
    """Whether a name can be asked for: the library knows no other."""
    return not _CONTROL.search(key) and not {"", ".", ".."} & set(key.split("/"))


class Bucket:
    """All objects whose names begin with a prefix. Keys are relative to it. Usable by threads."""

    def __init__(self, place: Place) -> None:
        self.place = place
        names = (_VARIABLES[place.scheme], "HTTP", "http", "NO_PROXY", "no_proxy")
        # Who sets other variables, as in a notebook, gets another client.
        given = frozenset((k, v) for k, v in os.environ.items() if k.startswith(names))
        self._client = _client(place.scheme, place.bucket, given)
        self._obstore = require("obstore", extra="remote")

    def get(self, key: str) -> bytes:
        """An object; FileNotFoundError when there is none."""
        with self._errors(key):
            return bytes(self._obstore.get(self._client, self._path(key)).bytes())

    def put(self, key: str, content: bytes | Path, *, only_new: bool = False) -> bool:
        """Writes an object as a whole; False, where it may only be new, when there is one."""
        mode = "create" if only_new else "overwrite"
        with self._errors(key):
            try:
                self._obstore.put(self._client, self._path(key), content, mode=mode)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def delete(self, key: str) -> None:
        """Removes an object if it is there."""
        try:
            with self._errors(key):
                self._obstore.delete(self._client, self._path(key))
        except FileNotFoundError:
            pass

    def forget(self, key: str) -> None:
        """Removes an object if that can be done, after something else has failed."""
        try:
            self.delete(key)
        except OSError:
            pass

    def holds(self, key: str) -> bool:
        """Whether there is an object of that name."""
        try:
            with self._errors(key):
                self._obstore.head(self._client, self._path(key))
        except FileNotFoundError:
            return False
        return True

    def download(self, key: str, tag: str, file: BinaryIO) -> None:
        """The content that an object had when it was listed.

        Raises:
            FileNotFoundError: it is there no more, or another one.
        """
        with self._errors(key):
            answer = self._obstore.get(self._client, self._path(key))
            if _tag(answer.meta) != tag:
                raise FileNotFoundError(errno.ENOENT, "It was replaced", (self.place / key).url)
            for piece in answer.stream(min_chunk_size=_PIECE_BYTES):
                file.write(piece)

    def entries(self, below: str = "", *, after: str | None = None) -> Iterator[Entry]:
        """All objects below a prefix that is empty or ends with '/', a thousand per request.

        Args:
            below: the prefix.
            after: only those whose names sort behind this one.

        Raises:
            OddNamesError: some of them cannot be asked for.
        """
        offset = None if after is None else self._path(after)
        with self._errors(below):
            pages = self._obstore.list(
                self._client, self._path(below) or None, offset=offset, chunk_size=1000
            )
            for page in pages:
                yield from self._entries(page)

    def level(self, below: str = "") -> tuple[list[str], list[Entry]]:
        """What lies directly below a prefix: prefixes and objects; a thousand per request."""
        with self._errors(below):
            found = self._obstore.list_with_delimiter(self._client, self._path(below) or None)
            skip = len(self._path(""))
            names = [each.strip("/")[skip:] for each in found["common_prefixes"]]
            return [f"{name}/" for name in names if name], list(self._entries(found["objects"]))

    def despite_odd_names(
        self, below: str = "", *, depth: int, most: int
    ) -> tuple[list[Entry], list[str]]:
        """The objects below a prefix and, where some names there are no paths, the prefixes below
        which objects may be missing.

        One odd name spoils the listing of the thousand names around it, so directories are then
        listed one by one. Where the odd name lies, only what sorts behind it is found.

        Args:
            below: the prefix.
            depth: how far down directories are listed one by one.
            most: objects to look at.
        """
        try:
            return list(islice(self.entries(below), most)), []
        except OddNamesError as error:
            odd = error
        try:
            prefixes, entries = self.level(below)
        except OddNamesError as error:
            return self._behind(below, error, most), [below]
        if not depth:
            return self._behind(below, odd, most), [below]
        spoiled: list[str] = []
        for each in prefixes:
            left = max(0, most - len(entries))
            found, bad = self.despite_odd_names(each, depth=depth - 1, most=left)
            entries += found
            spoiled += bad
        return entries, spoiled

    def _behind(self, below: str, odd: OddNamesError, most: int) -> list[Entry]:
        skip = len(self._path(""))
        for _ in range(_MOST_ODD):
            after = _behind_odd(str(odd.__cause__))
            if after is None or not after.startswith(self._path(below)):
                return []
            try:
                return list(islice(self.entries(below, after=after[skip:]), most))
            except OddNamesError as error:
                odd = error
        return []

    def _path(self, key: str) -> str:
        return f"{self.place.prefix}/{key}" if self.place.prefix else key

    def _entries(self, page: Iterable[Any]) -> Iterator[Entry]:
        skip = len(self._path(""))
        for each in page:
            key, changed = each["path"][skip:], each["last_modified"]
            if key:
                yield Entry(key, each["size"], _tag(each), round(changed.timestamp() * 1e9))

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Errors of the library as those of Python, each with one sentence."""
        url = (self.place / key).url if key else self.place.url
        known = self._obstore.exceptions
        try:
            yield
        except UnreachableError:
            raise
        except FileNotFoundError as error:
            if _lacks_bucket(str(error)):
                raise self._no_bucket() from error
            raise FileNotFoundError(errno.ENOENT, "There is no such object", url) from error
        except (known.PermissionDeniedError, known.UnauthenticatedError) as error:
            raise self._refused(url) from error
        except known.InvalidPathError as error:
            said = "it holds an object whose name is no path; remove that, or name another prefix"
            raise OddNamesError(errno.EINVAL, said, url) from error
        except known.BaseError as error:
            raise self._trouble(url, str(error)) from error

    def _no_bucket(self) -> UnreachableError:
        called, place = _CALLED[self.place.scheme], Place(self.place.scheme, self.place.bucket, "")
        said = f"there is no such {called}; check its name, and the region or the endpoint"
        return UnreachableError(errno.ENXIO, said, place.url)

    def _refused(self, url: str) -> RefusedError:
        said = (
            "access was refused; check the credentials in the environment "
            f"({_VARIABLES[self.place.scheme]}…) and what they allow"
        )
        return RefusedError(errno.EACCES, said, url)

    def _trouble(self, url: str, said: str) -> UnreachableError:
        """What an error without a class of its own means."""
        if _lacks_bucket(said):
            return self._no_bucket()
        prefix = _VARIABLES[self.place.scheme]
        variables = f"{prefix}…"
        if any(each in said for each in _CREDENTIALS):
            reason = f"no credentials were found; set them in the environment ({variables})"
            return RefusedError(errno.EACCES, reason, url)
        if "403 Forbidden" in said.partition("\n")[0]:  # listings have no class for it
            return self._refused(url)
        if "builder error" in said and "BadScheme" in said:
            reason = f"the endpoint has no TLS; allow that with {prefix}ALLOW_HTTP=true"
            return UnreachableError(errno.EPROTONOSUPPORT, reason, url)
        if "error sending request" in said or "timed out" in said:
            reason = f"it cannot be reached; check the network and the endpoint ({variables})"
            return UnreachableError(errno.EHOSTUNREACH, reason, url)
        return UnreachableError(errno.EIO, f"it cannot be used: {_first_line(said)}", url)


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What becomes of each item, several at a time. After an error nothing more is begun."""
    if len(items) < 2:
        return [work(each) for each in items]
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(items))) as pool:
        try:
            begun = [pool.submit(work, each) for each in items]
            for done in as_completed(begun):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [each.result() for each in begun]


@functools.lru_cache(maxsize=16)
def _client(scheme: str, bucket: str, _variables: frozenset[tuple[str, str]]) -> Any:
    """The library's object: it holds connections, and making one takes 30 ms."""
    library = require("obstore.store", extra="remote")
    try:
        # As text among the rest: `client_options` would undo what the environment says of them.
        return getattr(library, _CLASSES[scheme])(bucket, config=_CLIENT, retry_config=_RETRY)
    except require("obstore.exceptions", extra="remote").BaseError as error:
        url = Place(scheme, bucket, "").url
        said = _first_line(str(error))
        reason = f"the environment ({_VARIABLES[scheme]}…) does not say what is needed: {said}"
        raise UnreachableError(errno.EINVAL, reason, url) from error


_CREDENTIALS = ("/latest/api/token", "/latest/meta-data", "oauth2/token", "service-accounts/")
"""Addresses at which machines of a cloud learn who they are: the last resort of who knows not."""


_NO_BUCKET = ("nosuchbucket", "bucket does not exist", "containernotfound")
"""What S3, Google and Azure say, in small letters."""


def _lacks_bucket(said: str) -> bool:
    text = said.casefold()
    return any(each in text for each in _NO_BUCKET)


def _first_line(said: str) -> str:
    """What the library says, without the tree of errors below it."""
    return " ".join(said.partition("Debug source")[0].split())[:300].rstrip(".")


def _tag(meta: Any) -> str:
    """Azure quotes it in one place and not in another."""
    tag = meta["e_tag"] or meta["version"] or meta["last_modified"].isoformat()
    return str(tag).removeprefix("W/").strip('"')


_ODD = re.compile(r'Path "(.*?)" contained empty path segment|parsing Path "(.*)": ', re.DOTALL)


def _behind_odd(said: str) -> str | None:
    """A name that sorts behind an odd one, and behind no other that is not odd."""
    match = _ODD.search(said)
    if match is None:
        return None
    parts: list[str] = []
    for part in (match[1] or match[2] or "").split("/"):
        if part in {"", ".", ".."}:
            return "/".join([*parts, f"{part}0"])  # '0' follows '/'
        control = _CONTROL.search(part)
        if control is not None:
            # Whatever has another one in its place sorts before the next letter that is none.
            letter = " " if control[0] < " " else "\x80"
            return "/".join([*parts, part[: control.start()] + letter])
        parts.append(part)
    return None
