"""Import of XPlane files, one after the other."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stepscope import errors, store
from stepscope.importers import kineto
from stepscope.importers.content import (
    ProgressCallback,
    Refused,
    Result,
    TraceImporter,
    read_content,
)
from stepscope.importers.wire import DamagedMessageError
from stepscope.importers.xplane.events import (
    HOST_METADATA,
    HOST_PREFIX,
    chunks_of,
    describe_devices,
)
from stepscope.importers.xplane.planes import Space, read_space

_PLANE = re.compile(rb"\x0a[\x80-\xff]{0,9}[\0-\x7f][\x08\x12\x1a\x22\x2a]")
"""Start of a plane, whose first field is its number, name, lines or metadata."""
_PLANE_NAMES = (b"/host:", b"/device:", b"Task Environment")
_MIN_EPOCH_NS = 10**17
"""Lines that start earlier count from the start of the profile."""
_START_STATISTIC = "profile_start_time"


class XPlaneImporter(TraceImporter):
    """Importer of XPlane files; see `registry.Importer`."""

    formats = (kineto.TRACE,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins with a plane."""
        return bool(_PLANE.match(head)) and any(name in head for name in _PLANE_NAMES)

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import files into an existing run; see `registry.Importer.import_files`."""
        results: list[Result] = []
        identities = kineto.identify_files(files, self.step_range)
        with store.RunWriter(run, node) as writer:
            for index, (path, identity) in enumerate(zip(files, identities, strict=True)):
                gathered = kineto.Gathered(run)
                try:
                    space = _read(path)
                    reading = _gather(space, gathered, path)
                    host = space.hostnames[0] if space.hostnames else None
                    results.append(
                        kineto.store_reading(
                            reading,
                            writer,
                            replace(identity, node=host),
                            progress=partial(progress, index),
                        )
                    )
                except errors.UnreadableTraceError as error:
                    results.append(Refused(path, str(error)))
                finally:
                    gathered.close()
        return results


def import_window(
    path: Path, writer: store.RunWriter, identity: kineto.Identity, *, scratch: Path
) -> None:
    """Import the file of a window of a watched job.

    Args:
        path: the file.
        writer: writer of the run.
        identity: the window.
        scratch: directory for what does not fit into memory.

    Raises:
        UnreadableTraceError: the file cannot be read, is damaged, or has no events.
    """
    gathered = kineto.Gathered(scratch)
    try:
        kineto.store_reading(_gather(_read(path), gathered, path), writer, identity)
    finally:
        gathered.close()


def _read(path: Path) -> Space:
    """Read a file.

    Raises:
        UnreadableTraceError: the file cannot be read, or is damaged.
    """
    try:
        return read_space(read_content(path))
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UnreadableTraceError(f"{path} cannot be read: {error}.") from None
    except DamagedMessageError as error:
        raise errors.UnreadableTraceError(
            f"{path} is damaged: its bytes at {error.position} are no XPlane. Copy the file again, "
            "as binary data."
        ) from None


def _gather(space: Space, gathered: kineto.Gathered, path: Path) -> kineto.Reading:
    for plane in space.planes:
        for chunk in chunks_of(plane):
            gathered.add(chunk)
    if not gathered.event_count:
        hosts = any(plane.name.startswith(HOST_PREFIX) for plane in space.planes)
        reason = "its planes have no events" if hosts else "it has no plane of a host or device"
        if space.is_truncated:
            reason += ", and the file is truncated"
        raise errors.UnreadableTraceError(
            f"{path}, an XPlane file, has nothing to import: {reason}."
        )
    content = {
        **_read_versions(space),
        "baseTimeNanoseconds": _find_base(space),
        "deviceProperties": describe_devices(space.planes),
    }
    return kineto.Reading(
        gathered=gathered, header=kineto.Header(content), truncated=space.is_truncated
    )


def _read_versions(space: Space) -> dict[str, Any]:
    """Read the versions that the file states, such as `jax_version`."""
    return {
        name: value
        for plane in space.planes
        for name, value in plane.statistics.items()
        if plane.name == HOST_METADATA and name.endswith("_version")
    }


def _find_base(space: Space) -> int:
    """Return the nanoseconds since the epoch that lines count from, 0 if they count from there."""
    starts = [line.timestamp_ns for plane in space.planes for line in plane.lines if len(line)]
    if starts and max(starts) >= _MIN_EPOCH_NS:
        return 0
    for plane in space.planes:
        start = plane.statistics.get(_START_STATISTIC)
        if isinstance(start, int):
            return start
    return 0
