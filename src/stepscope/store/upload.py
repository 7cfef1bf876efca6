"""A run directory that becomes a run in a bucket, as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import RunExistsError, UsageError
from stepscope.store import layout
from stepscope.store.bucket import Bucket, Place, in_parallel
from stepscope.store.objectstore import LocalStore

__all__ = ["check_free", "upload"]


def check_free(url: str) -> None:
    """Looks whether a run could be made there.

    Raises:
        RunExistsError: there is one.
        UsageError: there is something else.
        OSError: the bucket cannot be reached.
    """
    bucket = Bucket(Place.of(url))
    if bucket.holds(layout.RUN_KEY):
        raise RunExistsError(f"{url} already holds a run. Name a new URL.")
    if next(bucket.entries(), None) is not None:
        raise UsageError(
            f"{url} is not empty, and holds no run: there are other objects, or what an import "
            "has left that was killed. Name a new URL."
        )


def upload(directory: Path, url: str) -> None:
    """Copies a run. Its `run.json` comes last, so that nobody sees it before it is complete; when
    something fails, what was copied is removed.

    Raises:
        RunExistsError: somebody else has made a run there meanwhile.
        OSError: the bucket cannot be reached or written.
    """
    source, bucket = LocalStore(directory), Bucket(Place.of(url))
    keys = [key for key in source.list("") if key != layout.RUN_KEY]
    made: list[str] = []

    def send(key: str) -> None:
        if not bucket.put(key, source.local_path(key), only_new=True):
            raise RunExistsError(f"{url} holds {key} already: a run was made there meanwhile.")
        made.append(key)

    try:
        in_parallel(send, keys)
        send(layout.RUN_KEY)
    except BaseException:
        in_parallel(bucket.forget, made)
        raise
