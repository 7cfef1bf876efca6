"""Steps of a job whose phases were timed on a device: the device's work comes first."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.steps.spans import Spans
from stepscope.analysis.steps.steps import find_steps

MS = 1_000_000


def spans(*rows: tuple[str, str, float, float]) -> Spans:
    """Spans of one thread from (kind, name, start ms, end ms)."""
    ordered = sorted(rows, key=lambda row: (row[2], -row[3]))
    count = len(ordered)
    return Spans.of_columns(
        start=np.array([row[2] * MS for row in ordered], dtype=np.int64),
        end=np.array([row[3] * MS for row in ordered], dtype=np.int64),
        kind=[row[0] for row in ordered],
        name=[row[1] for row in ordered],
        thread=[1] * count,
        flags=[0] * count,
        unfinished=[False] * count,
        value=np.ones(count, dtype=np.int64),
    )


def host_step(begin: float, wait: float) -> list[tuple[str, str, float, float]]:
    """Draw the host's part of a step: wait, launch for 6 ms, then read the loss until the end."""
    t = begin + wait
    return [
        ("data_wait", "loader", begin, t),
        ("forward", "Net", t, t + 2),
        ("backward", "backward", t + 2, t + 4),
        ("optimizer", "SGD", t + 4, t + 6),
    ]


def test_an_optimizer_starts_after_the_backward_pass_of_its_closure() -> None:
    """The device has the optimizer's time only from the end of the backward pass on."""
    rows = []
    for begin in (0, 40):
        rows += [
            ("optimizer", "SGD", begin, begin + 30),
            ("forward", "Net", begin + 10, begin + 12),
            ("backward", "backward", begin + 12, begin + 16),
            ("device", "optimizer", begin, begin + 30),
            ("device", "forward", begin + 10, begin + 13),
            ("device", "backward", begin + 13, begin + 22),
        ]
    steps = find_steps(spans(*rows))
    assert {
        phase: int(times[-1]) // MS for phase, times in steps.phase_ns.items() if times[-1]
    } == {"forward": 3, "backward": 9, "optimizer": 8, "other": 20}


def test_wait_hidden_by_the_device_does_not_count() -> None:
    """The device is busy all the time; the host's 30 ms of waiting cost nothing."""
    rows = host_step(0, 1) + host_step(40, 30) + host_step(80, 30)
    for begin in (0, 40, 80):
        start = begin + 1
        rows += [
            ("device", "forward", start, start + 13),
            ("device", "backward", start + 13, start + 35),
            ("device", "optimizer", start + 35, start + 40),
        ]
    steps = find_steps(spans(*rows))
    assert steps.clock == "device"
    # Steps end with the host's optimizer span: at 7, 76 and 116 ms.
    assert steps.wall_ns.tolist() == [7 * MS, 69 * MS, 40 * MS]
    assert steps.phase_ns["data_wait"].tolist() == [1 * MS, 0, 0]
    total = sum(steps.phase_ns.values())
    np.testing.assert_array_equal(total, steps.wall_ns)
    # Between 76 and 116 ms: optimizer until 81, forward until 94, backward until 116.
    assert steps.phase_ns["optimizer"][2] == 5 * MS
    assert steps.phase_ns["forward"][2] == 13 * MS
    assert steps.phase_ns["backward"][2] == 22 * MS
    assert steps.phase_ns["other"].tolist() == [0, 0, 0]


def test_wait_under_an_idle_device_counts() -> None:
    """The device works for 10 of 40 ms; of the host's 30 ms of waiting it hides 4."""
    rows = host_step(0, 1) + host_step(7, 30) + host_step(43, 30)
    for begin in (1, 37, 73):
        rows += [
            ("device", "forward", begin, begin + 4),
            ("device", "backward", begin + 4, begin + 8),
            ("device", "optimizer", begin + 8, begin + 10),
        ]
    steps = find_steps(spans(*rows))
    assert steps.phase_ns["data_wait"][1] == pytest.approx(26 * MS)
    assert steps.phase_ns["data_wait"][2] == pytest.approx(26 * MS)
    assert (sum(steps.phase_ns.values()) == steps.wall_ns).all()


def test_without_device_times_the_host_counts() -> None:
    steps = find_steps(spans(*host_step(0, 1), *host_step(40, 30)))
    assert steps.clock == "host"
    assert steps.phase_ns["data_wait"].tolist() == [1 * MS, 30 * MS]
