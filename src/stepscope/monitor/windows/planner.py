"""When a window is opened, on which processes, and where it begins.

Four reasons share one way: `automatic` (the first few steps past warm-up of rank 0, unless the job
plainly waits for data), `scheduled`, `requested` and `slower` (the step time has changed for the
worse). Whoever has a reason makes a `Wish`; `give` turns it into plans that begin at the same step
on all ranks, far enough ahead for each rank's libkineto to ask for its configuration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.training_processes import Trainee
from stepscope.spool import Depth, Recorder, WindowPlan, window_file

USUAL_POLL_S = 1.0
HEARD_WITHIN = 3
"""libkineto serves a process that has asked within so many intervals."""
LEAD_POLLS = 2
LEAD_S = 0.5
OTHER_NODES_S = 2.0
"""What monitors of other nodes need to learn where a window begins."""
ROUND_STEPS = 10
ROUND_NS = 2_000_000_000
"""The first step is rounded up to a multiple of ten where ten steps take no longer."""
LEAST_LIMIT_NS = 30_000_000_000
LIMIT_FACTOR = 5
"""A window of steps ends after this many times its usual length: an evaluation may come between."""
SETTLED_NS = 1_000_000_000
"""Ranks start within this time of each other."""

LIGHT_ACTIVITIES = "kernel,gpu_memcpy,gpu_memset,cuda_runtime,cuda_driver,overhead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A window that somebody wants."""

    reason: str
    depth: str = Depth.FULL
    options: tuple[str, ...] = ()
    step_count: int | None = None
    duration_ns: int | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a window begins: after so many steps, and not before a monotonic time."""

    first_step: int | None
    start_ns: int = 0


class Planner:
    """Gives plans to processes.

    Args:
        peer: answers libkineto; None where no socket can be had.
    """

    def __init__(self, peer: KinetoPeer | None) -> None:
        self._peer = peer
        self._offered: dict[int, tuple[Trainee, int]] = {}

    def beginning(self, group: Sequence[Trainee], *, at_least: int = 0) -> Beginning:
        """Where a window of these processes can begin, all at the same step.

        Args:
            at_least: not before so many steps have ended.
        """
        now = time.monotonic_ns()
        lead_ns = self.lead_ns(group)
        stepping = [trainee for trainee in group if trainee.steps]
        if not stepping:
            return Beginning(first_step=None, start_ns=now + lead_ns)
        # One that has just been found is as fast as the others: ranks wait for each other.
        paces = [pace for pace in (t.usual_step_ns(now) for t in stepping) if pace]
        step_ns = max(1.0, min(paces, default=float(lead_ns)))
        soonest = max(t.steps for t in stepping) + 1 + math.ceil(lead_ns / step_ns)
        if at_least >= soonest:
            return Beginning(first_step=at_least)
        if ROUND_STEPS * step_ns <= ROUND_NS:
            soonest = math.ceil(soonest / ROUND_STEPS) * ROUND_STEPS
        return Beginning(first_step=soonest)

    def lead_ns(self, group: Sequence[Trainee]) -> int:
        """How long before a window every process of the group is sure to know of it."""
        intervals = [USUAL_POLL_S]
        if self._peer is not None:
            found = (self._peer.poll_interval_s(trainee.pid) for trainee in group)
            intervals += [min(each, 5.0) for each in found if each is not None]
        several_nodes = any(trainee.world_size > len(group) for trainee in group)
        seconds = LEAD_POLLS * max(intervals) + LEAD_S
        return round(1e9 * (seconds + OTHER_NODES_S * several_nodes))

    def give(self, wish: Wish, group: Sequence[Trainee], beginning: Beginning) -> None:
        """Have the processes record a window.

        Raises:
            OSError: a spool directory cannot be written.
        """
        for trainee in group:
            plan = self._plan(wish, trainee, beginning)
            if plan.recorder == Recorder.LIBKINETO:
                self._offer(trainee, plan)
            trainee.give(plan)

    def resume(self, trainee: Trainee) -> None:
        """Offer again what a former monitor may have died with."""
        for plan in trainee.plans():
            if trainee.waits_for(plan) and plan.recorder == Recorder.LIBKINETO:
                self._offer(trainee, plan)

    def withdraw_unused(self) -> None:
        """Take back what a process did not fetch before it gave its plan up."""
        if self._peer is None:
            return
        for pid, (trainee, number) in list(self._offered.items()):
            given_up = trainee.plan_count - 1 > number or not trainee.busy
            if given_up:
                self._peer.withdraw(pid)
                del self._offered[pid]

    def _plan(self, wish: Wish, trainee: Trainee, beginning: Beginning) -> WindowPlan:
        steps, longest = wish.step_count, wish.duration_ns
        if steps is None and longest is not None and beginning.first_step is not None:
            # Whole steps, as many on every rank.
            steps = max(1, math.ceil(longest / (trainee.step_ns or longest)))
            longest = None
        if steps is not None and longest is None and trainee.step_ns is not None:
            longest = max(LEAST_LIMIT_NS, math.ceil(LIMIT_FACTOR * steps * trainee.step_ns))
        return WindowPlan(
            number=trainee.plan_count,
            reason=wish.reason,
            recorder=self._recorder(wish, trainee),
            depth=wish.depth,
            options=wish.options,
            first_step=beginning.first_step,
            steps=steps,
            start_ns=beginning.start_ns,
            longest_ns=longest,
            request=wish.request,
        )

    def _recorder(self, wish: Wish, trainee: Trainee) -> str:
        """libkineto where it can serve. After a window of its own a process takes a second or two
        longer to end, which is too much for the few steps that nobody asked for."""
        heard = self.served_by_libkineto(trainee) and "memory" not in wish.options
        asked_for = wish.reason != "automatic"
        return Recorder.LIBKINETO if heard and asked_for else Recorder.PROFILER

    def served_by_libkineto(self, trainee: Trainee) -> bool:
        """Whether the process's libkineto asks us."""
        if self._peer is None:
            return False
        last = self._peer.last_poll(trainee.pid)
        interval = self._peer.poll_interval_s(trainee.pid) or USUAL_POLL_S
        return last is not None and time.monotonic() - last < HEARD_WITHIN * interval + 1

    def _offer(self, trainee: Trainee, plan: WindowPlan) -> None:
        if self._peer is not None:
            self._peer.offer(trainee.pid, configuration(plan, str(trainee.directory)))
            self._offered[trainee.pid] = trainee, plan.number


def configuration(plan: WindowPlan, directory: str) -> str:
    """What libkineto is told of a plan; the process itself counts the steps.

    `PROFILE_PROFILE_MEMORY` is not among the keys: it costs time but records nothing on demand.
    Modules are named by the Python tracer, which stacks switch on, and FLOPs come from shapes.
    """
    options = plan.options
    keys = {
        "ACTIVITIES_LOG_FILE": window_file(directory, plan.number),
        "PROFILE_START_ITERATION": "0",
        "ACTIVITIES_WARMUP_ITERATIONS": "1",
        "ACTIVITIES_ITERATIONS": "1",
    }
    if plan.depth == Depth.LIGHT:
        keys["ACTIVITY_TYPES"] = LIGHT_ACTIVITIES
    if "shapes" in options or "flops" in options:
        keys["PROFILE_REPORT_INPUT_SHAPES"] = "true"
    if "stacks" in options or "modules" in options:
        keys["PROFILE_WITH_STACK"] = "true"
    if "flops" in options:
        keys["PROFILE_WITH_FLOPS"] = "true"
    if "modules" in options:
        keys["PROFILE_WITH_MODULES"] = "true"
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def settled(trainees: Sequence[Trainee], now_ns: int) -> bool:
    """True when no process has come lately: the ranks are complete."""
    return bool(trainees) and all(now_ns - t.found_ns >= SETTLED_NS for t in trainees)
