"""Census of memory: which containers of a process grow, and what holds them.

The monitor requests it, when the growth of a process is certain or a user asks. The process takes
two censuses some steps apart, between two steps, or in a worker of a loader between two batches;
nothing is imported or looked at before. A pause lasts at most half a second (`budget`); its step is
left out of the statistics (mode RECORDING). The result is a fact `memory_census`, which names what
was left out. No code of the job's objects is called; see `objects`.
"""

from __future__ import annotations

import gc
import os
import time

from stepscope.capture import session
from stepscope.capture.guard import Probe
from stepscope.spool import CENSUS_PID_WORDS, CENSUS_WORD, Kind, open_censuses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepscope.capture.census.comparison import Census

MIN_COUNT = 20
"""Steps or batches between the two censuses …"""
MIN_NS = 2_000_000_000
"""… and time; …"""
MAX_NS = 60_000_000_000
"""… after this time fewer, but at least `MIN_SLOW_COUNT`."""
MIN_SLOW_COUNT = 2

_NEVER = (1 << 31) - 1
"""Number of new objects after which the collector would run; the largest."""

_probe = Probe("censuses of memory", coarse=True)
_now = time.monotonic_ns


class _Follower:
    """Follower of the requests for censuses of this process."""

    def __init__(self) -> None:
        self._generation = 0
        self._words: memoryview | None = None
        self._number = 0
        self._count = 0
        self._first: Census | None = None
        self._first_count = 0
        self._first_pause_ns = 0

    def follow(self, dataset: object | None = None) -> None:
        """Take the census that is due at the end of a step.

        Args:
            dataset: data set of a worker that has made a batch.
        """
        if self._generation != session.generation:
            if not session.live:
                return  # a child that was forked meanwhile must not begin to record
            self._start_generation()
        words = self._words
        if words is None:
            return
        self._count += 1
        if words[CENSUS_WORD] != self._number:
            self._number = words[CENSUS_WORD]
            pids = set(words[CENSUS_PID_WORDS])
            if (os.getpid() in pids or pids == {0}) and session.live:
                self._take_first(dataset)
        elif self._first is not None and self._is_due(self._first):
            first, self._first = self._first, None
            self._take_second(first, dataset)

    def is_idle(self) -> bool:
        """Return True while no census is requested or taken."""
        return self._generation == session.generation and self._first is None

    def request_word(self) -> tuple[memoryview, int, int] | None:
        """Return words, index and value there until a census is requested; None without a page."""
        return None if self._words is None else (self._words, CENSUS_WORD, self._number)

    def _start_generation(self) -> None:
        """Open the page of the spool. Requests that are made later are answered."""
        self._generation = session.generation
        self._first = None
        current = session.current()
        self._words = None if current is None else open_censuses(current.tree.root)
        if self._words is not None:
            self._number = self._words[CENSUS_WORD]

    def _is_due(self, first: Census) -> bool:
        count, elapsed_ns = self._count - self._first_count, _now() - first.t_ns
        return (count >= MIN_COUNT and elapsed_ns >= MIN_NS) or (
            count >= MIN_SLOW_COUNT and elapsed_ns >= MAX_NS
        )

    def _take_first(self, dataset: object | None) -> None:
        with _Pause() as pause:
            from stepscope.capture.census.budget import Budget
            from stepscope.capture.census.comparison import Census

            self._first = Census(dataset, Budget(), is_worker=dataset is not None)
            self._first.forget_objects()
        self._first_count = self._count
        self._first_pause_ns = pause.ns

    def _take_second(self, first: Census, dataset: object | None) -> None:
        count = self._count - self._first_count
        with _Pause() as pause:
            from stepscope.capture.census.budget import Budget
            from stepscope.capture.census.comparison import Census

            second = Census(dataset, Budget(), is_worker=dataset is not None)
            growth = second.compare(first, count)
            second.forget_objects()
        left_out = dict.fromkeys([*first.left_out, *second.left_out])
        _probe.fact(
            "memory_census",
            request=self._number,
            unit="step" if dataset is None else "batch",
            count=count,
            duration_ns=second.t_ns - first.t_ns,
            pauses_ns=[self._first_pause_ns, pause.ns],
            object_count=second.object_count,
            scanned_count=min(first.scanned_count, second.scanned_count),
            is_sampled=bool(left_out),
            left_out=list(left_out),
            shared_bytes=max(first.memory.shared, second.memory.shared),
            resident_bytes=second.memory.resident,
            anonymous_growth_bytes=second.memory.anonymous - first.memory.anonymous,
            private_growth_bytes=second.memory.private - first.memory.private,
            **growth,
        )


class _Pause:
    """Pause of the job: a time of the recording, without automatic garbage collections.

    A collection would run finalizers of the job in the middle of a census. The threshold prevents
    them, not `gc.disable`: another thread of the job that disables or enables the collector, or
    changes its threshold, is left with what it has set.
    """

    ns = 0

    def __enter__(self) -> _Pause:
        self._start_ns = _now()
        self._span = _probe.start(Kind.MODE, "RECORDING")
        self._thresholds = gc.get_threshold()
        gc.set_threshold(_NEVER, *self._thresholds[1:])
        return self

    def __exit__(self, *_: object) -> None:
        if gc.get_threshold()[0] == _NEVER:
            gc.set_threshold(*self._thresholds)
        _probe.end(self._span)
        self.ns = _now() - self._start_ns


_follower = _Follower()
is_idle, request_word = _follower.is_idle, _follower.request_word
follow = _probe.protect(_follower.follow)
"""Take the census that is due, at the end of a step or a batch. Never raises."""
