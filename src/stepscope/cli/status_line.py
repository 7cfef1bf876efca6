"""One quiet line on stderr while the job runs: step, speed, busy, waiting.

Only where stderr is a terminal: in a log file a line that rewrites itself is noise, and reading
the growing run would cost the job for nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TextIO

import duckdb
import numpy as np

from stepscope.cli.text import percent
from stepscope.diagnosis import Signals
from stepscope.errors import StepscopeError
from stepscope.store import open_run

REFRESH_S = 3.0
MAX_READING_SHARE = 0.02
"""Reading may take this share of the time; a large run is read less often."""


class StatusLine:
    """Rewrites one line from the growing run.

    Args:
        stream: where to write; None, or no terminal, writes nothing.
    """

    def __init__(self, location: Path, stream: TextIO | None) -> None:
        self._location = location
        self._stream = stream if stream is not None and stream.isatty() else None
        self._next = time.monotonic() + REFRESH_S
        self._shown = False

    def tick(self) -> None:
        """Refresh the line when it is time."""
        if self._stream is None or time.monotonic() < self._next:
            return
        began = time.thread_time()
        text = self._text()
        cost = time.thread_time() - began
        self._next = time.monotonic() + max(REFRESH_S, cost / MAX_READING_SHARE)
        if text:
            self._stream.write(f"\r\x1b[2K{text}")
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown and self._stream is not None:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _text(self) -> str:
        try:
            signals = Signals(open_run(self._location))
            parts = _step_parts(signals) + _busy_parts(signals)
        except (StepscopeError, OSError, duckdb.Error):
            return ""
        return "stepscope  " + " · ".join(parts) if parts else ""


def _step_parts(signals: Signals) -> list[str]:
    if not signals.ranks:
        return ["no training step yet"]
    steps = signals.ranks[0].steps
    recent = slice(max(0, len(steps) - 50), None)
    wall = steps.wall_ns[recent].sum()
    waited = steps.phase_ns["data_wait"][recent].sum()
    rate = len(steps.wall_ns[recent]) / (wall / 1e9) if wall else 0.0
    return [
        f"step {len(steps)}",
        f"{rate:.3g} steps/s",
        f"data wait {percent(float(waited / wall) if wall else None)} of the step",
    ]


def _busy_parts(signals: Signals) -> list[str]:
    for metrics in signals.metrics.values():
        gpus = [
            metrics.series("gpu_busy_ratio", g)[-10:] for g in metrics.devices_of("gpu_busy_ratio")
        ]
        if gpus:
            return [f"GPU {percent(float(np.concatenate(gpus).mean()))}"]
        cpu = metrics.series("cpu_busy_ratio")[-10:]
        if len(cpu):
            return [f"CPU {percent(float(cpu.mean()))}"]
    return []
