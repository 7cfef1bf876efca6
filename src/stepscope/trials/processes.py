"""One trial: a fresh process of the job's command, and its report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from stepscope.capture.bootstrap import trial_environment
from stepscope.capture.trial import TrialPlan
from stepscope.errors import TrialError, TrialTimeoutError
from stepscope.trials.schedule import MIN_STEPS, JobSource, Schedule

SANDBOX = Path(__file__).with_name("sandbox.py")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a scratch file
POLL_S = 0.1
STOP_TIMEOUT_S = 10.0
SEED = 20_011


class Applied(msgspec.Struct, frozen=True):
    """A change that took effect: values before and after."""

    before: str
    after: str


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report that the job writes; see `capture.trial.measurement`."""

    step_count: int = 0
    """Measured steps."""
    total_ns: int = 0
    """Time of the measured steps, with everything between them."""
    losses: list[float | None] = []
    applied: dict[str, Applied] = {}
    torch: str = ""
    python: str = ""
    error: str | None = None
    early_end: str | None = None
    """Sentence on a job that succeeded before its planned steps; `run_trial` adds it."""

    @property
    def step_ns(self) -> float:
        """Mean step."""
        return self.total_ns / self.step_count


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the supervisor; see `sandbox.run`."""

    report: TrialReport | None = None
    exit_code: int | None = None
    timed_out: bool = False
    output: str = ""
    """End of the output of the job; errors of the supervisor where the job did not run."""
    is_isolated: bool = False
    shared_paths: list[str] = []


def run_trial(
    source: JobSource,
    schedule: Schedule,
    *,
    changes: dict[str, str],
    batch_size: int | None = None,
    is_isolated: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrialReport:
    """Run the job once to its last measured step.

    Args:
        changes: changes to make by name; none for the job as it is.
        batch_size: batch size of the training data, None if unknown.
        is_isolated: discard the files that the job writes.
        should_stop: True ends the trial as an interrupt does.

    Raises:
        TrialTimeoutError: the job did not reach its last measured step in time.
        TrialError: the trial has no result, with the reason.
        KeyboardInterrupt: it was interrupted. Nothing of the trial is left then.
    """
    removed: list[str] = []
    if "debug_variables" in changes:
        source, removed = source.without_debug_variables()
    scratch = _choose_scratch()
    plan = TrialPlan(
        report=str(scratch / "report"),
        warmup_step_count=schedule.warmup_step_count,
        step_count=schedule.step_count,
        seed=SEED,
        changes=changes,
        removed_variables=removed,
        batch_size=batch_size,
    )
    request = {
        "command": source.command,
        "directory": source.directory,
        "environment": {
            "PYTHONHASHSEED": "0",  # orders of sets are part of the order of data
            **source.environment,
            **trial_environment(plan.encode(), source.environment.get("PYTHONPATH")),
        },
        "timeout_s": schedule.timeout_s,
        "scratch": str(scratch),
        "report": plan.report,
        "early_report": plan.early_report,
    }
    answer = _supervise(request, is_isolated=is_isolated, should_stop=should_stop)
    return _check(answer, schedule)


def find_real_directories() -> list[str] | None:
    """Find the paths at which the writes of a trial would be real; None for everywhere."""
    scratch = _choose_scratch()
    request = {
        "command": ["true"],
        "directory": "/",
        "environment": {"PATH": os.environ.get("PATH", os.defpath)},
        "timeout_s": 10.0,
        "scratch": str(scratch),
        "report": str(scratch / "report"),
        "early_report": str(scratch / "report.early"),
    }
    answer = _supervise(request, is_isolated=True, should_stop=lambda: False)
    return answer.shared_paths if answer.is_isolated else None


def _choose_scratch() -> Path:
    base = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return base / f"stepscope-try-{os.getuid()}-{os.getpid()}-{time.monotonic_ns()}"


def _supervise(
    request: dict[str, Any], *, is_isolated: bool, should_stop: Callable[[], bool]
) -> Answer:
    request |= {"parent": os.getpid(), "isolate": is_isolated}
    process = subprocess.Popen(
        [sys.executable, "-I", str(SANDBOX)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches it through this process
    )
    try:
        with suppress(BrokenPipeError):  # the supervisor has failed before it read
            process.stdin.write(msgspec.json.encode(request))  # type: ignore[union-attr]
        with suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        process.stdin = None
        while True:
            try:
                output, errors = process.communicate(timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                if should_stop():
                    raise KeyboardInterrupt from None
    finally:
        _end(process)
    if process.returncode or not output:
        reason = errors.decode(errors="replace").strip() or f"status {process.returncode}"
        raise TrialError(f"The supervisor of the trial failed: {reason}.")
    answer = msgspec.json.decode(output, type=Answer)
    if answer.report is None and answer.exit_code is None and not answer.timed_out:
        return msgspec.structs.replace(answer, output=errors.decode(errors="replace"))
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the supervisor; it ends the job."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _check(answer: Answer, schedule: Schedule) -> TrialReport:
    report = answer.report
    if report is not None and report.error is not None:
        raise TrialError(f"The trial failed: {report.error}.")
    if answer.timed_out:
        raise TrialTimeoutError(
            f"The job did not reach {schedule.warmup_step_count + schedule.step_count} steps in "
            f"{schedule.timeout_s:.0f} s."
        )
    if report is None or (report.step_count < schedule.step_count and answer.exit_code != 0):
        raise TrialError(_explain_end(answer))
    if report.step_count < min(MIN_STEPS, schedule.step_count):
        raise TrialError(
            f"The job ended after {report.step_count} measured steps; a trial needs {MIN_STEPS}."
        )
    if report.step_count < schedule.step_count:
        return msgspec.structs.replace(report, early_end=_explain_end(answer))
    return report


def _explain_end(answer: Answer) -> str:
    lines = [line for line in answer.output.strip().splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "it printed nothing"
    if answer.exit_code is None:
        return f"The supervisor of the trial could not run the job: {last}"
    if "EOFError" in last:
        return "The job reads standard input, which a trial cannot repeat."
    if answer.exit_code == 0 and answer.report is not None:
        return f"The job ended after {answer.report.step_count} measured steps: {last}"
    if answer.exit_code == 0:
        return "The job ended without a training step that stepscope recognises."
    return f"The job failed in the trial with status {answer.exit_code}: {last}"
