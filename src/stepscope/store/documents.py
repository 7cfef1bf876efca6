"""Documents of a run: their encoding, and the first one, which makes a directory a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stepscope.errors import RunExistsError, UsageError
from stepscope.schema import MALFORMED_JSON, RunInfo
from stepscope.store import layout
from stepscope.store.local import make_private_directory
from stepscope.store.location import is_remote, open_store

Document = TypeVar("Document", bound=msgspec.Struct)


class RunDocuments:
    """Small documents of a run; needs no database."""

    def __init__(self, location: str | Path) -> None:
        self._store = open_store(location)

    def _get(self, key: str, document: type[Document]) -> Document | None:
        """Read a document; None if it is missing or damaged."""
        try:
            return msgspec.json.decode(self._store.get(key), type=document)
        except (FileNotFoundError, *MALFORMED_JSON):
            return None


def create_run(location: str | Path, info: RunInfo, *, is_shared: bool = False) -> None:
    """Create a run.

    Args:
        location: directory, which may exist, or URL.
        info: content of `run.json`.
        is_shared: let the umask decide who may read a new directory; else only its owner may.

    Raises:
        RunExistsError: a run exists at that location.
        UsageError: a file is in the way.
        OSError: the location cannot be written.
    """
    try:
        if not is_remote(location) and not is_shared:
            make_private_directory(Path(location).absolute())
        created = open_store(location).put_if_absent(layout.RUN_KEY, encode_document(info))
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"{location} cannot be created: {error.filename} is a file. Use a new directory."
        ) from error
    if not created:
        raise RunExistsError(f"{location} already holds a run. Use a new directory.")


def encode_document(document: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """Encode a document of a run as indented JSON."""
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        # Arguments and paths that are not UTF-8 reach Python as lone surrogates.
        encoded = msgspec.json.encode(_valid_unicode(msgspec.to_builtins(document)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _valid_unicode(value: Any) -> Any:
    """Replace characters that are not Unicode with '?' in plain data."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_valid_unicode(item) for item in value]
        case dict():
            return {_valid_unicode(key): _valid_unicode(item) for key, item in value.items()}
        case _:
            return value
