"""Protocol of the storage below a run: named objects that are written whole.

Object stores have no append, no rename and no compare-and-swap, so the code above this protocol
uses none of them. A segment is written once and never changed; a manifest is replaced whole; a
race between writers is decided by put-if-absent.

`stepscope.store.local` and `stepscope.store.remote` implement the protocol;
`stepscope.store.location` picks the implementation for a path or URL.

Connection strings of Azure Storage are parsed here, because the library `obstore` does not read
them (https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit


class ObjectStore(Protocol):
    """Named objects. A key is a relative path with '/' separators; no part starts with '.'.

    Every put is atomic and durable: a reader sees the complete object or none, and an
    acknowledged object survives a crash of the machine.
    """

    @property
    def url(self) -> str:
        """Absolute path or URL, at which another process can open the store."""
        ...

    def list(self, prefix: str) -> Iterable[str]:
        """List the keys below `prefix`, sorted; the prefix is empty or ends with '/'."""
        ...

    def get(self, key: str) -> bytes:
        """Read an object; FileNotFoundError if it does not exist."""
        ...

    def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Read several objects, concurrently where that is faster; None for a missing one."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write a new object; return False and change nothing if the key exists."""
        ...

    def staging_path(self, key: str) -> Path:
        """Create an empty local file, to be filled and passed to `put_file` for the same key."""
        ...

    def put_file(self, key: str, local_path: Path) -> bool:
        """Move a finished local file into place; return False, and keep it, if the key exists."""
        ...

    def deferring_sync(self) -> AbstractContextManager[None]:
        """Let `sync`, or the end, make durable what `put_file` publishes; else it is at once."""
        ...

    def sync(self) -> None:
        """Make durable what was published within `deferring_sync`."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing object is not an error."""
        ...

    def local_path(self, key: str) -> Path:
        """Return the path at which an immutable object can be opened as a file."""
        ...

    def local_paths(self, keys: Sequence[str]) -> Sequence[Path]:
        """Return the paths of several immutable objects, fetched concurrently if remote.

        Raises:
            FileNotFoundError: an object had to be fetched and no longer exists.
        """
        ...

    def has_local_file(self, key: str) -> bool:
        """Return True if the file that `local_path` returned can still be opened."""
        ...

    def refresh(self) -> None:
        """Drop cached listings."""
        ...


def is_hidden(key: str) -> bool:
    """Return True if a part of a name starts with '.', which no key may do."""
    return "/." in f"/{key}"


def check_key(key: str) -> None:
    """Raise ValueError unless `key` is valid."""
    if is_hidden(key) or "//" in f"/{key}/":
        raise ValueError(f"not a key: {key!r}")


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless `prefix` is valid."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"a prefix ends with '/': {prefix!r}")


AZURE_VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
_PUBLIC_CLOUD = "core.windows.net"


def read_connection_string() -> dict[str, str]:
    """Return the library's settings for the connection string in the environment.

    It counts only where `AZURE_STORAGE_ACCOUNT_NAME` does not name an account: the library would
    mix the two.

    Raises:
        ValueError: a part is missing or has no value; the message does not repeat the text, which
            holds a key.
    """
    text = os.environ.get(AZURE_VARIABLE, "")
    if not text or "AZURE_STORAGE_ACCOUNT_NAME" in os.environ:
        return {}
    parts = _parse_connection(text)
    if parts.get("usedevelopmentstorage", "").casefold() == "true":
        return {"use_emulator": "true"}
    endpoint = parts.get("blobendpoint") or _default_endpoint(parts)
    url = urlsplit(endpoint)
    settings = {
        "account_name": parts.get("accountname") or (url.hostname or "").partition(".")[0],
        "endpoint": endpoint.rstrip("/"),
        "account_key": parts.get("accountkey", ""),
        "sas_key": parts.get("sharedaccesssignature", ""),
        "allow_http": "true" if url.scheme == "http" else "",
    }
    return {name: value for name, value in settings.items() if value}


def _parse_connection(text: str) -> dict[str, str]:
    """Split into parts by name, in lower case. Values may contain '='."""
    parts = {}
    for part in filter(None, text.strip().split(";")):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise ValueError(f"{AZURE_VARIABLE} is not of the form NAME=VALUE;NAME=VALUE")
        parts[name.strip().casefold()] = value.strip()
    return parts


def _default_endpoint(parts: dict[str, str]) -> str:
    account = parts.get("accountname")
    if not account:
        raise ValueError(f"{AZURE_VARIABLE} has neither AccountName nor BlobEndpoint")
    protocol = parts.get("defaultendpointsprotocol") or "https"
    return f"{protocol}://{account}.blob.{parts.get('endpointsuffix') or _PUBLIC_CLOUD}"
