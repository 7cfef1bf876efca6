"""Status line on stderr while the job runs: step, speed, data wait, utilization.

It is shown only on a terminal: in a log file it would be noise, and reading the growing run costs
CPU time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stepscope.cli.numpy_threads import one_thread_in_numpy
from stepscope.errors import StepscopeError
from stepscope.quantities import number, percent
from stepscope.watch import ReadingBudget

if TYPE_CHECKING:
    from stepscope.watch import Pace


class StatusLine:
    """Line that is rewritten from the growing run.

    Args:
        stream: output; nothing is written to None or a stream that is no terminal.
    """

    def __init__(self, location: Path, stream: TextIO | None) -> None:
        self._location = location
        self._stream = stream if stream is not None and stream.isatty() else None
        self._budget = ReadingBudget()
        self._shown = False

    def tick(self) -> None:
        """Refresh the line when it is time."""
        if self._stream is None or not self._budget.allows:
            return
        with self._budget.spending():
            text = self._text()
        if text:
            self._stream.write(f"\r\x1b[2K{text}")
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        """Erase the line."""
        if self._shown and self._stream is not None:
            try:
                self._stream.write("\r\x1b[2K")
                self._stream.flush()
            except OSError:  # the terminal is gone
                pass

    def _text(self) -> str:
        with one_thread_in_numpy():
            import duckdb

            from stepscope.run import Run
            from stepscope.store import open_run
            from stepscope.watch import measure_pace

        try:
            pace = measure_pace(Run(open_run(self._location)))
        except (StepscopeError, OSError, duckdb.Error):
            return ""
        return f"stepscope  {pace_text(pace)}"


def pace_text(pace: Pace) -> str:
    """Format step, speed, data wait and utilization, as far as known."""
    parts = ["no training step yet"]
    if pace.recording_has_ended:
        parts = [f"recording ended at step {pace.step_count}"]
    elif pace.steps_per_s is not None:
        parts = [
            f"step {pace.step_count}",
            f"{number(pace.steps_per_s)} steps/s",
            f"data wait {percent(pace.data_wait_ratio)} of step time",
        ]
    if pace.gpu_busy_ratio is not None:
        parts.append(f"GPU {percent(pace.gpu_busy_ratio)}")
    elif pace.cpu_busy_ratio is not None:
        parts.append(f"CPU {percent(pace.cpu_busy_ratio)}")
    return " · ".join(parts)
