"""Choice of the object store for a path or URL."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from stepscope.errors import UsageError
from stepscope.store.local import LocalStore
from stepscope.store.objectstore import ObjectStore

_REMOTE_SCHEMES = ("s3:", "gs:", "az:")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)//")


def is_remote(location: str | Path) -> bool:
    """Return True if a location is the URL of an object store rather than a directory.

    Raises:
        UsageError: it is the URL of something else; as a path it would lose a slash.
    """
    url = _URL.match(str(location))
    if url is None:
        return False
    if url[1] in _REMOTE_SCHEMES:
        return True
    advice = ""
    if url[1] in {"http:", "https:"}:
        source = shlex.quote(str(location))
        advice = f" Import a trace from a URL with `stepscope import {source} -o RUN`."
    raise UsageError(
        f"{location} cannot be a run: use a directory, or a URL that starts with s3://, gs:// or "
        f"az://.{advice}"
    )


def open_store(location: str | Path) -> ObjectStore:
    """Open the store at a path or URL; nothing has to exist there yet.

    Raises:
        UsageError: the URL is not that of a bucket, or the library that reads one is not
            installed.
    """
    if is_remote(location):
        from stepscope.store.remote import RemoteStore  # 10 ms, for buckets alone

        return RemoteStore(str(location))
    if isinstance(location, Path) and location.parts[:1] and location.parts[0] in _REMOTE_SCHEMES:
        raise UsageError(
            f"{location}: pass the URL of a bucket as a string; pathlib.Path drops a slash."
        )
    return LocalStore(Path(location))
