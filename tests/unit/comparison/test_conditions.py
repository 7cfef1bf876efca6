"""Conditions on the difference of two runs."""

from __future__ import annotations

import pytest

from stepscope.comparison.conditions import METRICS, parse_condition
from stepscope.errors import UsageError


@pytest.mark.parametrize(
    ("text", "quantity", "threshold"),
    [
        ("step_time>+5%", "relative change", 0.05),
        (" step_time_p50 >= +5.5 % ".replace(" %", "%"), "relative change", 0.055),
        ("data_wait>+3ms", "change", 3e6),
        ("step_time_p95>120ms", "value", 120e6),
        ("wall_time>2min", "value", 120e9),
        ("throughput<-10%", "relative change", -0.1),
        ("throughput<50/s", "value", 50),
        ("throughput<50", "value", 50),
        ("gpu_busy<60%", "value", 0.6),
        ("gpu_busy<-5pp", "change", -0.05),
        ("gpu_busy<-5%", "relative change", -0.05),
        ("memory>+1GiB", "change", 2**30),
        ("gpu_memory>.5GB", "value", 5e8),
        ("cost>+0.5usd", "change", 0.5),
        ("machine_hours>3h", "value", 3),
    ],
)
def test_conditions(text: str, quantity: str, threshold: float) -> None:
    condition = parse_condition(text)
    assert (condition.quantity, condition.threshold) == (quantity, pytest.approx(threshold))
    assert condition.text == text.strip()


def test_operators() -> None:
    assert parse_condition("step_time>5ms").is_met_by(5e6 + 1)
    assert not parse_condition("step_time>5ms").is_met_by(5e6)
    assert parse_condition("step_time>=5ms").is_met_by(5e6)
    assert parse_condition("step_time<5ms").is_met_by(5e6 - 1)
    assert parse_condition("step_time<=5ms").is_met_by(5e6)


def test_conditions_on_all_metrics() -> None:
    assert all(parse_condition(f"{metric}>+5%").metric == metric for metric in METRICS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a condition"),
        ("step_time", "is not a condition"),
        ("step_time=5ms", "is not a condition"),
        ("step_time>+fast", "is not a condition"),
        ("step_time>+5%; true", "is not a condition"),
        ("speed>+5%", "Unknown metric 'speed' in 'speed>+5%'; available metrics: step_time"),
        ("step_time>5%", "use step_time>+5% for a change relative to the base"),
        ("step_time>5", "Missing unit in 'step_time>5'; available units: ns, us, ms"),
        ("step_time>5parsec", "Invalid unit 'parsec' in"),
        ("step_time>+5pp", "Invalid unit 'pp' in"),
        ("memory>5ms", "Invalid unit 'ms' in 'memory>5ms'; available units: b, kb"),
        ("machine_hours>5min", "available units: h"),
        ("gpu_busy>5", "available units: pp, %"),
    ],
)
def test_invalid_conditions(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_condition(text)
    assert message in str(raised.value)
    assert str(raised.value).endswith(".")
