"""Watch process and status line of `stepscope run`.

The status line is shown only on a terminal: in a log file it would be noise, and reading the
growing run costs CPU time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec

from stepscope import errors, monitor, schema
from stepscope.budget import Budget
from stepscope.cli.job.forking import Process, can_fork, fork_process
from stepscope.cli.job.job_run import JobRun
from stepscope.cli.job.launcher import Companion, stop_is_pending
from stepscope.cli.job.rule_options import RulePlan
from stepscope.cli.options.common import FIRED
from stepscope.cli.output import locate, say, suggest
from stepscope.cli.startup import one_thread_in_numpy
from stepscope.watch import ActionConfig, ReadingBudget, WatchConfig, import_watch, watch_job

RULES_TIMEOUT_S = 60.0
"""Time that the last evaluation and deliveries get before they are left running."""
NOTICE_AFTER_S = 3.0
"""Time after which the wait is announced."""


class Watching:
    """The rules of one job.

    Args:
        run: the run; if its launchers are on several nodes, the one that holds the lease evaluates
            the rules.
        plan: rules and actions that the user requested.
        stop_request: file in which the process requests to stop the job.
        budget: CPU time and memory of the process.
    """

    def __init__(self, run: JobRun, plan: RulePlan, stop_request: Path, budget: Budget) -> None:
        self._run = run
        self._plan = plan
        self._budget = budget
        self._log = monitor.open_log()
        self._stop_request = stop_request
        self._made_s = time.time()
        self.is_left_running = False
        """True if the process still evaluated rules when the wait for it was over."""
        # A job that ends before is evaluated once, at its end.
        self.companion = Companion(
            lambda _job_pid: self._start(), one_thread_in_numpy()(import_watch), is_early=False
        )

    def hurry(self) -> None:
        """Let the process look for the end of the job at once, or start it for a short job."""
        process = self.companion.process
        if process is not None:
            process.send_signal(signal.SIGCONT)
            return
        with suppress(Exception):  # `conclude` tries again
            self.companion.process = self._start()

    def conclude(self, job_exit: monitor.JobExit, *, complete: bool | None) -> monitor.JobExit:
        """Wait for the last evaluation, report the rules that fired, and return the exit status.

        Args:
            job_exit: exit status of the job.
            complete: True if the recording is in the run; False while processes of the job still
                run, None if the rest is lost. Findings so far are then reported.
        """
        try:
            if complete is None and self.companion.process is not None:
                self.companion.process.terminate()  # it waits for records that will not arrive
            if complete is False:
                record = self._current()
            else:
                record = self._final_record(complete=complete is True)
        except Exception as error:  # noqa: BLE001 - the job's exit status comes first
            say(f"Cannot read the findings of the rules: {error}.")
            record = None
        if record is not None:
            from stepscope.cli.text import console
            from stepscope.cli.writers.findings import write_summary

            try:
                write_summary(console(stderr=True), record)
            except OSError:  # stderr is closed or full
                pass
        self._announce_report()
        unfinished = record is not None and record.progress == "running" and complete is not False
        return self._judge(job_exit, None if unfinished else record)

    def end(self) -> None:
        """End the process of a node that does not evaluate the rules."""
        if self.companion.process is not None:
            self.companion.process.terminate()

    def _announce_report(self) -> None:
        """Say where the report is, or that it could not be written."""
        if self._plan.report is None:
            return
        path = Path(self._plan.report)
        if path.exists() and path.stat().st_mtime >= self._made_s:
            say(f"Report: {path}")
        else:
            reason = monitor.last_line(self._log).removeprefix("stepscope: ").rstrip(".")
            say(f"The report was not written: {reason}.")

    def _judge(
        self, job_exit: monitor.JobExit, record: schema.RuleRecord | None
    ) -> monitor.JobExit:
        """Apply `--fail-on`; rules that could not be evaluated to the end count as failed."""
        if not self._plan.fail_on or job_exit.exit_code != 0:
            return job_exit
        if record is None:
            say("The rules of --fail-on could not be evaluated, which counts as a failure.")
            return msgspec.structs.replace(job_exit, exit_code=FIRED)
        fired = [finding.rule for finding in record.fired if finding.rule in self._plan.fail_on]
        if not fired:
            return job_exit
        say(f"The job succeeded, but {', '.join(fired)} fired (--fail-on).")
        return msgspec.structs.replace(job_exit, exit_code=FIRED)

    def _final_record(self, *, complete: bool) -> schema.RuleRecord | None:
        """Wait for the evaluation and the deliveries; their record, or None if there is none."""
        code = self._wait()
        if code and complete:
            # It was killed or could not start. The recording is complete, so evaluate again.
            self.companion.process = self._start()
            code = self._wait()
        record = self._current()
        if code is None:
            self.is_left_running = True
            later = suggest("rules", "check", locate(self._run.name))
            say(f"Rules are still being evaluated. Later: {later}")
        elif code or record is None or record.progress == "running":
            say(f"Some findings are missing in the run ({monitor.last_line(self._log)}).")
        return record

    def _current(self) -> schema.RuleRecord | None:
        from stepscope.rule_feed import recorded_rules
        from stepscope.store import open_run

        return recorded_rules(open_run(self._run.location))

    def _wait(self) -> int | None:
        """Return the exit status of the process, None if it still runs."""
        process = self.companion.process
        if process is None:
            return 1
        start, is_announced = time.monotonic(), False
        while (waited := time.monotonic() - start) < RULES_TIMEOUT_S and not stop_is_pending():
            try:
                return process.wait(0.1)
            except subprocess.TimeoutExpired:
                if waited > NOTICE_AFTER_S and not is_announced:
                    say("Waiting for the last evaluation of rules and the delivery of alerts.")
                    is_announced = True
        return None

    def _start(self) -> Process:
        plan = self._plan
        rules = [*plan.stop_on, *([schema.STUCK_ALERT] if plan.on_stuck_stop else [])]
        stop = ActionConfig(
            kind="stop", address=str(self._stop_request), target="the job", rules=rules
        )
        config = WatchConfig(
            run=str(self._run.location),
            shown=str(self._run.name),
            node=self._run.node,
            launcher_pid=os.getpid(),
            scan_ns=round(1e9 * plan.scan_s),
            selection=plan.selection,
            also=plan.also,
            actions=[stop, *plan.actions],
            budget=self._budget,
            report=plan.report,
            exports=plan.exports,
            takes_census=plan.takes_census,
        )
        if can_fork():
            words = ("stepscope.watch", config.run)
            return fork_process(words, lambda: watch_job(config), self._log)
        return monitor.start_beside(
            "stepscope.watch", log=self._log, message=msgspec.json.encode(config)
        )


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
            import _duckdb as duckdb

            from stepscope.cli.writers.live import pace_text
            from stepscope.run import Run
            from stepscope.store import open_run
            from stepscope.watch import measure_pace

        try:
            pace = measure_pace(Run(open_run(self._location)))
        except (errors.StepscopeError, OSError, duckdb.Error):
            return ""
        return f"stepscope  {pace_text(pace)}"
