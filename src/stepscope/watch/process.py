"""The process beside a job that evaluates its rules, records what they find, and has it told."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import msgspec

from stepscope.diagnosis.rule_check import RULES_DOCUMENT, choose_rules, recorded_rules
from stepscope.schema import RuleRecord
from stepscope.store import RunWriter, open_run
from stepscope.watch.actions import make_action, make_alert
from stepscope.watch.config import WatchConfig
from stepscope.watch.deliveries import Deliveries
from stepscope.watch.follower import Follower

END_PATIENCE_S = 20.0
"""How long news may be on its way once the job has ended."""
WRITE_TRIES = 5
TICK_S = 0.5


class Watch:
    """Watches one job. A record of an earlier process is gone on from."""

    def __init__(self, config: WatchConfig) -> None:
        self._config = config
        reader = open_run(config.run, threads=1)
        self._run_id = reader.info.run_id
        rules = choose_rules(
            config.rules,
            also=config.also,
            config=None if config.parameters is None else Path(config.parameters),
            assignments=config.assignments,
        )
        self._follower = Follower(
            reader, rules, scan_ns=config.scan_ns, abandoned=self._launcher_is_gone
        )
        self._writer = RunWriter(config.run, socket.gethostname())
        self._unwritten = threading.Event()
        earlier = recorded_rules(reader)
        self._recorded_ns = dict(earlier.recorded_ns) if earlier else {}
        self._deliveries = Deliveries(
            [(action, make_action(action)) for action in config.actions],
            earlier=earlier.deliveries if earlier else (),
            changed=self._unwritten.set,
        )
        self._record = earlier or self._follower.record("running")
        self._ending = False
        self._trouble: str | None = None

    def run(self) -> None:
        """Watch until the job has ended and its last scan is evaluated, or until SIGTERM."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._write()
        for record in self._follower.records(self._pause):
            self._take(record)
        deadline = time.monotonic() + END_PATIENCE_S
        while self._deliveries.pending and time.monotonic() < deadline:
            self._pause(TICK_S)
        self._deliveries.give_up()
        for _ in range(WRITE_TRIES):
            if self._write():
                return
        print(self._trouble, file=sys.stderr)  # noqa: T201 - into the log, which the launcher reads

    def _take(self, record: RuleRecord) -> None:
        """Record what was found, then have it told."""
        self._record = record
        for finding in record.fired:
            self._recorded_ns.setdefault(finding.rule, record.written_ns)
        self._write()
        for finding in record.fired:
            alert = make_alert(
                self._run_id, self._config.run, finding, self._recorded_ns[finding.rule]
            )
            self._deliveries.announce(alert, why_no_stop=self._why_no_stop())

    def _why_no_stop(self) -> str | None:
        """Why the job cannot be stopped; None when it can."""
        if self._record.progress != "running":
            return "the job had ended before"
        return "the job's launcher is gone" if self._launcher_is_gone() else None

    def _pause(self, seconds: float) -> bool:
        """Wait, and write what becomes new meanwhile; False when asked to end."""
        if self._unwritten.wait(seconds):
            self._write()
        return not self._ending

    def _write(self) -> bool:
        """Replace the record in the run; False when that has to be tried again later."""
        self._unwritten.clear()
        notes = [*self._record.notes, *([self._trouble] if self._trouble else [])]
        record = msgspec.structs.replace(
            self._record,
            written_ns=time.time_ns(),
            recorded_ns=self._recorded_ns,
            deliveries=self._deliveries.entries,
            notes=notes,
        )
        try:
            self._writer.put_document("findings", RULES_DOCUMENT, record)
        except OSError as error:
            self._trouble = f"what rules found could not be recorded for a while: {error}"
            time.sleep(TICK_S)
            self._unwritten.set()
            return False
        self._trouble = None
        return True

    def _launcher_is_gone(self) -> bool:
        return os.getppid() != self._config.launcher_pid

    def _on_terminate(self, signum: int, frame: FrameType | None) -> None:
        self._ending = True
