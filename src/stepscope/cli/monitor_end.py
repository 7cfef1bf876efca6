"""End of the monitor of a job: wait until it has stored the last records, or say where they are."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from stepscope.cli.launcher import stop_is_pending
from stepscope.cli.output import say
from stepscope.cli.suggestion import locate, suggest
from stepscope.monitor import Handshake, last_line
from stepscope.spool import is_suspended

MONITOR_TIMEOUT_S = 60.0
"""Time that the monitor gets to store the last records before it is left running."""


def await_monitor(
    monitor: subprocess.Popen[bytes] | None, log: int, spool: Path, location: str | Path
) -> bool | None:
    """Wait until the recording is in the run: True when it is complete, False while the monitor
    is still storing records, None when it needs `stepscope recover`."""
    if monitor is None:
        recover = suggest("recover", locate(location))
        say(f"The recording is still in {spool}. Store it in the run with: {recover}")
        return None
    code = _wait_for_monitor(monitor, spool)
    if code is None and is_suspended(monitor.pid):
        say(
            f"The last records are not in the run, because the monitor is suspended. Resume "
            f"it: kill -CONT {monitor.pid}"
        )
        return None
    if code is None:
        say(
            "Recording continues in the background. The verdict so far follows; for the final "
            f"one: {suggest('diagnose', locate(location))}"
        )
        return False
    if code == 0:
        return True
    say(explain_monitor_failure(log, spool, location))
    return None


def _wait_for_monitor(monitor: subprocess.Popen[bytes], spool: Path) -> int | None:
    """Wait for the monitor; its exit status, or None if it stays with processes of the job."""
    if is_suspended(monitor.pid):
        say(f"Resuming the monitor, process {monitor.pid}, which was suspended.")
        monitor.send_signal(signal.SIGCONT)
    handshake = Handshake(spool)
    deadline = time.monotonic() + MONITOR_TIMEOUT_S
    while time.monotonic() < deadline and not handshake.is_detached():
        if stop_is_pending():
            return None
        try:
            return monitor.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    return None


def explain_monitor_failure(log: int, spool: Path, location: str | Path) -> str:
    """Say why the monitor has failed, by its log, and where the records are."""
    failure = f"The monitor failed ({last_line(log)})."
    if not spool.exists():
        return (
            f"{failure} The spool {spool} was deleted, and with it the records that were not in "
            "the run yet."
        )
    return (
        f"{failure} The records are safe in {spool}; fix the cause, then store them in the run "
        f"with: {suggest('recover', locate(location))}"
    )
