"""Download of files from a bucket, for importers, which read local files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from stepscope.errors import UsageError
from stepscope.schema import TRACE_SUFFIXES, is_event_file_name
from stepscope.store import layout
from stepscope.store.bucket import Bucket, BucketLocation, map_parallel
from stepscope.store.objectstore import is_hidden


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
        raise UsageError(f"{url} is a run already. Show it with `stepscope show {url} overview`.")
    # Other objects may be checkpoints of many gigabytes.
    traces = [
        entry
        for entry in visible
        if entry.key.endswith(TRACE_SUFFIXES) or is_event_file_name(entry.key.rpartition("/")[2])
    ]
    if not traces:
        raise UsageError(
            f"There is no trace at or below {url}. Pass the URL of one file, or a prefix with "
            f"{' or '.join(TRACE_SUFFIXES)} files."
        )

    def fetch(key: str, tag: str) -> None:
        target = directory / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            bucket.download(key, file, tag=tag)

    map_parallel(lambda entry: fetch(entry.key, entry.tag), traces)
    size_bytes = sum(entry.size_bytes for entry in traces)
    return Download(len(traces), size_bytes, len(visible) - len(traces))
