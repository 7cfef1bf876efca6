"""Report of a running job in a file, written again while the job runs."""

from __future__ import annotations

import subprocess
import sys
import time

from stepscope.rule_feed import name_rules
from stepscope.schema import RuleSelection

MAX_SHARE = 0.01
"""Writing the report may take this share of the time: it needs a core that the job may want."""
LAST_TIMEOUT_S = 50.0
"""Time that the last report gets."""


class ReportFile:
    """Report of the watched run with its rules, written by one process at a time."""

    def __init__(self, run: str, path: str) -> None:
        self._command = [sys.executable, "-m", "stepscope", "report", run, "-o", path]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._due_s = 0.0

    def refresh(self, rules: RuleSelection) -> None:
        """Start to write the report with these rules, unless it is being written or was written too
        recently."""
        if self._is_writing() or time.monotonic() < self._due_s:
            return
        self._start(rules)

    def finish(self, rules: RuleSelection) -> None:
        """Write the report a last time, and wait for it."""
        self._wait()
        self._start(rules)
        self._wait()

    def _is_writing(self) -> bool:
        """Return True while a process writes; note when the next one may start after its end."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        taken_s = time.monotonic() - self._started_s
        self._due_s = self._started_s + taken_s / MAX_SHARE
        self._process = None
        return False

    def _wait(self) -> None:
        """Wait for the process, if there is one; end it if it takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(LAST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self, rules: RuleSelection) -> None:
        options = [
            *(part for name in name_rules(rules) for part in ("--rule", name)),
            *(("--config", rules.config) if rules.config is not None else ()),
            *(part for text in rules.assignments for part in ("--set", text)),
        ]
        self._started_s = time.monotonic()
        self._process = subprocess.Popen(
            [*self._command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
