"""The job's training processes, as their pulses show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepscope.schema import WindowMissedFact, decode_facts
from stepscope.spool import (
    BOUNDARY_WORD,
    DATA_WAIT_WORD,
    PLANS_WORD,
    STEPS_WORD,
    Heartbeat,
    SpoolTree,
    WindowPlan,
    WindowState,
    process_is_alive,
    read_journal,
)

OBSERVATION_NS = 500_000_000
"""Step times are observed over at least this long, or one step."""
UNOBSERVED_NS = 2_000_000_000
"""A process without an observation after this long takes long steps."""
WARM_STEPS = 5

_FINISHED = re.compile(r"window-(\d+)_\d+\.json")
_UNFINISHED = re.compile(r"window-(\d+)_\d+\.json\.tmp")


class Trainee:
    """One process that trains."""

    def __init__(self, name: str, directory: Path, pulse: Heartbeat, now_ns: int) -> None:
        self.name = name
        self.directory = directory
        self.pid = int(name.partition("-")[0])
        self.rank = rank_of(directory)
        self.world_size = _said_of(directory, "world_size") or 1
        self.found_ns = now_ns
        self.plan_count = pulse.words[PLANS_WORD]
        """Plans that it has been given, by a monitor before this one too."""
        self.step_ns: float | None = None
        """Mean step time of the last observation."""
        self.wait_share = 0.0
        """Share of that time in which it waited for data."""
        self.warm: tuple[int, int] | None = None
        """Time of the boundary, and wait for data, once the first steps are over."""
        self._pulse = pulse
        self._mark: tuple[int, int, int] | None = None
        self._found_steps = self.steps

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._pulse.words[STEPS_WORD]

    @property
    def boundary_ns(self) -> int:
        """Monotonic time of the last boundary."""
        return self._pulse.words[BOUNDARY_WORD]

    @property
    def data_wait_ns(self) -> int:
        """Time that the training thread has waited for data."""
        return self._pulse.words[DATA_WAIT_WORD]

    @property
    def window_state(self) -> int:
        """`WindowState` of the last plan; NONE before the first."""
        if not self.plan_count:
            return WindowState.NONE
        number, state = self._pulse.window
        return state if number == self.plan_count - 1 and state else WindowState.WAITING

    @property
    def busy(self) -> bool:
        """True while a plan is being followed."""
        return self.window_state not in {WindowState.NONE, WindowState.OVER}

    def alive(self) -> bool:
        """True while the very process runs, and is not replaced."""
        return process_is_alive(str(self.directory))

    def give(self, plan: WindowPlan) -> None:
        """Have it carry out a plan, whose number is `plan_count`.

        Raises:
            OSError: the spool cannot be written.
        """
        plan.write(str(self.directory))
        self.plan_count += 1
        self._pulse.words[PLANS_WORD] = self.plan_count

    def plans(self) -> Iterator[WindowPlan]:
        """The plans that it has been given."""
        for number in range(self.plan_count):
            plan = WindowPlan.read(str(self.directory), number)
            if plan is not None:
                yield plan

    def waits_for(self, plan: WindowPlan) -> bool:
        """True while a plan of its has not begun."""
        last = plan.number == self.plan_count - 1
        return last and self.window_state == WindowState.WAITING

    def observe(self) -> bool:
        """Look at the pulse; True when there is a new observation of the step time."""
        steps, boundary, wait = self.steps, self.boundary_ns, self.data_wait_ns
        if self.warm is None and steps >= WARM_STEPS:
            self.warm = boundary, wait
        if self.window_state in {WindowState.RECORDING, WindowState.WRITING}:
            self._mark = None
            return False
        if self._mark is None:
            self._mark = steps, boundary, wait
            return False
        elapsed = boundary - self._mark[1]
        if steps <= self._mark[0] or elapsed < OBSERVATION_NS:
            return False
        self.step_ns = elapsed / (steps - self._mark[0])
        self.wait_share = (wait - self._mark[2]) / elapsed
        self._mark = steps, boundary, wait
        return True

    def usual_step_ns(self, now_ns: int) -> float | None:
        """Its step time: the last observation, or what it takes at least where there is none.

        Returns:
            None while it has not been watched for long enough to say.
        """
        watched_ns = now_ns - self.found_ns
        if self.step_ns is not None or watched_ns < UNOBSERVED_NS:
            return self.step_ns
        return watched_ns / (self.steps - self._found_steps + 1)

    def why_missed(self, number: int) -> str | None:
        """Why there is no file of a window, as the process says; None when it says nothing."""
        try:
            lines, _ = read_journal(str(self.directory / "journal.jsonl"))
        except FileNotFoundError:
            return None
        misses = decode_facts(lines, WindowMissedFact)
        return next((miss.why for miss in misses if miss.number == number), None)


def in_training(trainees: Iterable[Trainee]) -> list[Trainee]:
    """Those that take steps; all of them where none does.

    A process beside the ranks that only runs a model would never reach the step of a plan.
    """
    every = list(trainees)
    return [trainee for trainee in every if trainee.steps] or every


def find_trainees(tree: SpoolTree, known: dict[str, Trainee], now_ns: int) -> None:
    """Add to *known* the processes that have a pulse by now."""
    for name, path in tree.process_directories().items():
        if name not in known:
            pulse = Heartbeat.open(path)
            if pulse is not None:
                known[name] = Trainee(name, Path(path), pulse, now_ns)


def finished_windows(directory: Path) -> Iterator[tuple[int, Path]]:
    """Number and path of each finished file of a process."""
    return _windows(directory, _FINISHED)


def settle_unfinished(directory: Path) -> list[int]:
    """What a process left half written when it ended: kept where there is something in it.

    Returns:
        Numbers of the windows of which nothing is left.
    """
    lost = []
    for number, path in _windows(directory, _UNFINISHED):
        if path.stat().st_size:
            path.rename(path.with_suffix(""))
        else:
            path.unlink()
            lost.append(number)
    return lost


def _windows(directory: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    try:
        files = sorted(directory.iterdir())
    except FileNotFoundError:
        return
    for path in files:
        match = pattern.fullmatch(path.name)
        if match is not None:
            yield int(match[1]), path


def rank_of(directory: Path) -> int | None:
    """Rank of the process, None when it has none."""
    return _said_of(directory, "rank")


def _said_of(directory: Path, what: str) -> int | None:
    """A number that the process has said of itself."""
    try:
        lines, _ = read_journal(str(directory / "journal.jsonl"))
    except FileNotFoundError:
        return None
    said = next((line.get(what) for line in lines if line.get("k") == "process"), None)
    return said if isinstance(said, int) else None
