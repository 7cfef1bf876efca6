"""Detailed windows of one node: a thread that plans them, follows them and has them stored.

kineto_peer       answers libkineto, in a thread of its own
trainees          the training processes, as their pulses show them
window_planner    where a window begins, and the plans
change_point      when the job has become slower
window_requests   the documents through which nodes and `stepscope capture` agree
window_answers    requests under way
window_imports    finished files become tables
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from stepscope.monitor.config import WindowSchedule, WindowSettings
from stepscope.monitor.windows.answers import SLOWER, Requests
from stepscope.monitor.windows.change_point import SlowDown
from stepscope.monitor.windows.imports import WindowFile, WindowImports
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.planner import Beginning, Planner, Wish, settled
from stepscope.monitor.windows.training_processes import (
    WARM_STEPS,
    Trainee,
    find_trainees,
    finished_windows,
    in_training,
    rank_of,
    settle_unfinished,
)
from stepscope.spool import SpoolTree, process_is_alive
from stepscope.store import RequestBoard, WindowRequest

TICK_S = 0.25
BOARD_S = 1.0
"""How often the run is asked for new requests."""
AUTOMATIC_FIRST_STEP = 12
AUTOMATIC_STEPS = 3
AUTOMATIC_LONGEST_NS = 2_000_000_000
LEAST_TRAINING_NS = 1_000_000_000
MOST_WAIT_SHARE = 0.5
"""A job that waits longer for data is not asked what it computes."""
SCHEDULE_HORIZON_NS = 1_000_000_000
"""Processes are told of a scheduled window about this long before they have to know."""
AUTOMATIC_TAKES_NS = 6_000_000_000
"""No automatic window is opened when a scheduled one begins within this time."""
SLOWER_STEPS = 5
SLOWER_NS = 5_000_000_000
MOST_SLOWER = 3
SLOWER_GAP_NS = 60_000_000_000


class WindowService:
    """All about windows on one node.

    Args:
        settings: what is wanted.
        tree: the spool.
        run: the run, a local directory.
        node: this node.
        peer: answers libkineto; None where no socket can be had.
        job_pid: the command's own process.
        started_ns: when the job was started, epoch nanoseconds.
    """

    def __init__(
        self,
        settings: WindowSettings,
        tree: SpoolTree,
        *,
        run: str,
        node: str,
        peer: KinetoPeer | None,
        job_pid: int,
        started_ns: int,
    ) -> None:
        self._settings = settings
        self._tree = tree
        self._job_pid = job_pid
        self._started_ns = started_ns - time.time_ns() + time.monotonic_ns()
        self._peer = peer
        self._trainees: dict[str, Trainee] = {}
        self._slow_downs: dict[str, SlowDown] = {}
        self._automatic_done: set[str] = set()
        self._board = RequestBoard(run)
        self._imports = WindowImports(
            run, node, job_cores=self._job_cores, keep_raw=settings.keep_raw
        )
        self._planner = Planner(peer)
        self._requests = Requests(self._board, node, self._planner, self._imports)
        self._left_out = 0
        self._until_scheduled_ns = math.inf
        self._next_board = 0.0
        self._notes: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="windows", daemon=True)
        if settings.enabled:
            self._thread.start()

    @property
    def notes(self) -> list[str]:
        """What is missing and why, one sentence each."""
        return list(self._notes.values())

    @property
    def processes(self) -> set[int]:
        """Processes of ours beside the monitor."""
        child = self._imports.child_pid
        return set() if child is None else {child}

    def finish(self) -> int:
        """Plan no more, and store every finished window of the spool.

        Returns:
            How many windows could not be stored, and stay in the spool.

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
            if not process_is_alive(path):
                self._note_lost(name, settle_unfinished(directory))
            self._collect(name, directory, rank_of(directory))
        self._note_not_begun()
        left = self._imports.close()
        self._note_imports()
        if self._settings.enabled:
            self._requests.tick(list(self._trainees.values()), time.monotonic_ns())
        return len(left)

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self._tick(time.monotonic_ns())
                self._notes.pop("trouble", None)
            except Exception as error:  # noqa: BLE001 - the next tick tries again
                self._notes["trouble"] = f"detailed windows met trouble: {error}"

    def _tick(self, now_ns: int) -> None:
        self._find(now_ns)
        alive = [t for t in self._trainees.values() if self._follow(t)]
        self._imports.poll()
        self._note_imports()
        self._planner.withdraw_unused()
        observed = [trainee for trainee in alive if trainee.observe()]
        if self._settings.schedule is not None and settled(alive, now_ns):
            self._open_scheduled(self._settings.schedule, in_training(alive), now_ns)
        if self._settings.automatic and self._until_scheduled_ns > AUTOMATIC_TAKES_NS:
            for trainee in alive:
                self._open_automatic(trainee)
        if self._settings.on_change:
            self._watch_pace(alive, observed)
        if time.monotonic() >= self._next_board:
            self._next_board = time.monotonic() + BOARD_S
            self._requests.tick(list(self._trainees.values()), now_ns)

    def _find(self, now_ns: int) -> None:
        known = set(self._trainees)
        find_trainees(self._tree, self._trainees, now_ns)
        for name in self._trainees.keys() - known:
            self._planner.resume(self._trainees[name])

    def _follow(self, trainee: Trainee) -> bool:
        """Collect its finished windows; False when it has ended."""
        alive = trainee.alive()
        if not alive:
            self._note_lost(trainee.name, settle_unfinished(trainee.directory))
        self._collect(trainee.name, trainee.directory, trainee.rank)
        return alive

    def _collect(self, name: str, directory: Path, rank: int | None) -> None:
        for number, path in finished_windows(directory):
            self._imports.add(WindowFile(path, name, number, rank))

    def _open_automatic(self, trainee: Trainee) -> None:
        if trainee.name in self._automatic_done or trainee.rank not in {None, 0}:
            return
        if trainee.steps < max(AUTOMATIC_FIRST_STEP, WARM_STEPS) or trainee.warm is None:
            return
        elapsed = trainee.boundary_ns - trainee.warm[0]
        waited = trainee.data_wait_ns - trainee.warm[1]
        if elapsed < LEAST_TRAINING_NS or waited > MOST_WAIT_SHARE * elapsed or trainee.busy:
            return
        self._automatic_done.add(trainee.name)
        if any(plan.reason == "automatic" for plan in trainee.plans()):
            return  # a monitor before this one has seen to it
        wish = Wish(
            reason="automatic", step_count=AUTOMATIC_STEPS, duration_ns=AUTOMATIC_LONGEST_NS
        )
        self._planner.give(wish, [trainee], Beginning(first_step=trainee.steps + 1))

    def _open_scheduled(self, schedule: WindowSchedule, alive: list[Trainee], now_ns: int) -> None:
        done = sum(plan.reason == "scheduled" for plan in alive[0].plans()) + self._left_out
        if done and schedule.every is None:
            self._until_scheduled_ns = math.inf
            return
        offset = done * (schedule.every or 0)
        lead_ns = self._planner.lead_ns(alive)
        waited_ns = now_ns - max(t.found_ns for t in alive)
        known = all(t.step_ns for t in alive) or waited_ns > lead_ns
        if schedule.first_step is None:
            first = 0
            at_ns = self._started_ns + round(1e9 * ((schedule.start_s or 0) + offset))
            until_ns: float = at_ns - now_ns
            due, late = known and until_ns < lead_ns, until_ns <= 0
        else:
            first = schedule.first_step + round(offset)
            most = max(trainee.steps for trainee in alive)
            until_ns = (first - most) * min((t.step_ns or 0.0) for t in alive)
            due, late = known and until_ns < lead_ns + SCHEDULE_HORIZON_NS, most >= first
        self._until_scheduled_ns = until_ns
        if not due:
            return
        if any(trainee.busy for trainee in alive):
            if late:
                self._left_out += 1
                self._notes[f"left out {done}"] = (
                    f"scheduled window {done + 1} was left out: another one was still open"
                )
            return
        beginning = self._planner.beginning(alive, at_least=first)
        if beginning.first_step is None and schedule.first_step is not None:
            beginning = Beginning(first_step=first)
        beginning = self._requests.agreed(f"scheduled-{done + 1}", beginning)
        self._planner.give(_scheduled_wish(schedule), alive, beginning)

    def _watch_pace(self, alive: list[Trainee], observed: list[Trainee]) -> None:
        leader = min(alive, key=lambda t: (t.rank or 0, t.pid), default=None)
        if leader is None or leader not in observed or leader.busy or not self._imports.idle:
            return
        slower = self._slow_downs.setdefault(leader.name, SlowDown())
        if not slower.observe(leader.step_ns or 0.0) or leader.wait_share > MOST_WAIT_SHARE:
            return
        asked, now = self._requests.slower_asked_ns, time.time_ns()
        if len(asked) >= MOST_SLOWER or (asked and now - asked[-1] < SLOWER_GAP_NS):
            return
        steps = math.ceil(SLOWER_NS / (leader.step_ns or SLOWER_NS))
        self._board.ask(
            WindowRequest(
                name=f"{SLOWER}-{len(asked) + 1}",
                asked_ns=now,
                reason=SLOWER,
                step_count=max(1, min(SLOWER_STEPS, steps)),
            )
        )

    def _job_cores(self) -> Iterable[int]:
        cores: set[int] = set()
        for pid in (self._job_pid, *(trainee.pid for trainee in self._trainees.values())):
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

    def _note_not_begun(self) -> None:
        """Say so where the job ended before its first scheduled window."""
        schedule, trained = self._settings.schedule, in_training(self._trainees.values())
        if schedule is None:
            return
        planned = [
            (trainee, plan)
            for trainee in trained
            for plan in trainee.plans()
            if plan.reason == "scheduled"
        ]
        if any(not trainee.waits_for(plan) for trainee, plan in planned):
            return
        asked = schedule.first_step
        when = f"{schedule.start_s:g} s after the start" if asked is None else f"step {asked}"
        soonest = {plan.first_step for _, plan in planned} - {None, asked}
        late = f", which it could at step {soonest.pop()} at the soonest" if soonest else ""
        self._notes["not begun"] = (
            f"the window scheduled for {when} was not recorded: the job ended before it could "
            f"begin{late}"
        )

    def _note_imports(self) -> None:
        for (name, number), why in self._imports.unreadable.items():
            self._notes[f"unreadable {name} {number}"] = (
                f"the file of detailed window {number} of process {name.partition('-')[0]} cannot "
                f"be read and is kept in raw/: {why}"
            )
        if self._imports.trouble is None:
            self._notes.pop("imports", None)
        else:
            self._notes["imports"] = (
                f"detailed windows could not be stored for a while: {self._imports.trouble}"
            )


def _scheduled_wish(schedule: WindowSchedule) -> Wish:
    seconds = schedule.duration_s
    return Wish(
        reason="scheduled",
        depth=schedule.depth,
        options=tuple(schedule.options),
        step_count=schedule.step_count,
        duration_ns=None if seconds is None else round(1e9 * seconds),
    )
