"""Where one step ends and the next begins, as far as it can be told while the job runs.

This serves those who act at step boundaries inside the job (windows, samplers, device events).
The steps that a run reports are derived afterwards from the recorded spans, where it is also
known what came next; see `analysis.steps`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stepscope.capture import marks


class Progress:
    """Counts steps: after an optimizer step, the next piece of work begins a new one."""

    def __init__(self) -> None:
        self.step_count = 0
        self.data_wait_ns = 0
        self.work_counts = True
        """Tell `on_work` of every piece of work: there are no steps yet, or a window is open."""
        self._listeners: list[Callable[[], None]] = []
        self._work_listeners: list[Callable[[], None]] = []
        self._marked = False
        self._pending = 0

    def on_boundary(self, listener: Callable[[], None]) -> None:
        """Call *listener*, which must not raise, between steps on the training thread."""
        self._listeners.append(listener)

    def on_work(self, listener: Callable[[], None]) -> None:
        """Call *listener*, which must not raise, at each piece of work, while `work_counts`."""
        self._work_listeners.append(listener)

    def optimizer_stepped(self) -> None:
        """An optimizer step ended; steps that the script marks itself need no guessing."""
        if not self._marked:
            self._pending = threading.get_ident()

    def work_begins(self) -> None:
        """A fetch or a forward pass is about to begin, perhaps in a thread that only loads."""
        if self._pending and self._pending == threading.get_ident():
            self._boundary()
        else:
            self.work_goes_on()

    def work_goes_on(self) -> None:
        """Work that begins no step."""
        if self.work_counts:
            for listener in self._work_listeners:
                listener()

    def marked(self) -> None:
        """The script says that a step ended."""
        self._marked = True
        self._boundary()

    def _boundary(self) -> None:
        self._pending = 0
        self.step_count += 1
        for listener in self._listeners:
            listener()


progress = Progress()
marks.step_listeners.append(progress.marked)
