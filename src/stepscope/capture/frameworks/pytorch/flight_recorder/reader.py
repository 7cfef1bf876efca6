"""Thread that reads the recorders of collectives, as often as their rings need.

It asks a recorder a few times per second how many collectives there are, which takes 0.05 ms, and
dumps it when the ring would soon overwrite some that were not read, or when new ones have waited
for some seconds. It also answers the monitor when the job is stuck: a thread can run while the
training thread waits in C++ for other ranks.

The thread stops around a fork, so that no child inherits a recorder whose lock it holds, and starts
again at the job's next step or collective. At the end of the interpreter a last dump is written.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import Any

from stepscope.capture import session
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.flight_recorder.recorders import (
    Recorder,
    count_transfers,
    describe_transfers,
    find_recorders,
    ring_size,
)
from stepscope.capture.guard import Probe
from stepscope.capture.thread_stacks import OWN_THREADS, read_stacks
from stepscope.spool import ANSWER_WORD, QUESTION_WORD, CollectivePage, DumpReason, write_dump

MAX_WAIT_S = 0.5
MIN_WAIT_S = 0.01
FULL_RATIO = 0.6
"""Share of the ring that may be new before it is dumped: the rest is for those of the next wait."""
MAX_AGE_S = 5.0
"""Time after which new collectives are dumped."""
LOCK_RATIO = 0.003
"""Share of the time for which dumps may hold the interpreter lock."""
STOP_TIMEOUT_S = 0.5
EXIT_TIMEOUT_S = 0.1

_probe = Probe("collectives of the flight recorder")
_reader: _Reader | None = None
_is_over = False


class _Ring:
    """One recorder, and what was read of it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.progress = (0, 0)
        self.dumped = (0, 0)
        self.dumped_s = time.monotonic()
        self.next_s = 0.0

    @property
    def new_count(self) -> int:
        return max(0, self.progress[0] - self.dumped[0])

    def find_reason(self, size: int, now_s: float) -> str | None:
        """Return the reason for a dump now; None without."""
        if self.progress == self.dumped or now_s < self.next_s:
            return None
        if self.new_count >= FULL_RATIO * size:
            return DumpReason.FULL
        return DumpReason.TIME if now_s - self.dumped_s >= MAX_AGE_S else None


class _Reader:
    def __init__(self, current: session.Session, rings: list[_Ring], size: int) -> None:
        self._session = current
        self._size = size
        self._rings = rings
        self._page = CollectivePage.create(current.directory)
        self._stop = threading.Event()
        self._wait_s = MIN_WAIT_S
        self._last_s = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, name=f"{OWN_THREADS}collectives", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(STOP_TIMEOUT_S)
        # The kernel removes a thread slightly later than the interpreter does, and Python reads the
        # kernel's thread count when it forks.
        task = f"/proc/self/task/{self._thread.native_id}"
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while os.path.exists(task) and time.monotonic() < deadline:
            time.sleep(0.0001)

    def finish(self) -> None:
        """Write a last dump of what is new."""
        self._read_progress()
        for ring in self._rings:
            if ring.progress[0] or (ring is self._rings[0] and count_transfers()):
                self._dump(ring, DumpReason.END, transfers=describe_transfers())

    def _run(self) -> None:
        poll = _probe.protect(self._poll)
        while not self._stop.wait(self._wait_s) and _probe.alive and self._is_recording():
            poll()

    def _is_recording(self) -> bool:
        return not session.pause_at_end() and session.current() is self._session

    def _poll(self) -> None:
        before, now_s = [ring.progress[0] for ring in self._rings], time.monotonic()
        self._read_progress()
        _describe_groups()
        words = self._page.words
        question = words[QUESTION_WORD]
        if question != words[ANSWER_WORD]:
            self._answer(question)
        for ring in self._rings:
            reason = ring.find_reason(self._size, time.monotonic())
            if reason is not None:
                self._dump(ring, reason)
        rings = zip(self._rings, before)
        self._set_wait([ring.progress[0] - count for ring, count in rings], now_s)

    def _set_wait(self, counts: list[int], now_s: float) -> None:
        """Wait for so long that the rest of the ring, after `FULL_RATIO`, is half used at most."""
        passed_s, self._last_s = now_s - self._last_s, now_s
        rate = max(counts, default=0) / passed_s if passed_s > 0 else 0.0
        rest = (1 - FULL_RATIO) / 2 * self._size
        self._wait_s = min(MAX_WAIT_S, max(MIN_WAIT_S, rest / rate)) if rate > 0 else MAX_WAIT_S

    def _read_progress(self) -> None:
        for ring in self._rings:
            ring.progress = ring.recorder.read_progress()
        started = sum(ring.progress[0] for ring in self._rings)
        # The watchdog of NCCL ends with the groups, and may leave their last collectives open.
        has_left = _has_left_groups()
        ended = started if has_left else sum(ring.progress[1] for ring in self._rings)
        now_ns, transfers = time.monotonic_ns(), count_transfers()
        steps = progress.finished_step_count
        self._page.put_progress(started, ended, now_ns, transfers=transfers, steps=steps)

    def _answer(self, question: int) -> None:
        """Dump the recorders and all stacks."""
        stacks, transfers = read_stacks(), describe_transfers()
        for ring in self._rings:
            if ring.progress[0] or ring is self._rings[0]:
                self._dump(
                    ring, DumpReason.QUESTION, question=question, stacks=stacks, transfers=transfers
                )
        self._page.words[ANSWER_WORD] = question

    def _dump(self, ring: _Ring, reason: str, **fields: Any) -> None:
        start_s, progress = time.monotonic(), ring.progress
        content = ring.recorder.dump()
        end_s = time.monotonic()
        if ring.recorder.holds_lock:
            ring.next_s = end_s + (end_s - start_s) / LOCK_RATIO
        try:
            write_dump(
                self._session.tree,
                self._session.directory,
                _next_number(self._session),
                content,
                recorder=ring.recorder.name,
                reason=reason,
                t_ns=time.monotonic_ns(),
                clock_ns=time.monotonic_ns() - time.time_ns(),
                **_description,
                **fields,
            )
        except OSError:  # the spool is full: the numbers tell what is missing
            pass
        ring.dumped, ring.dumped_s = progress, end_s


_rings: list[_Ring] = []
"""The recorders, for readers that start again in this process."""
_numbers: dict[str, int] = {}
"""Number of the next dump by directory."""


def _next_number(current: session.Session) -> int:
    number = _numbers.get(current.directory, 0)
    _numbers[current.directory] = number + 1
    return number


_description: dict[str, Any] = {"rank": None, "groups": {}}
"""Rank and groups as they were last: the job may destroy its groups before the last dump."""


def _has_left_groups() -> bool:
    """Return True once the process has destroyed its groups: it waits for no other rank."""
    distributed: Any = sys.modules["torch.distributed"]
    return _description["rank"] is not None and not distributed.is_initialized()


def _describe_groups() -> None:
    """Note the rank of the process, and the ranks of its process groups by name."""
    from torch.distributed import distributed_c10d

    world: Any = distributed_c10d._world
    try:
        if distributed_c10d.is_initialized():
            _description["rank"] = distributed_c10d.get_rank()
        names = dict(world.pg_names)
        for group, ranks in list(world.pg_group_ranks.items()):
            if group in names:
                _description["groups"][names[group]] = list(ranks)
    except (AttributeError, RuntimeError, ValueError):  # it is being destroyed, or another version
        pass


_start_lock = threading.Lock()
"""Held by the thread that starts the reader: hooks of DistributedDataParallel call collectives on
other threads than the script."""


def _keep_reading() -> None:
    if _start_lock.acquire(blocking=False):
        try:
            _start()
        finally:
            _start_lock.release()


def _start() -> None:
    global _reader
    if _reader is not None or _is_over or not session.live:
        return
    current = session.current()
    if current is None:
        return
    size = ring_size()
    if size and not _rings:
        _rings.extend(_Ring(recorder) for recorder in find_recorders())
    _probe.fact("flight_recorder", is_available=bool(_rings), ring_size=size)
    if not _rings:
        _stop_for_good()
        return
    _describe_groups()
    reader = _Reader(current, _rings, size)
    reader.start()
    _reader = reader


_start_protected = _probe.protect(_keep_reading)


def keep_reading() -> None:
    """Read the recorders of this process from now on, unless that is done already. Never raises."""
    if _reader is None and not _is_over:
        _start_protected()


def _stop() -> None:
    global _reader
    reader, _reader = _reader, None
    if reader is not None:
        reader.stop()


def _stop_for_good() -> None:
    global _is_over
    _is_over = True


def _finish() -> None:
    """Stop, and write what is new: the interpreter ends."""
    reader = _reader
    _stop_for_good()
    _stop()
    if reader is not None and session.current() is not None:
        reader.finish()


def _forget() -> None:
    """In the child of a fork, which has no thread and no recorded collective of its own."""
    global _reader, _start_lock
    _reader = None
    _start_lock = threading.Lock()  # another thread may have held it
    _rings.clear()
    _numbers.clear()


# The thread must not run during interpreter shutdown, as that of `stacks`.
atexit.register(_probe.protect(_finish))
os.register_at_fork(before=_probe.protect(_stop), after_in_child=_forget)
