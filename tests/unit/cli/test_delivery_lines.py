"""Lines about what rules that fired have done."""

from __future__ import annotations

from typing import Any

from stepscope.cli.writers.findings import delivery_lines
from stepscope.schema import STUCK_ALERT, Delivery, DeliveryState


def delivery(action: str, target: str, rule: str, **values: Any) -> Delivery:
    return Delivery(action=action, number=0, target=target, rule=rule, **values)


def test_one_line_per_receiver_and_outcome() -> None:
    hook, sent = ("webhook", "https://example.org/hook"), DeliveryState.SENT
    deliveries = [
        delivery("stop", "the job", STUCK_ALERT, state=sent, try_count=1),
        delivery(*hook, "LossSpike", state=sent, try_count=1),
        delivery(*hook, "IOBottleneck", state=sent, try_count=2),
        delivery(*hook, "TreeDepth", state=DeliveryState.FAILED, try_count=3, error="HTTP 500"),
        delivery("command", "./alert.sh", "LossSpike"),
    ]
    assert delivery_lines(deliveries) == [
        "stop the job (Stuck): done",
        "webhook https://example.org/hook (LossSpike, IOBottleneck): sent",
        "webhook https://example.org/hook (TreeDepth): failed after 3 tries (HTTP 500)",
        "command ./alert.sh (LossSpike): not done yet",
    ]
