"""Client of one bucket of S3, Google Cloud Storage or Azure, with errors in plain sentences.

The library `obstore` sends the requests. It is imported when the first bucket is opened, and must
not be used in a process that forks afterwards: child processes that use it too would hang.
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

from stepscope import errors
from stepscope.errors import require
from stepscope.store.objectstore import read_connection_string

T = TypeVar("T")
R = TypeVar("R")
_CLASSES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_BUCKET_TERMS = {"s3": "bucket", "gs": "bucket", "az": "container"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CLIENT = {"connect_timeout": "5 seconds", "read_timeout": "15 seconds", "timeout": "1 hour"}
"""A large file may take an hour while data keeps arriving; the library's default limit is 30 s."""
_RETRY = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
        "base": 2,
    },
}
"""The library's default is to retry for three minutes before it reports a missing network."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_INVALID_NAMES = 50
_MAX_THREADS = 16
_CHUNK_BYTES = 1 << 20


class UnreachableError(OSError):
    """Failed request to a bucket; `strerror` gives the reason and the remedy."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class AccessDeniedError(UnreachableError, PermissionError):
    """Request without credentials, or with credentials that the bucket does not accept."""


class InvalidNamesError(UnreachableError):
    """Listing that contains object names which are not paths.

    Such names hold '..', nothing between two '/', or control characters. The library rejects a
    complete listing because of one of them.
    """


class Entry(NamedTuple):
    """Object in a listing."""

    key: str
    """Relative to the listed prefix."""
    size_bytes: int
    tag: str
    """Entity tag; differs for different content."""
    changed_ns: int


class Version(NamedTuple):
    """Version of the content of an object, as the service names it in a condition."""

    e_tag: str | None
    number: str | None
    """Generation, or version of a versioned bucket."""

    @property
    def tag(self) -> str:
        """The tag of an `Entry` with this content."""
        return _unquote(self.e_tag or self.number or "")


class BucketLocation(NamedTuple):
    """Parts of a bucket URL."""

    scheme: str
    bucket: str
    prefix: str
    """Without '/' at either end."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Split a URL.

        Raises:
            UsageError: it is not the URL of a bucket.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.rstrip("/")
        is_bucket = scheme in _CLASSES and _NAME.fullmatch(bucket)
        if not is_bucket or (prefix and not is_path(prefix)):
            raise errors.UsageError(
                f"{url!r} is not a bucket URL. Use a URL such as s3://bucket/runs/a, "
                "gs://bucket/runs/a or az://container/runs/a."
            )
        return cls(scheme, bucket, prefix)

    @property
    def url(self) -> str:
        """The location as a URL."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def __truediv__(self, key: str) -> BucketLocation:
        prefix = f"{self.prefix}/{key}" if self.prefix else key
        return BucketLocation(self.scheme, self.bucket, prefix)


def is_path(key: str) -> bool:
    """Return True if the library can request an object of this name."""
    return not _CONTROL.search(key) and not {"", ".", ".."} & set(key.split("/"))


class Bucket:
    """Objects below one prefix of a bucket. Keys are relative to the prefix. Thread-safe."""

    def __init__(self, location: BucketLocation) -> None:
        self.location = location
        prefixes = (_VARIABLES[location.scheme], "HTTP", "http", "NO_PROXY", "no_proxy")
        # A notebook may change the variables: each set of them gets a client of its own.
        variables = frozenset((k, v) for k, v in os.environ.items() if k.startswith(prefixes))
        self._client = _client(location.scheme, location.bucket, variables)
        self._obstore = require("obstore", extra="remote")

    def get(self, key: str) -> bytes:
        """Read an object; FileNotFoundError if it does not exist."""
        with self._translated_errors(key):
            return bytes(self._obstore.get(self._client, self._path(key)).bytes())

    def put(self, key: str, content: bytes | Path, *, only_new: bool = False) -> bool:
        """Write a complete object; with `only_new`, return False if the key exists."""
        mode = "create" if only_new else "overwrite"
        with self._translated_errors(key):
            try:
                self._obstore.put(self._client, self._path(key), content, mode=mode)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def put_if_unchanged(
        self, key: str, content: bytes | Path, version: Version | None
    ) -> Version | None:
        """Write a complete object if no other writer has changed it meanwhile.

        Args:
            key: the object.
            content: its content.
            version: version that is replaced; None if the object must not exist.

        Returns:
            The new version; None, and nothing is written, if the condition is not met.
        """
        mode: Any = "create"
        if version is not None:
            pairs = {"e_tag": version.e_tag, "version": version.number}
            mode = {name: value for name, value in pairs.items() if value is not None}
        with self._translated_errors(key):
            exceptions = self._obstore.exceptions
            try:
                result = self._obstore.put(
                    self._client, self._path(key), content, mode=mode, use_multipart=False
                )
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                if _is_missing_bucket(str(error)):
                    raise self._missing_bucket() from error
                return None
        return Version(result["e_tag"], result["version"])

    def examine(self, key: str) -> tuple[Version, int] | None:
        """Return the version and the size of an object in bytes; None if it does not exist."""
        try:
            with self._translated_errors(key):
                meta = self._obstore.head(self._client, self._path(key))
        except FileNotFoundError:
            return None
        return Version(meta["e_tag"], meta["version"]), meta["size"]

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        try:
            with self._translated_errors(key):
                self._obstore.delete(self._client, self._path(key))
        except FileNotFoundError:
            pass

    def try_delete(self, key: str) -> None:
        """Remove an object and ignore errors: cleanup after another failure."""
        try:
            self.delete(key)
        except OSError:
            pass

    def has(self, key: str) -> bool:
        """Return True if an object of that name exists."""
        try:
            with self._translated_errors(key):
                self._obstore.head(self._client, self._path(key))
        except FileNotFoundError:
            return False
        return True

    def download(self, key: str, file: BinaryIO, *, tag: str | None = None) -> None:
        """Write the content of an object to `file`; with `tag`, the content that has this tag.

        Raises:
            FileNotFoundError: the object does not exist, or was replaced since it was listed.
        """
        with self._translated_errors(key):
            response = self._obstore.get(self._client, self._path(key))
            if tag is not None and _tag(response.meta) != tag:
                raise FileNotFoundError(
                    errno.ENOENT, "The object was replaced", (self.location / key).url
                )
            for chunk in response.stream(min_chunk_size=_CHUNK_BYTES):
                file.write(chunk)

    def entries(self, prefix: str = "", *, after: str | None = None) -> Iterator[Entry]:
        """List all objects below a prefix, a thousand per request.

        Args:
            prefix: empty, or ends with '/'.
            after: list only names that sort after this one.

        Raises:
            InvalidNamesError: the library cannot request some of the objects.
        """
        offset = None if after is None else self._path(after)
        with self._translated_errors(prefix):
            pages = self._obstore.list(
                self._client, self._path(prefix) or None, offset=offset, chunk_size=1000
            )
            for page in pages:
                yield from self._entries(page)

    def level(self, prefix: str = "") -> tuple[list[str], list[Entry]]:
        """List the prefixes and objects directly below a prefix, a thousand per request."""
        with self._translated_errors(prefix):
            listing = self._obstore.list_with_delimiter(self._client, self._path(prefix) or None)
            skip = len(self._path(""))
            names = [path.strip("/")[skip:] for path in listing["common_prefixes"]]
            return [f"{name}/" for name in names if name], list(self._entries(listing["objects"]))

    def entries_despite_invalid_names(
        self, prefix: str = "", *, depth: int, limit: int
    ) -> tuple[list[Entry], list[str]]:
        """List objects even if some names are not paths.

        One invalid name spoils the listing of the thousand names around it. Directories are then
        listed one by one; next to an invalid name, only names that sort after it are listed.

        Args:
            prefix: the prefix.
            depth: levels of directories that are listed one by one.
            limit: maximum number of objects.

        Returns:
            The objects, and the prefixes below which objects may be missing.
        """
        try:
            return list(islice(self.entries(prefix), limit)), []
        except InvalidNamesError as error:
            invalid = error
        try:
            prefixes, entries = self.level(prefix)
        except InvalidNamesError as error:
            return self._entries_after(prefix, error, limit), [prefix]
        if not depth:
            return self._entries_after(prefix, invalid, limit), [prefix]
        incomplete: list[str] = []
        for child in prefixes:
            child_entries, child_incomplete = self.entries_despite_invalid_names(
                child, depth=depth - 1, limit=max(0, limit - len(entries))
            )
            entries += child_entries
            incomplete += child_incomplete
        return entries, incomplete

    def _entries_after(self, prefix: str, invalid: InvalidNamesError, limit: int) -> list[Entry]:
        """List the objects that sort after the invalid names of a prefix."""
        skip = len(self._path(""))
        for _ in range(_MAX_INVALID_NAMES):
            after = _name_after_invalid(str(invalid.__cause__))
            if after is None or not after.startswith(self._path(prefix)):
                return []
            try:
                return list(islice(self.entries(prefix, after=after[skip:]), limit))
            except InvalidNamesError as error:
                invalid = error
        return []

    def _path(self, key: str) -> str:
        return f"{self.location.prefix}/{key}" if self.location.prefix else key

    def _entries(self, page: Iterable[Any]) -> Iterator[Entry]:
        skip = len(self._path(""))
        for meta in page:
            key, changed = meta["path"][skip:], meta["last_modified"]
            if key:
                yield Entry(key, meta["size"], _tag(meta), round(changed.timestamp() * 1e9))

    @contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        """Translate errors of the library to Python's, each with one sentence."""
        url = (self.location / key).url if key else self.location.url
        exceptions = self._obstore.exceptions
        try:
            yield
        except UnreachableError:
            raise
        except FileNotFoundError as error:
            if _is_missing_bucket(str(error)):
                raise self._missing_bucket() from error
            raise FileNotFoundError(errno.ENOENT, "The object does not exist", url) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise self._access_denied(url) from error
        except exceptions.InvalidPathError as error:
            reason = (
                "it contains an object whose name is not a path; remove it or use another prefix"
            )
            raise InvalidNamesError(errno.EINVAL, reason, url) from error
        except exceptions.BaseError as error:
            raise self._unclassified_error(url, str(error)) from error

    def _missing_bucket(self) -> UnreachableError:
        term = _BUCKET_TERMS[self.location.scheme]
        url = BucketLocation(self.location.scheme, self.location.bucket, "").url
        reason = f"the {term} does not exist; check its name, and the region or the endpoint"
        return UnreachableError(errno.ENXIO, reason, url)

    def _access_denied(self, url: str) -> AccessDeniedError:
        reason = (
            "access denied; check the credentials in the environment "
            f"({_VARIABLES[self.location.scheme]}…) and their permissions"
        )
        return AccessDeniedError(errno.EACCES, reason, url)

    def _unclassified_error(self, url: str, text: str) -> UnreachableError:
        """Interpret an error for which the library has no class."""
        if _is_missing_bucket(text):
            return self._missing_bucket()
        prefix = _VARIABLES[self.location.scheme]
        variables = f"{prefix}…"
        if any(address in text for address in _CREDENTIAL_SERVICES):
            reason = f"no credentials found; set them in the environment ({variables})"
            return AccessDeniedError(errno.EACCES, reason, url)
        if "403 Forbidden" in text.partition("\n")[0]:  # listings have no class for it
            return self._access_denied(url)
        if "builder error" in text and "BadScheme" in text:
            reason = f"the endpoint has no TLS; allow that with {prefix}ALLOW_HTTP=true"
            return UnreachableError(errno.EPROTONOSUPPORT, reason, url)
        for signs, reason in _REFUSALS:
            if any(sign in text for sign in signs):
                return UnreachableError(errno.EIO, reason, url)
        if "error sending request" in text or "timed out" in text:
            reason = f"cannot connect; check the network and the endpoint ({variables})"
            return UnreachableError(errno.EHOSTUNREACH, reason, url)
        return UnreachableError(errno.EIO, f"request failed: {_first_line(text)}", url)


def map_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply `work` to each item in a thread pool. After an error, no further call starts."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_MAX_THREADS, len(items))) as pool:
        try:
            futures = [pool.submit(work, item) for item in items]
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


@functools.lru_cache(maxsize=16)
def _client(scheme: str, bucket: str, _variables: frozenset[tuple[str, str]]) -> Any:
    """Create the library's client: it holds connections, and creating one takes 30 ms."""
    library = require("obstore.store", extra="remote")
    try:
        # Passed as `config`, because `client_options` would override the environment.
        config = {**_CLIENT, **(read_connection_string() if scheme == "az" else {})}
        return getattr(library, _CLASSES[scheme])(bucket, config=config, retry_config=_RETRY)
    except (require("obstore.exceptions", extra="remote").BaseError, ValueError) as error:
        url = BucketLocation(scheme, bucket, "").url
        variables, detail = f"{_VARIABLES[scheme]}…", _first_line(str(error))
        reason = (
            f"the settings in the environment ({variables}) are incomplete or invalid: {detail}"
        )
        raise UnreachableError(errno.EINVAL, reason, url) from error


_CREDENTIAL_SERVICES = (
    "/latest/api/token", "/latest/meta-data", "oauth2/token", "service-accounts/",
)  # fmt: skip
"""Metadata addresses from which cloud machines get credentials: tried when no others are set."""
_REFUSALS = (
    (
        ("429 Too Many", "503 Service", "SlowDown", "ServerBusy"),
        "the service limits requests or is overloaded; try again later",
    ),
    (
        ("507 Insufficient", "StorageFull", "QuotaExceeded", "quotaExceeded"),
        "the store is full or its quota is used up; delete objects or raise the quota",
    ),
)
"""Parts of error texts, and what they mean."""
_MISSING_BUCKET_TEXTS = ("nosuchbucket", "bucket does not exist", "containernotfound")
"""Error texts of S3, Google Cloud Storage and Azure, in lower case."""


def _is_missing_bucket(text: str) -> bool:
    lower = text.casefold()
    return any(part in lower for part in _MISSING_BUCKET_TEXTS)


def _first_line(text: str) -> str:
    """Return the library's message without the tree of causes below it."""
    return " ".join(text.partition("Debug source")[0].split())[:300].rstrip(".")


def _tag(meta: Any) -> str:
    """Return the entity tag without quotes, which Azure adds in some responses only."""
    return _unquote(meta["e_tag"] or meta["version"] or meta["last_modified"].isoformat())


def _unquote(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')


_INVALID_PATH = re.compile(
    r'Path "(.*?)" contained empty path segment|parsing Path "(.*)": ', re.DOTALL
)


def _name_after_invalid(message: str) -> str | None:
    """Return a name that sorts after an invalid one, and after no valid one that follows it."""
    match = _INVALID_PATH.search(message)
    if match is None:
        return None
    parts: list[str] = []
    for part in (match[1] or match[2] or "").split("/"):
        if part in {"", ".", ".."}:
            return "/".join([*parts, f"{part}0"])  # '0' follows '/'
        control = _CONTROL.search(part)
        if control is not None:
            # Names with another control character here sort before the next printable letter.
            letter = " " if control[0] < " " else "\x80"
            return "/".join([*parts, part[: control.start()] + letter])
        parts.append(part)
    return None
