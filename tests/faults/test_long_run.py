"""A few seconds of the job that `make soak-hours` runs for two hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.long_run import ROLES, ProcessSample, Sample, record, summarize

RATE = 500


@pytest.mark.extended("a long job")
def test_descriptors_stay_and_the_run_grows(tmp_path: Path) -> None:
    result = record(tmp_path, seconds=4, rate=RATE, sample_s=0.25)
    assert result.steps > 0
    assert result.run_mb > 0
    for name in ("training process", "watch process"):
        low, high = result.processes[name].descriptors
        assert high - low <= 2
    low, high = result.processes["monitor"].descriptors
    assert high - low <= 16  # files that are merged


def test_slopes_are_those_after_the_warm_up() -> None:
    samples = [
        Sample(
            t_s=float(t),
            run_bytes=100 * t,
            processes={
                name: ProcessSample(10**8 if t < 20 else 10**7 + 1000 * t, 5 + t // 50)
                for name in ROLES
            },
        )
        for t in range(101)
    ]
    result = summarize(samples, 500, 5.0)
    assert result.run_bytes_per_s == result.run_bytes_per_s_second_half == 100
    process = result.processes["monitor"]
    assert process.memory_mb_per_hour == pytest.approx(3.6)
    assert process.descriptors == (5, 7)
