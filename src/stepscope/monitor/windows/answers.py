"""Requests that are being carried out on this node, and what it says of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepscope.monitor.windows.imports import WindowImports
from stepscope.monitor.windows.planner import Beginning, Planner, Wish
from stepscope.monitor.windows.training_processes import Trainee, in_training
from stepscope.spool import WindowState
from stepscope.store import (
    Agreement,
    AnsweredWindow,
    AnswerState,
    RequestBoard,
    WindowAnswer,
    WindowRequest,
)

NO_TRAINEE_PATIENCE_NS = 30_000_000_000
"""How long a request waits for a job that has not begun to work …"""
NO_STEP_PATIENCE_NS = 10_000_000_000
"""… and for one that has, but has ended no step."""
FILE_PATIENCE_NS = 5_000_000_000
"""A window that a process is done with, and that has no file after this long, has none."""
OLD_REQUEST_NS = 600_000_000_000
SLOWER = "slower"
"""Reason of a request that a monitor makes of its own accord."""

NOBODY_TRAINS = "no process of the job has begun to work under PyTorch"
NO_PACE = "the job has only just begun to take steps"
NO_STEP = (
    "the job has ended no step that stepscope can see (it uses no torch optimizer and marks no "
    "steps); ask for --seconds instead"
)


@dataclass(slots=True)
class _Ongoing:
    request: WindowRequest
    since_ns: int
    members: list[tuple[Trainee, int]] = field(default_factory=list)
    """Process and number of its window."""
    given: bool = False
    first_step: int | None = None
    over_since: dict[str, int] = field(default_factory=dict)
    said: WindowAnswer | None = None


class Requests:
    """All requests of the run that concern this node."""

    def __init__(
        self, board: RequestBoard, node: str, planner: Planner, imports: WindowImports
    ) -> None:
        self._board = board
        self._node = node
        self._planner = planner
        self._imports = imports
        self._ongoing: list[_Ongoing] = []
        self.slower_asked_ns: list[int] = []
        """When monitors asked because the job had become slower; epoch nanoseconds."""

    def agreed(self, name: str, proposal: Beginning) -> Beginning:
        """Where all nodes begin; monotonic times are a node's own."""
        to_epoch = time.time_ns() - time.monotonic_ns()
        start = proposal.start_ns + to_epoch if proposal.start_ns else 0
        agreed = self._board.agree(name, Agreement(first_step=proposal.first_step, start_ns=start))
        return Beginning(
            first_step=agreed.first_step,
            start_ns=agreed.start_ns - to_epoch if agreed.start_ns else 0,
        )

    def tick(self, trainees: Sequence[Trainee], now_ns: int) -> None:
        """Take up what is new, and move on what is under way.

        Raises:
            OSError: the run or the spool cannot be written.
        """
        for request in self._board.new_requests():
            if request.reason == SLOWER:
                self.slower_asked_ns.append(request.asked_ns)
            earlier = self._board.answer(request.name, self._node)
            if earlier is None or not earlier.state.final:
                self._ongoing.append(self._take_up(request, trainees, now_ns))
        for ongoing in list(self._ongoing):
            answer = self._answer(ongoing, trainees, now_ns)
            if answer != ongoing.said:
                self._board.put_answer(ongoing.request.name, self._node, answer)
                ongoing.said = answer
            if answer.state.final:
                self._ongoing.remove(ongoing)

    def _take_up(
        self, request: WindowRequest, trainees: Sequence[Trainee], now_ns: int
    ) -> _Ongoing:
        """A former monitor may have given the plans already."""
        ongoing = _Ongoing(request, now_ns)
        for trainee in trainees:
            for plan in trainee.plans():
                if plan.request == request.name:
                    ongoing.members.append((trainee, plan.number))
                    ongoing.given, ongoing.first_step = True, plan.first_step
        return ongoing

    def _answer(self, ongoing: _Ongoing, trainees: Sequence[Trainee], now_ns: int) -> WindowAnswer:
        if not ongoing.given:
            refusal = self._give(ongoing, [t for t in trainees if t.alive()], now_ns)
            if refusal is not None:
                return refusal
        windows = [
            self._window(ongoing, trainee, number, now_ns) for trainee, number in ongoing.members
        ]
        failures = [window.reason for window in windows if window.reason is not None]
        return WindowAnswer(
            state=min((window.state for window in windows), key=list(AnswerState).index),
            message=failures[0] if failures else "",
            first_step=ongoing.first_step,
            step_count=ongoing.request.step_count,
            windows=windows,
        )

    def _give(self, ongoing: _Ongoing, trainees: list[Trainee], now_ns: int) -> WindowAnswer | None:
        """Give the plans; an answer when that is not possible, or not yet."""
        request = ongoing.request
        if time.time_ns() - request.asked_ns > OLD_REQUEST_NS:
            return _failed("the request is too old")
        group = in_training(trainees)
        if request.step_count is not None and not any(trainee.steps for trainee in group):
            group = []
        if not group:
            why = NO_STEP if trainees else NOBODY_TRAINS
            patience_ns = NO_STEP_PATIENCE_NS if trainees else NO_TRAINEE_PATIENCE_NS
            if now_ns - ongoing.since_ns > patience_ns:
                return _failed(why)
            return WindowAnswer(state=AnswerState.WAITING, message=why)
        if any(trainee.steps and not trainee.usual_step_ns(now_ns) for trainee in group):
            return WindowAnswer(state=AnswerState.WAITING, message=NO_PACE)
        if any(trainee.busy for trainee in group):
            return WindowAnswer(
                state=AnswerState.WAITING,
                message="another window is open or planned; this one follows it",
            )
        wish = Wish(
            reason=request.reason,
            depth=request.depth,
            options=tuple(request.options),
            step_count=request.step_count,
            duration_ns=request.duration_ns,
            request=request.name,
        )
        beginning = self.agreed(request.name, self._planner.beginning(group))
        numbers = [(trainee, trainee.plan_count) for trainee in group]
        self._planner.give(wish, group, beginning)
        ongoing.members, ongoing.given = numbers, True
        ongoing.first_step = beginning.first_step
        return None

    def _window(
        self, ongoing: _Ongoing, trainee: Trainee, number: int, now_ns: int
    ) -> AnsweredWindow:
        state, reason = self._progress(ongoing, trainee, number, now_ns)
        return AnsweredWindow(
            process=trainee.name, number=number, rank=trainee.rank, state=state, reason=reason
        )

    def _progress(
        self, ongoing: _Ongoing, trainee: Trainee, number: int, now_ns: int
    ) -> tuple[AnswerState, str | None]:
        key = trainee.name, number
        if key in self._imports.stored:
            return AnswerState.STORED, None
        if key in self._imports.unreadable:
            return AnswerState.FAILED, self._imports.unreadable[key]
        if self._imports.knows(key):
            return AnswerState.IMPORTING, None
        alive = trainee.alive()
        later = trainee.plan_count - 1 > number
        if alive and not later and trainee.window_state != WindowState.OVER:
            waits = trainee.window_state == WindowState.WAITING
            return AnswerState.PLANNED if waits else AnswerState.RECORDING, None
        since = ongoing.over_since.setdefault(trainee.name, now_ns)
        if now_ns - since < FILE_PATIENCE_NS:
            return AnswerState.RECORDING, None
        why = trainee.why_missed(number)
        if why is None and not alive:
            why = "the job ended before the window did"
        return AnswerState.FAILED, why or "the profiler wrote no file"


def _failed(message: str) -> WindowAnswer:
    return WindowAnswer(state=AnswerState.FAILED, message=message)
