"""The option `--on-stuck`."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.cli.rule_options import plan_rules
from stepscope.errors import UsageError
from stepscope.schema import STUCK_ALERT


def plan(on_stuck: tuple[str, ...], **options: Any) -> Any:
    names: dict[str, Any] = {
        "names": (), "parameters": None, "assignments": (), "scan_interval": 10.0, "stop_on": (),
        "stop_grace": 1.0, "fail_on": (), "on_finding": (), "webhook": (), "notify": (),
        "report": None, "no_rules": False,
    }  # fmt: skip
    return plan_rules(**{**names, **options}, on_stuck=on_stuck)


def test_values_are_told_apart() -> None:
    planned = plan(("stop", "notify-send stuck", "https://hooks.example/secret"))
    assert planned.on_stuck_stop
    assert [(a.kind, a.target, a.rules) for a in planned.actions] == [
        ("command", "notify-send stuck", [STUCK_ALERT]),
        ("webhook", "https://hooks.example", [STUCK_ALERT]),
    ]


def test_a_url_without_a_host_is_refused() -> None:
    with pytest.raises(UsageError, match="Invalid value for --on-stuck: 'https://"):
        plan(("https:///path",))


def test_actions_need_the_process_that_performs_them() -> None:
    with pytest.raises(UsageError, match="--no-rules conflicts with other options for rules"):
        plan(("stop",), no_rules=True)
