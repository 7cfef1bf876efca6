"""Steps that are packed and unpacked are the same."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepscope.analysis import Steps, pack_steps
from stepscope.intervals import Intervals

DAY_NS = 86_400 * 10**9


def make_steps(duration: NDArray[np.int64], profiled: NDArray[np.bool_]) -> Steps:
    random = np.random.default_rng(3)
    count = len(duration)
    start = 1_700_000_000_000_000_000 + np.cumsum(duration) + random.integers(0, 9, count)
    phases = {
        "forward": duration // 3,
        "loss": np.zeros(count, dtype=np.int64),
        "other": random.integers(-5, 300, count),
    }
    return Steps(
        source="optimizer",
        clock="host",
        thread=7,
        start=start,
        end=start + duration,
        wall_ns=duration - np.arange(count) % 3,
        phase_ns=phases,
        fetches=np.full(count, 2),
        profiled=profiled,
        evaluation=Intervals(np.array([5]), np.array([9])),
        first=4,
        rank_count=100,
    )


@pytest.mark.parametrize("duration", [[5], [100] * 40, [1, 70_000, 300, 2 * DAY_NS, 0] * 9])
def test_unpacked_steps_are_those_that_were_packed(duration: list[int]) -> None:
    for profiled in (np.zeros(len(duration), np.bool_), np.arange(len(duration)) % 5 == 1):
        steps = make_steps(np.array(duration), profiled)
        packed = pickle.loads(pickle.dumps(pack_steps(steps)))  # noqa: S301 - made here
        unpacked = packed.unpack()
        assert len(packed) == len(steps)
        for field in fields(Steps):
            expected, value = getattr(steps, field.name), getattr(unpacked, field.name)
            np.testing.assert_equal(value, expected)
            if isinstance(expected, np.ndarray):
                assert value.dtype == expected.dtype


def test_packed_steps_take_a_third_of_the_memory() -> None:
    duration = np.random.default_rng(1).integers(10**8, 2 * 10**8, 10_000)
    steps = make_steps(duration, np.zeros(len(duration), np.bool_))
    phases = {name: np.abs(values) for name, values in steps.phase_ns.items()}
    steps = replace(steps, phase_ns=phases)
    assert len(pickle.dumps(pack_steps(steps))) < len(pickle.dumps(steps)) / 3
