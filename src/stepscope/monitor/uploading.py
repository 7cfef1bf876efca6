"""Upload of a staging directory to its object store, beside the recording.

A thread sends what is pending every few seconds, and waits longer and longer while the store is
away. The recording never waits for it: its files stay in the staging directory until they are sent.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope import errors, quantities, schema, store

INTERVAL_S = 5.0
"""Time between two uploads; a heartbeat is written as often."""
MAX_BACKOFF_S = 30.0
MIN_BACKOFF_S = 0.5
LISTING_SHARE = 0.01
"""Share of the time for which the directory may be listed."""
NOTED_AFTER_S = 30.0
"""Time for which the store is behind from which the run says so."""
GIVE_UP_S = 30.0
"""Time without an acknowledged object after which the end of a job does not wait for the store."""
BUSY_TIMEOUT_S = 2.0
"""Time for which the end of a job waits for another process that uploads the same directory."""
_POLL_S = 0.05
BUSY = "another process of this machine is uploading the run"
"""Reason for which this one does not."""


class UploadEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload."""

    url: str
    complete: bool
    """True if the run in the object store has everything."""
    remaining_count: int
    """Files that are not uploaded yet."""
    remaining_bytes: int
    reason: str | None = None
    """Why they are not; null if the upload is complete."""
    is_refused: bool = False
    """True if the URL belongs to another job, so that a second attempt would end like this one."""

    @property
    def is_visible(self) -> bool:
        """True if the run in the object store has the records of this machine, or is about to."""
        return self.complete or self.reason == BUSY

    @property
    def remaining(self) -> str:
        """Files that are left to upload, such as '12 files (3.4 MB)'."""
        return _describe(self.remaining_count, self.remaining_bytes)


class Uploader:
    """Uploads a staging directory in a thread of its own.

    Args:
        directory: the staging directory.
        limit_bytes: size of the files that are not uploaded from which nothing is added to them.
        clock: monotonic time in seconds.

    Raises:
        OSError: the directory is no staging directory, or cannot be read.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limit_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mirror = store.RunMirror(directory)
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._complete_s = clock()
        self._listing_s = 0.0
        self._reason: str | None = None
        self._is_refused = False
        self._was_full = False
        self._is_recording = True
        self._is_finishing = False
        self._busy_until_s = math.inf
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upload", daemon=True)

    def start(self) -> None:
        """Start to upload."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the object that it is sending; an object that is interrupted is
        sent again by the process that continues."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2 * _POLL_S)

    def end_recording(self) -> None:
        """Note that the job has ended: how far behind the store is does not belong into its final
        status, which is uploaded last."""
        self._is_recording = False

    @property
    def is_full(self) -> bool:
        """True if the files that are not uploaded reach the limit."""
        if self._limit_bytes is None or self._is_refused:
            return False
        is_full = self._measure()[1] >= self._limit_bytes
        self._was_full |= is_full
        return is_full

    @property
    def notes(self) -> list[str]:
        """Delay of the store, in sentences; empty while it keeps up."""
        notes = []
        if self._was_full:
            notes.append(
                "the object store was away or slow for so long that the records waiting for it "
                "reached --spool-limit; records since then may have been dropped and counted"
            )
        behind_s = self._clock() - self._complete_s
        if not self._is_recording:
            return notes
        if self._is_refused:
            notes.append(f"the run is not uploaded: {self._reason}")
        elif behind_s >= NOTED_AFTER_S:
            because = f": {self._reason}" if self._reason else ""
            notes.append(
                f"the object store is {quantities.duration(1e9 * behind_s)} behind, with "
                f"{_describe(*self._measure())} to upload{because}"
            )
        return notes

    def finish(
        self,
        *,
        give_up_s: float = GIVE_UP_S,
        should_stop: Callable[[], bool] = lambda: False,
        on_wait: Callable[[str], None] = lambda remaining: None,
    ) -> UploadEnd:
        """Wait until everything is uploaded, or the upload makes no progress.

        The recording must have ended.

        Args:
            give_up_s: time without an acknowledged object after which it ends.
            should_stop: asked several times a second whether to end now.
            on_wait: called once, with what is left, if it takes longer than a moment.
        """
        start_s = progress_s = self._clock()
        sent_count, is_announced = self._mirror.sent_count, False
        self._busy_until_s = start_s + BUSY_TIMEOUT_S
        self._is_finishing = True
        self._wake.set()
        if self._thread.ident is None:
            self.start()
        while self._thread.is_alive() and not should_stop():
            self._thread.join(_POLL_S)
            now_s = self._clock()
            if self._mirror.sent_count != sent_count:
                sent_count, progress_s = self._mirror.sent_count, now_s
            if now_s - progress_s >= give_up_s:
                break
            if now_s - start_s > 3.0 and not is_announced:
                is_announced = True
                on_wait(_describe(*self._measure()))
        self.stop()
        return self._end()

    def _end(self) -> UploadEnd:
        remaining_count, remaining_bytes = self._measure()
        is_complete = not self._is_refused and self._mirror.is_complete()
        reason = self._reason or "the upload was interrupted"
        return UploadEnd(
            url=self._mirror.url,
            complete=is_complete,
            remaining_count=remaining_count,
            remaining_bytes=remaining_bytes,
            reason=None if is_complete else reason,
            is_refused=self._is_refused,
        )

    def _run(self) -> None:
        backoff_s = MIN_BACKOFF_S
        with self._mirror.journal:
            while not self._stop.is_set():
                is_done = self._send()
                if self._is_refused or (is_done and self._is_finishing):
                    return
                if self._reason == BUSY and self._clock() >= self._busy_until_s:
                    return
                wait_s = max(INTERVAL_S, self._listing_s / LISTING_SHARE)
                if self._reason is None:
                    backoff_s = MIN_BACKOFF_S
                else:
                    wait_s = backoff_s
                    backoff_s = min(MAX_BACKOFF_S, 2 * backoff_s)
                if not (self._is_finishing and self._reason is None):
                    self._wake.wait(wait_s)
                if not self._stop.is_set():
                    self._wake.clear()

    def _send(self) -> bool:
        """Send what is pending; True if nothing is left."""
        try:
            if not self._mirror.journal.take():
                self._reason = BUSY
                return self._mirror.is_complete()
            start_s = self._clock()
            self._mirror.send(self._stop.is_set)
            self._complete_s, self._reason = start_s, None
            return self._mirror.is_complete()
        except store.UploadRefusedError as error:
            self._reason, self._is_refused = str(error), True
        except errors.StepscopeError as error:
            self._reason = str(error).rstrip(".")
        except OSError as error:
            self._reason = errors.explain_os_error(error)
        return False

    def _measure(self) -> tuple[int, int]:
        """Return the number of files that are not uploaded, and their size in bytes."""
        start_s = self._clock()
        try:
            pending = self._mirror.list_pending()
        except OSError:  # the directory is gone: the recording says so
            return 0, 0
        self._listing_s = self._clock() - start_s
        return len(pending), sum(file.size_bytes for file in pending)


def discard_staging(directory: Path) -> None:
    """Remove a staging directory that is uploaded completely.

    Of a run of several launchers, the small documents stay, by which the next start of the job on
    this machine gets its names, and nothing is removed while another launcher records here.
    """
    run = store.SharedRun(directory)
    info = run.read_info()
    if info is None or info.job is None:
        shutil.rmtree(directory, ignore_errors=True)
    elif all(_has_ended(run, launcher) for launcher in run.list_launchers()):
        for name in ("tables", "tensors", "raw"):
            shutil.rmtree(directory / name, ignore_errors=True)


def _has_ended(run: store.SharedRun, launcher: schema.LauncherInfo) -> bool:
    status = run.read_status(launcher.node)
    return status is not None and status.state.is_final


def _describe(count: int, size_bytes: int) -> str:
    return f"{quantities.count_of(count, 'file')} ({quantities.file_size(size_bytes)})"
