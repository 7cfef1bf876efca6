"""Detailed windows of one node: a thread that plans, follows and stores them.

Online detector of a lasting slowdown, from step times. It compares two robust statistics of the
step time: the median of the latest observations, and the median and median absolute deviation (MAD)
of those before, the baseline. It reports a change when nearly all of the latest observations exceed

    median + max(0.3 · median, 6 · 1.4826 · MAD)

1.4826 · MAD estimates the standard deviation of a normal distribution. A single slow interval
(validation, a checkpoint, new workers) is one observation, and is not reported.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

import _duckdb as duckdb

from stepscope import errors, schema, spool, store
from stepscope.monitor.config import WindowSettings
from stepscope.monitor.windows import planner
from stepscope.monitor.windows.censuses import CensusRequests
from stepscope.monitor.windows.imports import (
    IMPORT_SNAPSHOT,
    WindowFile,
    WindowImports,
    has_raw_file,
)
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.requests import SLOWER, RequestHandler
from stepscope.monitor.windows.schedules import Schedules, describe_scheduled

TICK_S = 0.25
REQUEST_POLL_S = 1.0
"""Interval at which the run is read for new requests."""
AUTOMATIC_FIRST_STEP = 12
AUTOMATIC_STEPS = 3
AUTOMATIC_MAX_NS = 2_000_000_000
MIN_TRAINING_NS = 1_000_000_000
MAX_WAIT_SHARE = 0.5
"""Share of time spent waiting for data above which no automatic window is recorded."""
AUTOMATIC_GAP_NS = 6_000_000_000
"""Minimum time between an automatic window and a later scheduled one."""
SLOWER_STEPS = 5
SLOWER_NS = 5_000_000_000
MAX_SLOWER_WINDOWS = 3
MIN_SLOWER_INTERVAL_NS = 60_000_000_000


class WindowService:
    """Service for the detailed windows of one node.

    Args:
        settings: settings for windows.
        tree: the spool.
        run: local directory of the run.
        node: this node.
        peer: daemon for libkineto; None if unavailable.
        job_pid: PID of the command.
        started_ns: start of the job on the monotonic clock.
    """

    def __init__(
        self,
        settings: WindowSettings,
        tree: spool.SpoolTree,
        *,
        run: str,
        node: str,
        peer: KinetoPeer | None,
        job_pid: int,
        started_ns: int,
    ) -> None:
        self._settings = settings
        self._tree = tree
        self._node = node
        self._run_directory = run
        self._job_pid = job_pid
        self._started_ns = started_ns
        self._peer = peer
        self._processes: dict[str, planner.TrainingProcess] = {}
        self._detectors: dict[str, SlowdownDetector] = {}
        self._automatic_done: set[str] = set()
        self._window_requests = store.WindowRequests(run)
        self._imports = WindowImports(
            run, node, job_cores=self._job_cores, keep_raw=settings.keep_raw
        )
        self._snapshots = WindowImports(
            run,
            node,
            job_cores=self._job_cores,
            keep_raw=settings.keep_raw,
            command=IMPORT_SNAPSHOT,
        )
        self._planner = planner.Planner(peer, by_duration=settings.by_duration)
        self._requests = RequestHandler(
            self._window_requests, node, self._planner, self._imports, CensusRequests(tree, node)
        )
        self._schedules = Schedules(
            settings.schedules,
            spool=tree.root,
            planner=self._planner,
            requests=self._requests,
            started_ns=self._started_ns,
        )
        self._is_automatic = settings.automatic
        self._next_poll_s = 0.0
        self._notes: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="windows", daemon=True)
        if settings.enabled:
            self._thread.start()

    @property
    def notes(self) -> list[str]:
        """Missing windows with the reasons, one sentence each."""
        return [*self._notes.values(), *self._schedules.notes.values()]

    @property
    def child_pids(self) -> set[int]:
        """Child processes of the service."""
        children = (self._imports.child_pid, self._snapshots.child_pid)
        return {child for child in children if child is not None}

    def admit(self, schedules: Sequence[schema.WindowSchedule]) -> list[schema.WindowSchedule]:
        """Return new schedules with the earliest start of their windows.

        Raises:
            UsageError: all windows of a schedule are in the past, or no window can be recorded.
        """
        if not self._settings.enabled and schedules:
            raise errors.UsageError("the job was started with --window off")
        alive = [process for process in list(self._processes.values()) if process.is_alive()]
        return self._schedules.admit(schedules, alive)

    def configure(self, configuration: schema.JobConfiguration, number: int) -> None:
        """Take over the windows of a change of the configuration.

        Args:
            configuration: the new configuration, with schedules as returned by `admit`.
            number: number of the change.

        Raises:
            OSError: the spool cannot be written.
        """
        self._schedules.replace(configuration.schedules, number)
        self._is_automatic = configuration.window == "auto"

    def restore(self) -> None:
        """Write the schedules into a spool that was deleted and created again.

        Raises:
            OSError: the spool cannot be written.
        """
        self._schedules.restore()

    def finish(self) -> int:
        """Stop planning, store all finished windows of the spool, and note the missing ones.

        The run must have the records of the spool.

        Returns:
            Number of windows and memory snapshots that could not be stored, and stay in the spool.

        Raises:
            OSError: the run cannot be written.
        """
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()
        if self._peer is not None:
            self._peer.close()
        for name, path in self._tree.process_directories().items():
            directory = Path(path)
            if not spool.process_is_alive(path):
                self._note_lost(name, planner.close_unfinished_windows(directory))
            self._collect(name, directory, planner.read_rank(directory))
        self._note_scheduled()
        failed = self._imports.close()
        failed_snapshots = self._snapshots.close()
        self._note_imports()
        try:
            self._note_missing({file.key for file in failed})
        except (OSError, errors.StepscopeError, duckdb.Error) as error:
            self._notes["missing"] = f"missing detailed windows were not looked for: {error}"
        if self._settings.enabled:
            self._requests.tick(list(self._processes.values()), time.monotonic_ns())
        return len(failed) + len(failed_snapshots)

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self._tick(time.monotonic_ns())
                self._notes.pop("error", None)
            except Exception as error:  # noqa: BLE001 - the next tick tries again
                self._notes["error"] = f"detailed windows failed: {error}"

    def _tick(self, now_ns: int) -> None:
        self._find_processes(now_ns)
        alive = [process for process in self._processes.values() if self._follow(process)]
        self._imports.poll()
        self._snapshots.poll()
        self._note_imports()
        self._planner.withdraw_unused()
        observed = [process for process in alive if process.observe()]
        self._schedules.announce(alive)
        if planner.are_complete(alive, now_ns):
            self._schedules.open(planner.select_stepping(alive), now_ns)
        if self._is_automatic and self._schedules.until_ns > AUTOMATIC_GAP_NS:
            for process in alive:
                self._open_automatic(process)
        if self._is_automatic and self._settings.on_change:
            self._detect_slowdown(alive, observed)
        if time.monotonic() >= self._next_poll_s:
            self._next_poll_s = time.monotonic() + REQUEST_POLL_S
            self._requests.tick(list(self._processes.values()), now_ns)

    def _find_processes(self, now_ns: int) -> None:
        previous = set(self._processes)
        planner.find_training_processes(self._tree, self._processes, now_ns)
        for name in self._processes.keys() - previous:
            self._planner.resume(self._processes[name])

    def _follow(self, process: planner.TrainingProcess) -> bool:
        """Collect the finished windows of a process; False if it has ended."""
        is_alive = process.is_alive()
        if not is_alive:
            self._note_lost(process.name, planner.close_unfinished_windows(process.directory))
        self._collect(process.name, process.directory, process.rank)
        return is_alive

    def _collect(self, name: str, directory: Path, rank: int | None) -> None:
        for number, path in planner.find_finished_windows(directory):
            self._imports.add(WindowFile(path, name, number, rank))
        for number, path in planner.find_memory_snapshots(directory):
            self._snapshots.add(WindowFile(path, name, number, rank))

    def _open_automatic(self, process: planner.TrainingProcess) -> None:
        if process.name in self._automatic_done or process.rank not in {None, 0}:
            return
        if (
            process.steps < max(AUTOMATIC_FIRST_STEP, planner.WARMUP_STEPS)
            or process.warmup_end is None
        ):
            return
        elapsed = process.boundary_ns - process.warmup_end[0]
        waited = process.data_wait_ns - process.warmup_end[1]
        if elapsed < MIN_TRAINING_NS or waited > MAX_WAIT_SHARE * elapsed or process.is_busy:
            return
        self._automatic_done.add(process.name)
        if any(plan.reason == "automatic" for plan in process.plans()):
            return  # an earlier monitor has assigned it
        spec = planner.WindowSpec(
            reason="automatic", step_count=AUTOMATIC_STEPS, duration_ns=AUTOMATIC_MAX_NS
        )
        self._planner.assign(spec, [process], planner.WindowStart(first_step=process.steps + 1))

    def _detect_slowdown(
        self, alive: list[planner.TrainingProcess], observed: list[planner.TrainingProcess]
    ) -> None:
        """Request a window on all ranks if the first rank has become slower."""
        first = min(alive, key=lambda process: (process.rank or 0, process.pid), default=None)
        if first is None or first not in observed or first.is_busy or not self._imports.is_idle:
            return
        detector = self._detectors.setdefault(first.name, SlowdownDetector())
        if not detector.observe(first.step_ns or 0.0) or first.wait_share > MAX_WAIT_SHARE:
            return
        times_ns, now_ns = self._requests.slower_request_times_ns, time.time_ns()
        if len(times_ns) >= MAX_SLOWER_WINDOWS:
            return
        if times_ns and now_ns - times_ns[-1] < MIN_SLOWER_INTERVAL_NS:
            return
        steps = math.ceil(SLOWER_NS / (first.step_ns or SLOWER_NS))
        self._window_requests.send(
            store.WindowRequest(
                name=f"{SLOWER}-{len(times_ns) + 1}",
                asked_ns=now_ns,
                reason=SLOWER,
                step_count=max(1, min(SLOWER_STEPS, steps)),
            )
        )

    def _job_cores(self) -> Iterable[int]:
        cores: set[int] = set()
        for pid in (self._job_pid, *(process.pid for process in self._processes.values())):
            try:
                cores |= os.sched_getaffinity(pid)
            except OSError:  # it has ended
                continue
        return cores

    def _note_lost(self, name: str, numbers: list[int]) -> None:
        for number in numbers:
            self._notes[f"lost {name} {number}"] = (
                f"detailed window {number} of process {name.partition('-')[0]} was not finished "
                "when the process ended"
            )

    def _note_unreadable(self, name: str, number: int, reason: str = "") -> None:
        self._notes[f"unreadable {name} {number}"] = (
            f"the file of detailed window {number} of process {name.partition('-')[0]} cannot "
            f"be read and is kept in raw/{reason}"
        )

    def _note_missing(self, queued: set[tuple[str, int]]) -> None:
        """Note the windows of ended processes that are not in the run, by its own records: of those
        that an earlier monitor has met, this one knows nothing.

        Args:
            queued: windows that the next recovery stores.
        """
        reader = store.open_run(self._run_directory)
        if not reader.has("spans"):
            return
        spans = reader.table(
            "spans",
            ["process", "value"],
            condition="kind = 'window' AND node = ?",
            parameters=[self._node],
        )
        traces = reader.table("traces", ["process", "window"])
        opened = set(zip(spans["process"].tolist(), spans["value"].tolist(), strict=True))
        stored = set(zip(traces["process"].tolist(), traces["window"].tolist(), strict=True))
        paths = self._tree.process_directories()
        for name, number in sorted(opened - stored - queued - self._imports.unreadable.keys()):
            if name in paths and spool.process_is_alive(paths[name]):
                continue
            if has_raw_file(Path(self._run_directory), name, number):
                self._note_unreadable(name, number)
            else:
                self._note_lost(name, [number])

    def _note_scheduled(self) -> None:
        """Note scheduled windows that are missing, or have other steps than planned."""
        if not self._settings.enabled:
            return
        processes = [
            p for p in store.open_run(self._run_directory).processes() if p.node == self._node
        ]
        last_step = max((process.steps for process in self._processes.values()), default=0)
        notes = describe_scheduled(self._schedules.current, processes, last_step)
        self._notes |= {f"scheduled {number}": note for number, note in enumerate(notes)}

    def _note_imports(self) -> None:
        for (name, number), error in self._imports.unreadable.items():
            self._note_unreadable(name, number, f": {error}")
        for (name, number), error in self._snapshots.unreadable.items():
            self._notes[f"snapshot {name} {number}"] = (
                f"memory snapshot {number} of process {name.partition('-')[0]} cannot be read and "
                f"is kept in raw/: {error}"
            )
        if self._imports.last_error is None:
            self._notes.pop("imports", None)
        else:
            self._notes["imports"] = (
                f"detailed windows cannot be stored at the moment: {self._imports.last_error}"
            )


RECENT_COUNT = 6
MAX_BELOW = 1
"""Maximum number of the latest observations below the threshold."""
MIN_BASELINE = 20
MAX_BASELINE = 240
MIN_GROWTH = 0.3
DEVIATIONS = 6 * 1.4826


class SlowdownDetector:
    """Detector for one process."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT_COUNT)
        self._baseline: deque[float] = deque(maxlen=MAX_BASELINE)

    def observe(self, step_ns: float) -> bool:
        """Add a mean step time of at least half a second or one step.

        Returns:
            True if the process has become slower; a new baseline starts then.
        """
        if len(self._recent) == RECENT_COUNT:
            self._baseline.append(self._recent[0])
        self._recent.append(step_ns)
        if len(self._baseline) < MIN_BASELINE:
            return False
        median = statistics.median(self._baseline)
        deviation = statistics.median(abs(value - median) for value in self._baseline)
        threshold = median + max(MIN_GROWTH * median, DEVIATIONS * deviation)
        if sum(value > threshold for value in self._recent) < RECENT_COUNT - MAX_BELOW:
            return False
        self._baseline.clear()
        return True
