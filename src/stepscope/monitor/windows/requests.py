"""Window requests on this node, and their progress."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from stepscope import spool, store
from stepscope.monitor.windows.censuses import CensusRequests
from stepscope.monitor.windows.imports import WindowImports
from stepscope.monitor.windows.planner import (
    Planner,
    TrainingProcess,
    WindowSpec,
    WindowStart,
    select_stepping,
)

START_TIMEOUT_NS = 30_000_000_000
"""Time that a request waits for a training process …"""
STEP_TIMEOUT_NS = 10_000_000_000
"""… and, once there is one, for its first step."""
FILE_TIMEOUT_NS = 5_000_000_000
"""Time from the end of a window after which a missing file means that there is none."""
MAX_REQUEST_AGE_NS = 600_000_000_000
SLOWER = "slower"
"""Reason of a request by a monitor after a slowdown."""

NO_TRAINING_PROCESS = "no process of the job has started to train with PyTorch"
NO_STEP_TIME = "the job has just taken its first steps"
NO_STEP = (
    "the job has finished no step that stepscope can detect (no optimizer step, no backward pass, "
    "no mark); use --seconds instead"
)


class _ActiveRequest(msgspec.Struct):
    request: store.WindowRequest
    since_ns: int
    members: list[tuple[TrainingProcess, int]] = msgspec.field(default_factory=list)
    """Processes, each with the number of its window."""
    is_assigned: bool = False
    first_step: int | None = None
    over_since: dict[str, int] = msgspec.field(default_factory=dict)
    status: store.RequestStatus | None = None


class RequestHandler:
    """Handler of all window requests of the run on this node."""

    def __init__(
        self,
        requests: store.WindowRequests,
        node: str,
        planner: Planner,
        imports: WindowImports,
        censuses: CensusRequests,
    ) -> None:
        self._requests = requests
        self._node = node
        self._planner = planner
        self._imports = imports
        self._censuses = censuses
        self._active: list[_ActiveRequest] = []
        self.slower_request_times_ns: list[int] = []
        """Times of the requests by monitors after slowdowns, in epoch nanoseconds."""

    def agree(self, name: str, proposal: WindowStart) -> WindowStart:
        """Agree with all nodes on a start; converts between epoch and monotonic times."""
        to_epoch = time.time_ns() - time.monotonic_ns()
        start_ns = proposal.start_ns + to_epoch if proposal.start_ns else 0
        agreement = self._requests.agree(
            name, store.WindowAgreement(first_step=proposal.first_step, start_ns=start_ns)
        )
        return WindowStart(
            first_step=agreement.first_step,
            start_ns=agreement.start_ns - to_epoch if agreement.start_ns else 0,
        )

    def tick(self, processes: Sequence[TrainingProcess], now_ns: int) -> None:
        """Accept new requests, and continue the active ones.

        Raises:
            OSError: the run or the spool cannot be written.
        """
        for request in self._requests.read_new():
            if request.reason == SLOWER:
                self.slower_request_times_ns.append(request.asked_ns)
            earlier = self._requests.read_status(request.name, self._node)
            if earlier is None or not earlier.state.is_final:
                self._active.append(_accept(request, processes, now_ns))
        for active in list(self._active):
            if active.request.is_census:
                status = self._censuses.follow(active.request, now_ns)
            else:
                status = self._continue(active, processes, now_ns)
            if status != active.status:
                self._requests.put_status(active.request.name, self._node, status)
                active.status = status
            if status.state.is_final:
                self._active.remove(active)

    def _continue(
        self, active: _ActiveRequest, processes: Sequence[TrainingProcess], now_ns: int
    ) -> store.RequestStatus:
        if not active.is_assigned:
            alive = [process for process in processes if process.is_alive()]
            obstacle = self._assign(active, alive, now_ns)
            if obstacle is not None:
                return obstacle
        windows = [
            self._window(active, process, number, now_ns) for process, number in active.members
        ]
        failures = [window.reason for window in windows if window.reason is not None]
        return store.RequestStatus(
            state=min((window.state for window in windows), key=list(store.RequestState).index),
            message=failures[0] if failures else "",
            first_step=active.first_step,
            step_count=active.request.step_count,
            windows=windows,
        )

    def _assign(
        self, active: _ActiveRequest, processes: list[TrainingProcess], now_ns: int
    ) -> store.RequestStatus | None:
        """Assign the plans; returns a status if that is impossible, or not possible yet."""
        request = active.request
        if time.time_ns() - request.asked_ns > MAX_REQUEST_AGE_NS:
            return _failed("the request is too old")
        members = select_stepping(processes)
        if request.step_count is not None and not any(process.steps for process in members):
            members = []
        if not members:
            obstacle = NO_STEP if processes else NO_TRAINING_PROCESS
            timeout_ns = STEP_TIMEOUT_NS if processes else START_TIMEOUT_NS
            if now_ns - active.since_ns > timeout_ns:
                return _failed(obstacle)
            return _waiting(obstacle)
        if any(process.steps and not process.estimate_step_ns(now_ns) for process in members):
            return _waiting(NO_STEP_TIME)
        if any(process.is_busy for process in members):
            return _waiting("another window is open or planned; this one follows it")
        spec = WindowSpec(
            reason=request.reason,
            depth=request.depth,
            options=tuple(request.options),
            step_count=request.step_count,
            duration_ns=request.duration_ns,
            request=request.name,
        )
        start = self.agree(request.name, self._planner.find_start(members))
        active.members = self._planner.assign(spec, members, start)
        active.is_assigned = True
        active.first_step = start.first_step
        return None

    def _window(
        self, active: _ActiveRequest, process: TrainingProcess, number: int, now_ns: int
    ) -> store.WindowStatus:
        state, reason = self._window_state(active, process, number, now_ns)
        return store.WindowStatus(
            process=process.name, number=number, rank=process.rank, state=state, reason=reason
        )

    def _window_state(
        self, active: _ActiveRequest, process: TrainingProcess, number: int, now_ns: int
    ) -> tuple[store.RequestState, str | None]:
        """State of one window, and the reason of a failure."""
        key = process.name, number
        if key in self._imports.stored:
            return store.RequestState.STORED, None
        if key in self._imports.unreadable:
            return store.RequestState.FAILED, self._imports.unreadable[key]
        if self._imports.is_queued(key):
            return store.RequestState.IMPORTING, None
        is_alive = process.is_alive()
        has_later_plan = process.plan_count - 1 > number
        if is_alive and not has_later_plan and process.window_state != spool.WindowState.OVER:
            is_waiting = process.window_state == spool.WindowState.WAITING
            return store.RequestState.PLANNED if is_waiting else store.RequestState.RECORDING, None
        since_ns = active.over_since.setdefault(process.name, now_ns)
        if now_ns - since_ns < FILE_TIMEOUT_NS:
            return store.RequestState.RECORDING, None
        reason = process.read_miss_reason(number)
        if reason is None and not is_alive:
            reason = "the job ended before the window"
        return store.RequestState.FAILED, reason or "the profiler wrote no file"


def _accept(
    request: store.WindowRequest, processes: Sequence[TrainingProcess], now_ns: int
) -> _ActiveRequest:
    """Accept a request, with the plans that an earlier monitor may have assigned."""
    active = _ActiveRequest(request, now_ns)
    for process in processes:
        for plan in process.plans():
            if plan.request == request.name:
                active.members.append((process, plan.number))
                active.is_assigned, active.first_step = True, plan.first_step
    return active


def _waiting(message: str) -> store.RequestStatus:
    return store.RequestStatus(state=store.RequestState.WAITING, message=message)


def _failed(message: str) -> store.RequestStatus:
    return store.RequestStatus(state=store.RequestState.FAILED, message=message)
