"""Where one step ends and the next begins, as far as it can be told while the job runs.

This serves those who act at step boundaries inside the job (windows, samplers, device events).
The steps that a run reports are derived afterwards from the recorded spans, where it is also
known what came next; see `analysis.steps`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stepscope.capture import marks
from stepscope.capture.guard import Probe

_probe = Probe("step boundaries")
_now = time.monotonic_ns


class Progress:
    """Counts steps: after an optimizer step, the next piece of work begins a new one."""

    def __init__(self) -> None:
        self.step_count = 0
        self.data_wait_ns = 0
        self._listeners: list[Callable[[], None]] = []
        self._pending = False

    def on_boundary(self, listener: Callable[[], object]) -> None:
        """Call *listener* between steps, on the training thread."""
        self._listeners.append(_probe.protect(listener))

    def optimizer_stepped(self) -> None:
        """An optimizer step ended."""
        self._pending = True

    def work_begins(self) -> None:
        """A fetch or a forward pass is about to begin."""
        if self._pending:
            self.boundary()

    def boundary(self) -> None:
        """A step ended."""
        self._pending = False
        self.step_count += 1
        for listener in self._listeners:
            listener()


progress = Progress()
marks.step_listeners.append(progress.boundary)
