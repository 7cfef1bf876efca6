"""Alerts and a receiver of webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from stepscope.schema import Finding, RuleStatus
from stepscope.watch.actions import Alert, make_alert
from tests.support.webhooks import Receiver, receiving


def alert(rule: str = "Slow", sentences: Sequence[str] = ("rank 0 is slow.",)) -> Alert:
    finding = Finding(
        rule=rule,
        status=RuleStatus.ISSUES_FOUND,
        sentences=list(sentences),
        recommendation="Make it faster.",
        first_ns=7,
    )
    return make_alert("run-1", "/runs/run-1", finding, 9)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def make() -> Callable[..., Alert]:
    """Create alerts of rules by name."""
    return alert
