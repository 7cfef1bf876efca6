"""Watch process of a job: evaluates rules, records and delivers findings, writes the report."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

import msgspec

from stepscope import budget, errors, quantities, rule_feed, schema, store
from stepscope.rules import Rule
from stepscope.watch.actions import make_action, make_alert
from stepscope.watch.config import LeaseWatch, ReadingBudget, WatchConfig
from stepscope.watch.deliveries import Deliveries
from stepscope.watch.follower import Follower
from stepscope.watch.growth import GrowthWatch
from stepscope.watch.live import StuckAlerts, make_stuck_finding

DELIVERY_TIMEOUT_S = 20.0
"""Maximum wait for pending deliveries after the end of the job."""
WRITE_TRIES = 5
TICK_S = 0.5
BUDGET_PERIOD_S = 300.0
"""Time over which the CPU budget is kept on average: the first evaluation costs the most."""


class Watch:
    """Watch process of one job. Resumes from the record of an earlier process.

    It ends, and writes nothing more, when another node has taken the lease of the run: its launcher
    starts another process, which waits for the lease.
    """

    def __init__(self, config: WatchConfig, lease: LeaseWatch) -> None:
        self._config = config
        self._lease = lease
        reader = store.open_run(config.run, threads=1)
        self._run_id = reader.info.run_id
        self._changes = store.ConfigurationChanges(config.run)
        self._change_count = 0
        self._change_error: str | None = None
        self._selection = self._read_selection() or config.selection
        rules = self._choose_rules(self._selection)
        reading = ReadingBudget(config.budget.cpu_ratio, interval_s=0, credit_s=BUDGET_PERIOD_S)
        self._growth = GrowthWatch(config, reader, rules, reading)
        self._follower = Follower(
            reader,
            rules,
            scan_ns=config.scan_ns,
            is_abandoned=self._is_launcher_gone,
            budget=reading,
        )
        self._memory = budget.MemoryLimit("the watch process", config.budget.memory_bytes)
        self._writer = store.RunWriter(config.run, socket.gethostname())
        self._is_unwritten = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item ends a pause; a handler of signals may add it, unlike set an event."""
        earlier = rule_feed.recorded_rules(reader)
        self._recorded_ns = dict(earlier.recorded_ns) if earlier else {}
        self._deliveries = Deliveries(
            [(action, make_action(action)) for action in config.actions],
            earlier=earlier.deliveries if earlier else (),
            on_change=self._request_write,
        )
        self._stuck = StuckAlerts(reader)
        self._is_stuck_over = False
        self._report = (
            None
            if config.report is None
            else RepeatedCommand(["report", config.run, "-o", config.report], "The report")
        )
        self._exports = [
            RepeatedCommand(
                ["export", config.run, "--to", item.format, "-o", item.output],
                f"The export to {item.format}",
                timeout_s=EXPORT_TIMEOUT_S,
            )
            for item in config.exports
        ]
        self._record = earlier or self._follower.record("running")
        self._terminated = False
        self._write_error: str | None = None

    def run(self) -> None:
        """Watch until the job has ended and its last scan is evaluated, or until SIGTERM."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGCONT, self._on_continue)
        self._write()
        for record in self._follower.follow(self._pause_and_change):
            if self._lease.is_held():
                self._handle(record)
        if not self._lease.is_held():
            return
        if not self._terminated and self._change_rules():  # just before the end of the job
            for record in self._follower.follow(self._pause):
                self._handle(record)
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        while self._deliveries.has_pending and time.monotonic() < deadline:
            self._pause(TICK_S)
        self._deliveries.give_up()
        with ThreadPoolExecutor() as pool:  # one that hangs does not cost others their time
            list(pool.map(RepeatedCommand.finish, self._exports))
        is_written = any(self._write() for _ in range(WRITE_TRIES))
        if self._report is not None:
            self._report.finish(list_report_options(self._selection))
            if self._report.problem is not None:
                _log(self._report.problem.partition(": ")[2])
        if not is_written:
            _log(self._write_error)

    def _handle(self, record: schema.RuleRecord) -> None:
        """Record the findings, then deliver them."""
        self._record = record
        self._memory.check()
        for finding in record.fired:
            self._recorded_ns.setdefault(finding.rule, record.written_ns)
            if record.progress == "running":
                self._growth.note(finding)
        self._write()
        for finding in record.fired:
            self._announce(finding, self._recorded_ns[finding.rule])
        if self._report is not None and record.progress == "running":
            self._report.refresh(list_report_options(self._selection))
        for export in self._exports:
            if record.progress == "running":
                export.refresh()

    def _stop_obstacle(self) -> str | None:
        """Reason why the job cannot be stopped; None when it can."""
        if self._record.progress != "running":
            return "the job has already ended"
        return "the job's launcher is no longer running" if self._is_launcher_gone() else None

    def _pause(self, seconds: float) -> bool:
        """Wait, and write changes of the record meanwhile; False after SIGTERM."""
        with suppress(queue.Empty):
            self._wakes.get(timeout=seconds)
        if self._is_unwritten:
            self._write()
        return not self._terminated and self._lease.is_held()

    def _pause_and_change(self, seconds: float) -> bool:
        """As `_pause`, and follow changes of the rules."""
        self._change_rules()
        self._announce_stuck()
        self._growth.look(self._follower.heartbeat_ns)
        return self._pause(seconds)

    def _announce_stuck(self) -> None:
        """Tell the receivers that the job is stuck."""
        account = self._stuck.read()
        if account is None:
            self._is_stuck_over = schema.STUCK_ALERT in self._recorded_ns
        if account is None or not account.is_stuck:
            return
        if self._is_stuck_over:  # they were told of another time
            self._is_stuck_over = False
            self._recorded_ns.pop(schema.STUCK_ALERT, None)
            self._deliveries.forget(schema.STUCK_ALERT)
        recorded_ns = self._recorded_ns.setdefault(schema.STUCK_ALERT, time.time_ns())
        self._announce(make_stuck_finding(account), recorded_ns)

    def _announce(self, finding: schema.Finding, recorded_ns: int) -> None:
        """Tell the receivers of a finding."""
        run = self._config.shown or self._config.run
        alert = make_alert(self._run_id, run, finding, recorded_ns)
        self._deliveries.announce(alert, stop_obstacle=self._stop_obstacle())

    def _change_rules(self) -> bool:
        """Evaluate the rules of a new configuration, from the start of the run; False without."""
        selection = self._read_selection()
        if selection is None or selection == self._selection:
            return False
        try:
            rules = self._choose_rules(selection)
        except errors.UsageError as error:  # e.g. the file of a rule has been removed
            self._change_error = f"the rules could not be changed: {error}"
            self._request_write()
            return False
        self._change_error = None
        self._selection = selection
        self._follower.replace_rules(rules)
        self._recorded_ns.clear()
        return True

    def _read_selection(self) -> schema.RuleSelection | None:
        """Read the rules of the newest change; None without a new one."""
        newest = None
        while (decision := self._changes.read_decision(self._change_count + 1)) is not None:
            self._change_count += 1
            newest = decision.configuration or newest
        return None if newest is None else newest.rules

    def _choose_rules(self, selection: schema.RuleSelection) -> list[Rule[Any]]:
        return rule_feed.choose_rules(
            selection.names,
            without=selection.without,
            also=self._config.also,
            config=None if selection.config is None else Path(selection.config),
            assignments=selection.assignments,
        )

    def _write(self) -> bool:
        """Replace the record in the run; False when that has to be retried later."""
        self._is_unwritten = False
        if not self._lease.is_held():
            return True
        failures = [export.problem for export in self._exports]
        problems = (self._change_error, self._write_error, self._memory.note, *failures)
        notes = [*self._record.notes, *(problem for problem in problems if problem is not None)]
        record = msgspec.structs.replace(
            self._record,
            written_ns=time.time_ns(),
            recorded_ns=self._recorded_ns,
            deliveries=self._deliveries.entries,
            notes=notes,
        )
        try:
            self._writer.put_document("findings", rule_feed.RULES_DOCUMENT, record)
        except OSError as error:
            reason = errors.explain_os_error(error)
            self._write_error = f"findings cannot be recorded at the moment: {reason}"
            time.sleep(TICK_S)
            self._request_write()
            return False
        self._write_error = None
        return True

    def _is_launcher_gone(self) -> bool:
        return os.getppid() != self._config.launcher_pid

    def _request_write(self) -> None:
        """Let the next pause end and write; called by threads of deliveries, too."""
        self._is_unwritten = True
        self._wakes.put(None)

    def _on_terminate(self, signum: int, frame: FrameType | None) -> None:
        self._terminated = True

    def _on_continue(self, signum: int, frame: FrameType | None) -> None:
        """Look for the end of the job at once."""
        self._wakes.put(None)


MAX_SHARE = 0.01
"""Writing the report may take this share of the time: it needs a core that the job may want."""
REPORT_TIMEOUT_S = 50.0
"""Time that the last report gets."""
EXPORT_TIMEOUT_S = 25.0
"""Time that the last exports get, and before them those that still run. The launcher waits for
twice this and a report."""


def _log(text: str | None) -> None:
    """Write a line to the log, of which the launcher reads the last one."""
    print(text, file=sys.stderr)  # noqa: T201


class RepeatedCommand:
    """A command of stepscope about the watched run, in one process at a time: the report, or what
    other tools are sent.

    Args:
        words: the command.
        name: what it writes, for the sentence about its failure.
        timeout_s: limit of the last one, and of the one before it once that is due.
    """

    def __init__(
        self, words: Sequence[str], name: str, *, timeout_s: float = REPORT_TIMEOUT_S
    ) -> None:
        self._command = [sys.executable, "-m", "stepscope", *words]
        self._name = name
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._due_s = 0.0
        self._errors: IO[bytes] | None = None
        self.problem: str | None = None
        """Why the last one failed, as a sentence; None if it did not."""

    def refresh(self, options: Sequence[str] = ()) -> None:
        """Start it with further options, unless it runs or has run too recently."""
        if self._is_running() or time.monotonic() < self._due_s:
            return
        self._start(options)

    def finish(self, options: Sequence[str] = ()) -> None:
        """Run it a last time."""
        self._wait()
        self._start(options)
        self._wait()

    def _is_running(self) -> bool:
        """Return True while it runs; note when the next one may start after its end."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        taken_s = time.monotonic() - self._started_s
        self._due_s = self._started_s + taken_s / MAX_SHARE
        self._note_end()
        return False

    def _wait(self) -> None:
        """Wait for the process, if there is one; end it if it takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._note_end()
            limit = quantities.duration(1e9 * self._timeout_s)
            self.problem = f"{self._name} failed: it took more than {limit} and was killed"
        else:
            self._note_end()

    def _note_end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._errors is None:
            return
        with self._errors as file:
            file.seek(0)
            lines = file.read().decode(errors="replace").split("\n")
        if not process.returncode:
            self.problem = None
            return
        reason = next((line for line in reversed(lines) if line.strip()), "it was killed")
        self.problem = f"{self._name} failed: {reason.removeprefix('stepscope: ')}"

    def _start(self, options: Sequence[str]) -> None:
        self._started_s = time.monotonic()
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until the process has ended
            self._process = subprocess.Popen(
                [*self._command, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
            )
        except OSError as error:  # no process or no file more: the rules do not depend on it
            if self._errors is not None:
                self._errors.close()
            self.problem = f"{self._name} failed: {errors.explain_os_error(error)}"


def list_report_options(rules: schema.RuleSelection) -> list[str]:
    """List the options of a report with these rules."""
    return [
        *(part for name in rule_feed.name_rules(rules) for part in ("--rule", name)),
        *(("--config", rules.config) if rules.config is not None else ()),
        *(part for text in rules.assignments for part in ("--set", text)),
    ]
