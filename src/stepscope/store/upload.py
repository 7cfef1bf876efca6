"""Upload of a run directory to a bucket, completely or not at all."""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import RunExistsError, UsageError
from stepscope.store import layout
from stepscope.store.bucket import Bucket, BucketLocation, map_parallel
from stepscope.store.local import LocalStore


def check_free(url: str) -> None:
    """Check that a run can be created at a URL.

    Raises:
        RunExistsError: a run exists there.
        UsageError: other objects exist there.
        OSError: the bucket cannot be reached.
    """
    bucket = Bucket(BucketLocation.parse(url))
    if bucket.has(layout.RUN_KEY):
        raise RunExistsError(f"{url} already holds a run. Use a new URL.")
    if next(bucket.entries(), None) is not None:
        raise UsageError(
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
    source, bucket = LocalStore(directory), Bucket(BucketLocation.parse(url))
    keys = [key for key in source.list("") if key != layout.RUN_KEY]
    created: list[str] = []

    def send(key: str) -> None:
        if not bucket.put(key, source.local_path(key), only_new=True):
            raise RunExistsError(
                f"{url} already contains {key}: another process created a run there meanwhile."
            )
        created.append(key)

    try:
        map_parallel(send, keys)
        send(layout.RUN_KEY)
    except BaseException:
        map_parallel(bucket.try_delete, created)
        raise
