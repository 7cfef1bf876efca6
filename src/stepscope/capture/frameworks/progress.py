"""Step boundaries while the job runs, what starts with them, and waits for batches.

After an optimizer step, the next piece of work starts a new step. In a process without optimizers
backward passes end steps; see `updates` for micro-batches. Until one trains, predictions do: the
last one of a batch, or without a loader each. They are no steps of a training that follows.

It serves code that acts at step boundaries inside the job (windows, samplers, device events). The
steps that a run reports are derived later from the recorded spans, with knowledge of the spans
that follow; see `analysis.steps`.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.capture import census, marks, stacks
from stepscope.capture.guard import Probe
from stepscope.capture.import_hooks import after_import
from stepscope.spool import Flag, Kind, StepsBase, native

FIRST_STEPS, EARLY_STEPS = 20, 1000
"""Listeners to some boundaries are called at each of the first steps, then every `RARE_PERIOD`
steps, and after the early ones every `LATE_PERIOD`."""
RARE_PERIOD, LATE_PERIOD = 20, 100
NEVER = 1 << 62
"""Number of a step that no job reaches."""
UNKNOWN_COUNT = -1
"""Batches that are ready, where the iterator of a framework does not tell."""
_now = time.monotonic_ns


def _never_idle() -> Idle | None:
    return None


class Idle(NamedTuple):
    """Until when a listener to step boundaries has nothing to do."""

    due_step: int = NEVER
    """It is to be called at this step at the latest."""
    word: tuple[memoryview, int, int] | None = None
    """Words, an index, and the value there until it is to be called."""
    heartbeat: memoryview | None = None
    """Words of the heartbeat, which is all that it writes meanwhile."""


class Progress(StepsBase):
    """Step counter.

    At most boundaries of short steps no listener has anything to do but to write the heartbeat: the
    compiled part does that (`spool._hot`), until what they have stated as `Idle` ends.
    """

    def __init__(self) -> None:
        self.step_count = 0
        self.data_wait_ns = 0
        self.has_optimizer = False
        """A torch optimizer was created: only its steps, or marks, end steps."""
        self.watches_updates = True
        """No optimizer has stepped and no step was marked: parameters may be updated by hand."""
        self.reports_work = False
        """Call `on_work` listeners at every piece of work: no step yet, or a window is open."""
        self.is_plain = True
        """No recorder takes part in calls that the compiled part does not know."""
        self._listeners: list[Callable[[], None]] = []
        self._idles: list[Callable[[], Idle | None]] = []
        self._can_rest = True
        """False once a listener has failed to tell until when it is idle."""
        self._rare_listeners: list[Callable[[], None]] = []
        self._work_listeners: list[Callable[[], None]] = []
        self._has_marks = False
        self._pending_thread = 0
        self._has_work_between = False
        self._only_predicts = True
        """Nothing has trained, and no step was marked."""
        self._batch_thread = 0
        """Thread whose last fetch has returned a batch, which predictions use until the next."""
        self._predicting_thread = 0
        """Thread that has predicted for this batch."""

    @property
    def finished_step_count(self) -> int:
        """Number of steps that have ended, including one after which no work has started yet."""
        return self.step_count + bool(self._pending_thread)

    def on_boundary(
        self, listener: Callable[[], None], find_idle: Callable[[], Idle | None] = _never_idle
    ) -> None:
        """Call *listener*, which must not raise, between steps on the training thread.

        Args:
            find_idle: tells after a call until when further ones are not needed; None if they are.
        """
        self._listeners.append(listener)
        if find_idle is _never_idle:
            self._idles.insert(0, find_idle)  # it answers for all
        else:
            self._idles.append(find_idle)
        self.disturb()

    def on_some_boundaries(self, listener: Callable[[], None]) -> None:
        """Call *listener* like `on_boundary`, after each of the first steps and some later ones."""
        self._rare_listeners.append(listener)

    def on_work(self, listener: Callable[[], None]) -> None:
        """Call *listener*, which must not raise, at each piece of work, while `reports_work`."""
        self._work_listeners.append(listener)
        self.reports_work = True

    def notify_backward_start(self) -> None:
        """Register the start of a backward pass.

        It starts a step where no work is recorded between backward passes: in a loop over plain
        tensors, without modules and DataLoaders.
        """
        if self._only_predicts:
            self._start_training()
        if not self._has_work_between and self._pending_thread == threading.get_ident():
            self._end_step()

    def notify_last_backward(self) -> None:
        """Register the end of the last backward pass of a step without optimizers."""
        if not self._has_marks:
            self._pending_thread = threading.get_ident()

    def notify_prediction(self) -> None:
        """Register the end of a forward pass that only predicts, while no optimizer exists."""
        thread = threading.get_ident()
        if self._batch_thread == thread:
            self._predicting_thread = thread
        elif self._only_predicts:
            self._pending_thread = thread

    def _start_training(self) -> None:
        """Count the steps of a training: those so far were predictions."""
        self._only_predicts = False
        self.step_count = self._pending_thread = 0
        self.disturb()  # what is due later is so by the count of the predictions

    def notify_work(self) -> None:
        """Register work that starts no step. Only called if `reports_work`."""
        for listener in self._work_listeners:
            listener()

    def notify_mark(self) -> None:
        """Register the end of a step marked by the script."""
        if not self._has_marks:
            watch_steps()  # no adapter may do so
        self._has_marks = True
        self.watches_updates = False
        if self._only_predicts:
            self._start_training()
        self._end_step()

    def end_step_in_python(self) -> None:
        """End a step, whatever is due then."""
        self._pending_thread = 0
        self.step_count += 1
        self.disturb()
        for listener in self._listeners:
            listener()
        step = self.step_count
        period = LATE_PERIOD if step >= EARLY_STEPS else RARE_PERIOD if step >= FIRST_STEPS else 1
        if not step % period:
            for listener in self._rare_listeners:
                listener()
        if native is not None and self._can_rest:
            try:
                self._rest_if_idle(step + period - step % period)
            except Exception:  # noqa: BLE001 - it only saves time
                self._can_rest = False

    def _rest_if_idle(self, next_rare: int) -> None:
        idles = []
        for find_idle in self._idles:
            idles.append(find_idle())
            if idles[-1] is None:
                break
        else:
            pages = [idle.heartbeat for idle in idles if idle and idle.heartbeat is not None]
            words = tuple(idle.word for idle in idles if idle and idle.word is not None)
            due_step = min([next_rare, *(idle.due_step for idle in idles if idle)])
            self._rest(due_step, pages[0] if pages else None, words)

    if native is None or TYPE_CHECKING:
        _end_step = end_step_in_python

        def notify_optimizer_step(self) -> None:
            """Register the end of an optimizer step; ignored if the script marks its steps."""
            self.watches_updates = False
            if self._only_predicts:
                self._start_training()
            if not self._has_marks:
                self._pending_thread = threading.get_ident()

        def notify_work_start(self) -> None:
            """Register the start of a forward pass or of other work, in whatever thread."""
            if self._pending_thread and self._pending_thread == threading.get_ident():
                self._has_work_between = True
                self._end_step()
            elif self.reports_work:
                self.notify_work()

        def notify_fetch_start(self) -> None:
            """Register the start of a fetch, in a training or loading thread."""
            if self._predicting_thread and self._predicting_thread == threading.get_ident():
                self._predicting_thread = 0
                if self._only_predicts:
                    self._pending_thread = threading.get_ident()
            self.notify_work_start()

        def notify_fetch_end(self, *, has_batch: bool) -> None:
            """Register the end of a fetch, after which there is a batch or none."""
            self._batch_thread = threading.get_ident() if has_batch else 0

        def disturb(self) -> None:
            """Call all listeners at the next boundary."""

        def _rest(self, due_step: int, heartbeat: Any, words: Any) -> None: ...


progress = Progress()
os.register_at_fork(after_in_parent=progress.disturb)  # threads of listeners stop at a fork
stacks.release_listeners.append(progress.disturb)
marks.step_listeners.append(progress.notify_mark)


def record_versions(find: Callable[[], dict[str, str]]) -> None:
    """Record the versions that *find* returns, by name, at a first step; see `VersionsFact`."""
    probe = Probe("versions of frameworks")  # one for each framework

    def record() -> None:
        if progress.step_count == 1:
            probe.fact("versions", versions=find())

    progress.on_some_boundaries(probe.protect(record))


_sampling_probe = Probe("stack samples and garbage collections")
_is_watching = False


def watch_steps() -> None:
    """Do the same as `watch_training` at every step boundary from now on. Idempotent."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        progress.on_boundary(
            functools.partial(stacks.watch_this_thread, stacks.MAIN_PERIOD_S),
            lambda: Idle() if stacks.is_watching() else None,
        )
        progress.on_boundary(
            census.follow, lambda: Idle(word=census.request_word()) if census.is_idle() else None
        )
        progress.on_some_boundaries(_sampling_probe.protect(stacks.watch_this_process))
        after_import("multiprocessing.process", stacks.watch_child_processes)


@_sampling_probe.protect
def watch_training() -> None:
    """Sample the stacks of this thread, and record garbage collections. To call after every step,
    because a fork of the job stops the sampler."""
    stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
    stacks.watch_this_process()


def take_batch(probe: Probe, name: str, take: Callable[..., Any], *arguments: Any) -> Any:
    """Take a batch, and record the wait for it.

    Args:
        probe: records the wait.
        name: name of the loader.
        take: returns the batch; what it raises, the end of the batches too, is passed on.
        arguments: those of *take*.
    """
    progress.notify_fetch_start()
    start_ns = _now()
    span = probe.start(Kind.DATA_WAIT, name, UNKNOWN_COUNT)
    has_batch = False
    try:
        batch = take(*arguments)
        has_batch = True
    finally:
        probe.end(span, flags=0 if has_batch else Flag.NO_RESULT)
        progress.notify_fetch_end(has_batch=has_batch)
        progress.data_wait_ns += _now() - start_ns
    return batch


def start_iterator(probe: Probe, name: str, start: Callable[[], Any]) -> Any:
    """Start an iterator over batches, and record how long that takes; see `take_batch`."""
    progress.notify_work_start()
    start_ns = _now()
    span = probe.start(Kind.LOADER_START, name)
    try:
        return start()
    finally:
        probe.end(span)
        progress.data_wait_ns += _now() - start_ns
