"""Mirror of a run directory that is still growing in an object store.

A monitor records into a staging directory, a complete run on this machine. The mirror writes its
files to the store, in an order in which a reader never misses what a file refers to:

    run.json                       claims the URL, by put-if-absent
    launchers/                     claim the names of the nodes of a shared run
    tensors/, raw/, tables/        closed files, written once
    segments/<table>/<node>.json   the segments of one node's table
    nodes/, processes/, …          documents, replaced if no other writer has changed them
    nodes/<node>/status.json       last, so that a final state is of a complete run

Stops of a job are exchanged with the other machines in both directions.

Segments that were merged before they were sent are not sent, and those that were sent before they
were merged are removed once the wider one is there and listed. Every put has a condition, so that a
request that arrives late, or twice, changes nothing.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope import schema
from stepscope.store import layout
from stepscope.store.bucket import Bucket, BucketLocation, UnreachableError, Version, map_parallel
from stepscope.store.documents import (
    AGREEMENTS,
    CONFIGURATION_DECISIONS,
    CONFIGURATION_REQUESTS,
    REQUESTS,
)
from stepscope.store.launchers import INCARNATIONS, LAUNCHERS, LEASES, RANK_CLAIMS, STOPS, SharedRun
from stepscope.store.layout import Segment
from stepscope.store.local import LocalStore
from stepscope.store.mirror_journal import (
    ListedSegment,
    SegmentList,
    Upload,
    UploadJournal,
    read_target,
)

_FINDINGS = "findings"
_COMMON = (INCARNATIONS, RANK_CLAIMS, REQUESTS, AGREEMENTS, CONFIGURATION_REQUESTS,
           CONFIGURATION_DECISIONS)  # fmt: skip
"""Documents of a shared run that any of its machines may write: the first one holds."""
_MAX_PARALLEL_BYTES = 1 << 20
"""Size up to which files are sent concurrently: an object is held in memory while it is sent."""
_MAX_CONFLICTS = 5


class UploadRefusedError(Exception):
    """URL, or node of the run at a URL, of another job; the message says whose, without a period.

    The recording goes on in the staging directory.
    """


class PendingFile(NamedTuple):
    """File of the staging directory that is not in the store as it is now."""

    key: str
    size_bytes: int
    stamp: str


class RunMirror:
    """Mirror of one staging directory.

    Args:
        directory: the staging directory.

    Raises:
        OSError: it is none, or cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        target = read_target(directory)
        if target is None:
            raise FileNotFoundError(f"{directory} is not a staging directory")
        self.url = target.url
        self.journal = UploadJournal(directory)
        self.sent_count = 0
        """Objects that were written or removed since the start."""
        self._directory = directory
        self._source = LocalStore(directory)
        self._is_unique = target.is_unique
        self._info: schema.RunInfo | None = None
        self._stops: list[schema.JobStop] = []
        """Stops in the store that were read."""
        self._bucket: Bucket | None = None

    @property
    def info(self) -> schema.RunInfo:
        """Content of the local `run.json`."""
        if self._info is None:
            self._info = msgspec.json.decode(self._source.get(layout.RUN_KEY), type=schema.RunInfo)
        return self._info

    def list_pending(self) -> list[PendingFile]:
        """List the files that have to be sent, in their order.

        Raises:
            OSError: the directory cannot be read.
        """
        if not self.journal.is_owned:
            self.journal.load()
        keys = [key for key in self._source.list("") if self._is_mirrored(key)]
        segments = [segment for key in keys if (segment := layout.parse_segment(key)) is not None]
        covered = {segment.key for segment in layout.find_covered(segments)}
        uploads = self.journal.uploads
        pending = []
        for key in keys:
            upload = uploads.get(key)
            if key in covered or (upload is not None and _is_immutable(key)):
                continue
            file = self._examine(key)
            if file is not None and (upload is None or upload.stamp != file.stamp):
                pending.append(file)
        return sorted(pending, key=lambda file: (_rank(file.key), file.key))

    def is_complete(self) -> bool:
        """Return True if nothing is left to do."""
        return not (self.list_pending() or self._stale_lists() or self._superseded())

    def send(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Send everything that is pending now; the caller holds the lock of the journal.

        Raises:
            UploadRefusedError: the URL has a run of another job.
            UsageError: the library for object stores is not installed.
            OSError: the store cannot be reached or written, or the directory cannot be read.
        """
        pending = self.list_pending()
        if any(file.key == layout.RUN_KEY for file in pending):
            self._claim_run()
        if self._is_shared:
            self._exchange_stops()
        data = [file for file in pending if _rank(file.key) < _LIST_RANK]
        documents = [file for file in pending if _rank(file.key) > _LIST_RANK]
        self._send_all((file for file in data if file.key != layout.RUN_KEY), should_stop)
        for key, content in self._stale_lists().items():
            if should_stop():
                return
            self._replace(key, content, _digest(content), len(content))
        self._send_all(documents, should_stop)
        for segment in self._superseded():
            if should_stop():
                return
            self._client.delete(segment.key)
            self.journal.add(Upload(key=segment.key, is_removed=True))
            self.sent_count += 1

    # --- which files ---------------------------------------------------------------------------

    @property
    def _is_shared(self) -> bool:
        return self.info.job is not None

    def _is_mirrored(self, key: str) -> bool:
        """Return False for what concerns this machine alone: in a shared run, the lease among its
        launchers, and findings from its part of the records; stops, whose numbers are those of this
        machine, are exchanged. Stored results hold for the files of this place."""
        kind = key.partition("/")[0]
        is_local = self._is_shared and kind in {LEASES, STOPS, _FINDINGS}
        return not (is_local or key.startswith(layout.RESULTS))

    def _examine(self, key: str) -> PendingFile | None:
        """Return a file as it is now; None if it was merged meanwhile."""
        try:
            status = self._source.local_path(key).stat()
        except FileNotFoundError:
            return None
        stamp = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
        return PendingFile(key, status.st_size, stamp)

    def _uploaded_segments(self) -> list[Segment]:
        keys = [*self.journal.uploads]
        return [segment for key in keys if (segment := layout.parse_segment(key)) is not None]

    def _superseded(self) -> list[Segment]:
        return layout.find_covered(self._uploaded_segments())

    def _stale_lists(self) -> dict[str, bytes]:
        """Return the lists of segments that differ from those in the store, by key."""
        uploads = self.journal.uploads
        visible = [segment.key for segment in layout.select_visible(self._uploaded_segments())]
        marks = [key for key in [*uploads] if layout.is_continued([key])]
        lists: dict[str, list[ListedSegment]] = defaultdict(list)
        for key in visible + sorted(marks):
            upload, file_name = uploads[key], key.rpartition("/")[2]
            lists[layout.segments_key_of(key)].append(
                ListedSegment(file_name, upload.size_bytes, upload.version.tag)
            )
        encoded = {
            key: msgspec.json.encode(SegmentList(segments=segments))
            for key, segments in lists.items()
        }
        return {
            key: content
            for key, content in encoded.items()
            if key not in uploads or uploads[key].stamp != _digest(content)
        }

    # --- one file ------------------------------------------------------------------------------

    @property
    def _client(self) -> Bucket:
        if self._bucket is None:
            self._bucket = Bucket(BucketLocation.parse(self.url))
        return self._bucket

    def _send_all(self, files: Iterable[PendingFile], should_stop: Callable[[], bool]) -> None:
        """Send files in the order of their ranks, small ones of one rank concurrently.

        The first file of a rank goes alone, so that a store that is away gets one request.
        """

        def send(file: PendingFile) -> None:
            if not should_stop():
                self._send(file)

        for group in _by_rank(files):
            send(group[0])
            small = [file for file in group[1:] if file.size_bytes <= _MAX_PARALLEL_BYTES]
            map_parallel(send, small)
            for file in group[1:]:
                if file.size_bytes > _MAX_PARALLEL_BYTES:
                    send(file)

    def _send(self, file: PendingFile) -> None:
        kind = file.key.partition("/")[0]
        try:
            if _is_immutable(file.key):
                self._create(file, self._source.local_path(file.key))
            elif kind == LAUNCHERS or (self._is_shared and kind in _COMMON):
                self._create(file, self._source.get(file.key))
            else:
                content = self._source.get(file.key)
                self._replace(file.key, content, file.stamp, file.size_bytes)
        except UnreachableError:
            raise
        except FileNotFoundError:
            if self._source.has_local_file(file.key):
                raise
            # It was merged meanwhile: the next listing has the wider one.

    def _create(self, file: PendingFile, content: bytes | Path) -> None:
        """Write a file that never changes, unless it is there."""
        version = self._client.put_if_unchanged(file.key, content, None)
        if version is None:
            version = self._adopt(file, content)
        self._note(file.key, file.stamp, file.size_bytes, version)

    def _adopt(self, file: PendingFile, content: bytes | Path) -> Version:
        """Return the version of an object that exists: a request whose answer was lost wrote it, or
        another machine of the run.

        Raises:
            UploadRefusedError: it belongs to another machine or job.
        """
        stored = self._client.examine(file.key)
        if stored is None:
            raise FileNotFoundError(f"{self.url}/{file.key} was removed while it was written")
        version, size_bytes = stored
        kind = file.key.partition("/")[0]
        if kind == LAUNCHERS and self._client.get(file.key) != content:
            node = layout.decode_file_name(file.key.partition("/")[2].removesuffix(".json"))
            raise UploadRefusedError(
                f"Another machine, or an earlier start on it, records into {self.url} as node "
                f"{node}: set STEPSCOPE_NODE to a name of its own for this one"
            )
        if kind == "tables" and size_bytes != file.size_bytes:
            raise UploadRefusedError(
                f"{self.url}/{file.key} differs from the recording: something else has written it"
            )
        return version

    def _replace(self, key: str, content: bytes, stamp: str, size_bytes: int) -> None:
        """Write a document, if no other writer has changed it."""
        upload = self.journal.uploads.get(key)
        version = None if upload is None else upload.version
        for _ in range(_MAX_CONFLICTS):
            written = self._client.put_if_unchanged(key, content, version)
            if written is not None:
                self._note(key, stamp, size_bytes, written)
                return
            # The answer to an earlier request was lost, or its line of the journal.
            stored = self._client.examine(key)
            version = None if stored is None else stored[0]
        raise OSError(f"{self.url}/{key} is written by another process at the same time")

    def _note(self, key: str, stamp: str, size_bytes: int, version: Version) -> None:
        self.journal.add(
            Upload(
                key=key,
                stamp=stamp,
                size_bytes=size_bytes,
                e_tag=version.e_tag,
                number=version.number,
            )
        )
        self.sent_count += 1

    # --- the run -------------------------------------------------------------------------------

    def _claim_run(self) -> None:
        """Create the run in the store, or join the one that another machine of the job has created.

        Raises:
            UploadRefusedError: it is of another job.
        """
        file = self._examine(layout.RUN_KEY)
        if file is None:
            raise FileNotFoundError(f"{self._directory} has no {layout.RUN_KEY}")
        content = self._source.get(layout.RUN_KEY)
        version = self._client.put_if_unchanged(layout.RUN_KEY, content, None)
        if version is None:
            self._check_run(content)
            claimed = self._client.examine(layout.RUN_KEY)
            version = Version(None, None) if claimed is None else claimed[0]
        self._note(layout.RUN_KEY, file.stamp, file.size_bytes, version)

    def _check_run(self, content: bytes) -> None:
        stored = self._client.get(layout.RUN_KEY)
        if stored == content:
            return
        try:
            info = msgspec.json.decode(stored, type=schema.RunInfo)
        except schema.MALFORMED_JSON:
            raise UploadRefusedError(f"{self.url} already holds a damaged run") from None
        if info.job is None or info.job != self.info.job:
            owner = "another run" if info.job is None else f"a run of the job {info.job}"
            raise UploadRefusedError(f"{self.url} already holds {owner}")
        if not self._is_unique and self._has_completed():
            raise UploadRefusedError(
                f"{self.url} already holds a run of the job {info.job}, which has completed"
            )

    def _exchange_stops(self) -> None:
        """Add stops of the other machines to the directory, and those of this machine to the store.

        A stop from before the recording on this machine is of an earlier start of the job.
        """
        here, there = SharedRun(self._directory), SharedRun(self.url)
        self._stops += there.read_stops(len(self._stops) + 1)
        local = here.read_stops()
        for stop in self._stops:
            if stop not in local and stop.stopped_ns >= self.info.created_ns:
                here.add_stop(stop)
        for stop in local:
            if stop not in self._stops:
                there.add_stop(stop)
                self.sent_count += 1

    def _has_completed(self) -> bool:
        run = SharedRun(self.url)
        statuses = [run.read_status(launcher.node) for launcher in run.list_launchers()]
        return bool(statuses) and all(
            status is not None and status.state is schema.JobState.COMPLETED for status in statuses
        )


_RANKS: Mapping[str, int] = {layout.RUN_KEY: 0, LAUNCHERS: 1, "tensors": 2, "raw": 2, "tables": 2}
_LIST_RANK = 3
_DOCUMENT_RANK = 4
_STATUS_RANK = 5


def _rank(key: str) -> int:
    """Return the position of a file in the order of sending."""
    if key.startswith(layout.NODES) and key.endswith("/status.json"):
        return _STATUS_RANK
    return _RANKS.get(key.partition("/")[0], _DOCUMENT_RANK)


def _by_rank(files: Iterable[PendingFile]) -> Iterator[list[PendingFile]]:
    groups: dict[int, list[PendingFile]] = defaultdict(list)
    for file in files:
        groups[_rank(file.key)].append(file)
    return chain(groups[rank] for rank in sorted(groups))


def _is_immutable(key: str) -> bool:
    """Return True for a file that is written once."""
    return key.partition("/")[0] in {layout.RUN_KEY, "tensors", "raw", "tables"}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
