"""Alert that a job is stuck, for the same actions as the findings of rules."""

from __future__ import annotations

import time

import duckdb

from stepscope.diagnosis import StuckAccount, explain_stuck, read_stuck_nodes
from stepscope.errors import StepscopeError
from stepscope.schema import STUCK_ALERT, Finding, RuleStatus
from stepscope.store import RunReader

READ_INTERVAL_S = 1.0
RECOMMENDATION = (
    "Look at the lines of the ranks that have not arrived, or that called something else."
)


class StuckAlerts:
    """Reader of the accounts of a job that makes no progress.

    Args:
        reader: the run.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._next_s = 0.0
        self._account: StuckAccount | None = None

    def read(self) -> StuckAccount | None:
        """Return the account of a running job; None while it makes progress."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + READ_INTERVAL_S
            try:
                nodes = read_stuck_nodes(self._reader)
                is_running = bool(nodes) and not all(node.has_ended for node in nodes.values())
                self._account = explain_stuck(nodes) if is_running else None
            except (StepscopeError, OSError, duckdb.Error):  # the next reading tries again
                pass
        return self._account


def make_stuck_finding(account: StuckAccount) -> Finding:
    """Make the finding that actions are told."""
    return Finding(
        rule=STUCK_ALERT,
        status=RuleStatus.ISSUES_FOUND,
        rule_triggered=1,
        violations=1,
        datapoints=len(account.ranks),
        details={
            "kind": account.kind,
            "group": account.group,
            "number": account.number,
            "collective": account.collective,
            "culprits": account.culprits,
            "without_progress_ns": account.duration_ns,
        },
        sentences=[account.headline, *account.lines],
        recommendation=RECOMMENDATION,
        evidence=["overview"],
        first_ns=account.since_ns,
        last_ns=account.since_ns + account.duration_ns,
        ranks=[f"rank {rank}" for rank in account.culprits],
    )
