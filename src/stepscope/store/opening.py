"""Opening of a run: its `run.json`, the schema version, and errors for anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stepscope.errors import DamagedRunError, NewerSchemaError, NotARunError
from stepscope.schema import MALFORMED_JSON, SCHEMA_VERSION, RunInfo
from stepscope.store import layout
from stepscope.store.location import is_remote, open_store
from stepscope.store.reader import RunReader
from stepscope.store.upgrades import upgrades_from


def open_run(location: str | Path, *, threads: int | None = None) -> RunReader:
    """Open a run for reading.

    Args:
        location: directory or URL.
        threads: threads per query; by default the number of available cores.

    Raises:
        NotARunError: there is no run at that location.
        DamagedRunError: its `run.json` is invalid.
        NewerSchemaError: a later version of stepscope wrote it.
        OSError: a bucket cannot be reached.
    """
    store = open_store(location)
    try:
        data = store.get(layout.RUN_KEY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotARunError(_explain_missing_run(location)) from None
    except OSError as error:
        if is_remote(location):  # without a connection, the content is unknown
            raise
        raise NotARunError(f"{location} cannot be read: {error.strerror}.") from error
    version, content = _decode_versioned(location, data)
    upgrades = upgrades_from(version)
    for upgrade in upgrades:
        content = upgrade.run_info(content)
    try:
        info = msgspec.convert(content, RunInfo)
    except msgspec.ValidationError as error:
        raise _damaged_run(location, error) from error
    return RunReader(store, info, upgrades, threads=threads)


class _Version(msgspec.Struct):
    schema_version: int


def _decode_versioned(location: str | Path, data: bytes) -> tuple[int, dict[str, Any]]:
    """Decode the schema version and the content of a `run.json`."""
    try:
        # The version is decoded first: the other fields of a newer file may have any form.
        version = msgspec.json.decode(data, type=_Version).schema_version
        content = msgspec.json.decode(data, type=dict[str, Any])
    except MALFORMED_JSON as error:
        raise _damaged_run(location, error) from error
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{location} was recorded with schema version {version}; this stepscope reads up to "
            f"version {SCHEMA_VERSION}. Upgrade stepscope to open it."
        )
    if version < 1:
        raise _damaged_run(location, f"schema version {version} does not exist")
    return version, content


def _damaged_run(location: str | Path, reason: object) -> DamagedRunError:
    return DamagedRunError(f"{location}: {layout.RUN_KEY} is damaged: {reason}.")


def _explain_missing_run(location: str | Path) -> str:
    if is_remote(location):
        return (
            f"{location} is not a run: it has no {layout.RUN_KEY}. Pass the URL of a run; "
            "`stepscope ui URL` lists the runs below a URL."
        )
    path = Path(location)
    if not path.exists():
        return f"{path} does not exist. Pass the directory of a run."
    if not path.is_dir():
        return f"{path} is a file, but a run is a directory. Pass the directory of a run."
    return f"{path} is not a run: it has no {layout.RUN_KEY}. Pass the directory of a run."
