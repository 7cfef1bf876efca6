"""Counters of the processor in the run of a real job, and the reason where there are none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepscope.monitor.samplers.counters import CYCLES, Event, explain_refusal, open_counter
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, FinishedJob, run_under

pytestmark = [
    pytest.mark.seed("SMP-25"),
    pytest.mark.extended("two jobs; counters are in tests/unit/monitor"),
]

SOFTWARE_COUNTERS = E2E.parent / "support" / "software_counters"
PACED = str(E2E / "windows" / "paced.py")
TASK_CLOCK = Event(1, 1)
RATES = {
    f"process_{name}_per_s" for name in ("cycles", "instructions", "cache_misses", "itlb_misses")
}
RATIOS = {
    "process_instructions_per_cycle",
    "process_cache_misses_per_1000_instructions",
    "process_itlb_misses_per_1000_instructions",
}
S = 1e9
Floats = NDArray[np.float64]


def refusal(event: Event) -> OSError | None:
    try:
        os.close(open_counter(event, 0))
    except OSError as error:
        return error
    return None


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """A job whose monitor counts CPU time and page faults."""
    if refused := refusal(TASK_CLOCK):
        pytest.skip(explain_refusal(refused))
    run = tmp_path_factory.mktemp("counters") / "run"
    path = os.pathsep.join([str(SOFTWARE_COUNTERS), os.environ.get("PYTHONPATH", "")])
    options = ("--interval", "100")
    job = run_under(run, sys.executable, PACED, "--steps", "250", options=options, PYTHONPATH=path)
    assert job.code == 0, job.stderr
    return job


def means(job: FinishedJob) -> dict[str, dict[str, float]]:
    """Return the mean of each metric by process id."""
    (node,) = job.payload("show", "system")["nodes"]
    values: dict[str, dict[str, float]] = {}
    for row in node["metrics"]:
        values.setdefault(row["metric"], {})[row["device"]] = row["statistics"]["mean"]
    return values


def training_pid(job: FinishedJob) -> str:
    (process,) = (p for p in open_run(job.run).processes() if p.role == "main")
    return str(process.pid)


def test_a_training_process_has_all_counters(job: FinishedJob) -> None:
    values, pid = means(job), training_pid(job)
    for metric in RATES | RATIOS:
        assert pid in values[metric], metric


def test_counted_cpu_time_is_that_of_the_process_table(job: FinishedJob) -> None:
    pid = training_pid(job)
    samples = open_run(job.run).table("metrics", ["metric", "device", "t_ns", "value"])

    def values(metric: str) -> tuple[Floats, Floats]:
        """Return the times and the values of a metric of the process."""
        rows = (samples["metric"] == metric) & (samples["device"] == pid)
        return samples["t_ns"][rows], np.asarray(samples["value"][rows], dtype=np.float64)

    counted_ns, cycles_per_s = values("process_cycles_per_s")
    read_ns, cores = values("process_cpu_cores")
    common, counted, read = np.intersect1d(counted_ns, read_ns, return_indices=True)
    # Rates of unequal intervals, as a busy machine makes them, are compared by what they add up to.
    intervals_ns = np.diff(common)
    cycles = np.sum(cycles_per_s[counted][1:] / S * intervals_ns)
    assert cycles == pytest.approx(np.sum(cores[read][1:] * intervals_ns), rel=0.15)
    _, ratios = values("process_instructions_per_cycle")
    assert np.median(ratios) == pytest.approx(1, rel=0.05)


def test_counters_are_tracks_of_the_timeline(job: FinishedJob) -> None:
    pid = training_pid(job)
    groups = job.payload("show", "timeline")["groups"]
    tracks = {}
    while groups:
        group = groups.pop()
        groups += group["groups"]
        tracks |= {track["name"]: track for track in group["tracks"]}
    for name, unit in {
        f"process instructions per cycle {pid}": "count",
        f"process cycles {pid}": "per_s",
        f"process cache misses per 1000 instructions {pid}": "count",
    }.items():
        track = tracks[name]
        assert track["unit"] == unit
        shown = job.payload("show", "timeline-counters", "--tracks", track["id"])
        (series,) = shown["series"]
        assert [value for value in series["mean"] if value is not None]


def test_a_machine_that_refuses_says_why(tmp_path: Path) -> None:
    refused = refusal(CYCLES)
    job = run_under(tmp_path / "run", sys.executable, PACED, "--steps", "60")
    assert job.code == 0, job.stderr
    (node,) = job.payload("show", "system")["nodes"]
    if refused is None:
        assert "cpu_counters" not in node["metrics_missing"]
        return
    assert node["metrics_missing"]["cpu_counters"] == explain_refusal(refused)
    assert not (RATES | RATIOS) & {row["metric"] for row in node["metrics"]}
