"""Conditions on the difference of two runs."""

from __future__ import annotations

import pytest

from stepscope.comparison.conditions import METRICS, parse_condition
from stepscope.errors import UsageError


@pytest.mark.parametrize(
    ("text", "of", "threshold"),
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
def test_conditions(text: str, of: str, threshold: float) -> None:
    found = parse_condition(text)
    assert (found.of, found.threshold) == (of, pytest.approx(threshold))
    assert found.text == text.strip()


def test_operators() -> None:
    assert parse_condition("step_time>5ms").holds(5e6 + 1)
    assert not parse_condition("step_time>5ms").holds(5e6)
    assert parse_condition("step_time>=5ms").holds(5e6)
    assert parse_condition("step_time<5ms").holds(5e6 - 1)
    assert parse_condition("step_time<=5ms").holds(5e6)


def test_every_metric_has_a_condition() -> None:
    assert all(parse_condition(f"{metric}>+5%").metric == metric for metric in METRICS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no condition"),
        ("step_time", "is no condition"),
        ("step_time=5ms", "is no condition"),
        ("step_time>+fast", "is no condition"),
        ("step_time>+5%; true", "is no condition"),
        ("speed>+5%", "'speed' in 'speed>+5%' is no metric; there are step_time"),
        ("step_time>5%", "write step_time>+5% for a change relative to the base"),
        ("step_time>5", "a unit is missing in 'step_time>5': it is measured in ns, us, ms"),
        ("step_time>5parsec", "'parsec' is no unit in"),
        ("step_time>+5pp", "'pp' is no unit in"),
        ("memory>5ms", "'ms' is no unit in 'memory>5ms': it is measured in b, kb"),
        ("machine_hours>5min", "it is measured in h"),
        ("gpu_busy>5", "it is measured in pp, %"),
    ],
)
def test_what_cannot_be_understood(text: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_condition(text)
    assert says in str(raised.value)
    assert str(raised.value).endswith(".")
