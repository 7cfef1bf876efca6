"""Choice of the object store for a path or URL; downloads, uploads, repeated runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from stepscope import errors, schema
from stepscope.store import layout
from stepscope.store.local import LocalStore
from stepscope.store.objectstore import ObjectStore, is_hidden

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
    raise errors.UsageError(
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
        raise errors.UsageError(
            f"{location}: pass the URL of a bucket as a string; pathlib.Path drops a slash."
        )
    return LocalStore(Path(location))


class Download(NamedTuple):
    """Result of a download."""

    file_count: int
    size_bytes: int
    ignored_count: int
    """Objects below the prefix with other names."""


def download_files(url: str, directory: Path) -> Download:
    """Copy one object of any name, or the JSON and event files below a prefix, into a directory.

    Args:
        url: URL of the object or the prefix.
        directory: an existing, empty directory.

    Raises:
        UsageError: there is neither at the URL, or it is the URL of a run.
        OSError: the bucket cannot be reached, or the directory cannot be written.
    """
    from stepscope.store.bucket import (  # most runs are in no bucket
        Bucket,
        BucketLocation,
        map_parallel,
    )

    location = BucketLocation.parse(url)
    parent, _, name = location.prefix.rpartition("/")
    single = Bucket(location._replace(prefix=parent))
    if name and not url.endswith("/") and single.has(name):
        with (directory / name).open("wb") as file:
            single.download(name, file)
        return Download(1, (directory / name).stat().st_size, 0)
    bucket = Bucket(location)
    visible = [entry for entry in bucket.entries() if not is_hidden(entry.key)]
    if any(entry.key == layout.RUN_KEY for entry in visible):
        raise errors.UsageError(
            f"{url} is a run already. Show it with `stepscope show {url} overview`."
        )
    # Other objects may be checkpoints of many gigabytes.
    traces = [
        entry
        for entry in visible
        if entry.key.endswith(schema.TRACE_SUFFIXES)
        or schema.is_event_file_name(entry.key.rpartition("/")[2])
    ]
    if not traces:
        raise errors.UsageError(
            f"There is no trace at or below {url}. Pass the URL of one file, or a prefix with "
            f"{' or '.join(schema.TRACE_SUFFIXES)} files."
        )

    def fetch(key: str, tag: str) -> None:
        target = directory / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            bucket.download(key, file, tag=tag)

    map_parallel(lambda entry: fetch(entry.key, entry.tag), traces)
    size_bytes = sum(entry.size_bytes for entry in traces)
    return Download(len(traces), size_bytes, len(visible) - len(traces))


def check_free(url: str) -> None:
    """Check that a run can be created at a URL.

    Raises:
        RunExistsError: a run exists there.
        UsageError: other objects exist there.
        OSError: the bucket cannot be reached.
    """
    from stepscope.store.bucket import Bucket, BucketLocation  # most runs are in no bucket

    bucket = Bucket(BucketLocation.parse(url))
    if bucket.has(layout.RUN_KEY):
        raise errors.RunExistsError(f"{url} already holds a run. Use a new URL.")
    if next(bucket.entries(), None) is not None:
        raise errors.UsageError(
            f"{url} is not empty but not a run: it contains other objects or the remains of an "
            "interrupted import. Use a new URL."
        )


def upload_run(directory: Path, url: str) -> None:
    """Copy a run to a bucket.

    `run.json` is written last, so that readers see only a complete run. After an error, the objects
    copied so far are removed.

    Raises:
        RunExistsError: another process created a run there in the meantime.
        OSError: the bucket cannot be reached or written.
    """
    from stepscope.store.bucket import (  # most runs are in no bucket
        Bucket,
        BucketLocation,
        map_parallel,
    )

    source, bucket = LocalStore(directory), Bucket(BucketLocation.parse(url))
    keys = [key for key in source.list("") if key != layout.RUN_KEY]
    created: list[str] = []

    def send(key: str) -> None:
        if not bucket.put(key, source.local_path(key), only_new=True):
            raise errors.RunExistsError(
                f"{url} already contains {key}: another process created a run there meanwhile."
            )
        created.append(key)

    try:
        map_parallel(send, keys)
        send(layout.RUN_KEY)
    except BaseException:
        map_parallel(bucket.try_delete, created)
        raise


def repeated_runs(location: str | Path) -> list[str]:
    """Return the runs directly below a location, by name; the location itself if there are none.

    Raises:
        UsageError: the location is an invalid bucket URL.
        OSError: a bucket cannot be reached.
    """
    runs = _runs_below_url(str(location)) if is_remote(location) else _runs_below(Path(location))
    return runs or [str(location)]


def _runs_below(path: Path) -> list[str]:
    if not path.is_dir() or (path / layout.RUN_KEY).exists():
        return []
    return sorted(str(child) for child in path.iterdir() if (child / layout.RUN_KEY).is_file())


def _runs_below_url(url: str) -> list[str]:
    keys = list(open_store(url).list(""))
    if layout.RUN_KEY in keys:
        return []
    base = url.rstrip("/")
    return [
        f"{base}/{key.removesuffix('/' + layout.RUN_KEY)}"
        for key in keys
        if key.endswith("/" + layout.RUN_KEY) and key.count("/") == 1
    ]
