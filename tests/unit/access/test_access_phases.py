"""Phases of a job, and the use of machines in them, against the run as drawn and brute force."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.errors import UsageError
from stepscope.run import find_modes, find_step_phases
from stepscope.schema import JobState
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS, METRIC_PERIOD_NS
from tests.support.access_run import MS, STEPS

S = 10**9
TRAIN = "wait 50 | forward 12 | do:loss 3 | backward 20 | optimizer 15"
"""100 ms; the following pieces start a second apart."""


@pytest.fixture
def evaluating(tmp_path: Path) -> OpenRun:
    """A job of 8 s: 1 s of initialization, 2 s of training, 1 s of evaluation, 2 s of training,
    and 2 s of finalization."""
    builder = RunBuilder(tmp_path / "run", code={"loss": "main > loss", "idle": "main > idle"})
    rank = builder.rank(0)
    rank.draw("do:idle 1000").draw(TRAIN, 20)
    rank.draw("mode:EVAL ( predict 1000 )").draw(TRAIN, 20).draw("do:idle 2000")
    builder.metric("gpu_busy_ratio", lambda s: s / 10, device="0")
    builder.metric("cpu_busy_ratio", lambda s: 1 - s / 10)
    builder.status(JobState.COMPLETED, ended_ns=EPOCH_NS + 8 * S)
    return stepscope.open(builder.write())


@pytest.mark.seed("DBU-10")
def test_job_statistics_have_shares(evaluating: OpenRun) -> None:
    job = evaluating.job_statistics()
    assert (job.duration_ns, job.training_start_ns, job.training_end_ns) == (
        8 * S, EPOCH_NS + S, EPOCH_NS + 6 * S,
    )  # fmt: skip
    shares = (job.initialization_ratio, job.training_ratio, job.finalization_ratio)
    assert shares == (1 / 8, 5 / 8, 2 / 8)


@pytest.mark.seed("DBU-10")
def test_intervals_of_periods_and_modes(evaluating: OpenRun) -> None:
    names = ["initialization", "training", "finalization", "train", "eval", "predict"]
    seconds = {
        name: [
            ((r["start_ns"] - EPOCH_NS) / S, (r["end_ns"] - EPOCH_NS) / S)
            for r in evaluating.phase_intervals(name).rows()
        ]
        for name in names
    }
    assert seconds == {
        "initialization": [(0, 1)],
        "training": [(1, 6)],
        "finalization": [(6, 8)],
        "train": [(1, 3), (4, 6)],
        "eval": [(3, 4)],
        "predict": [],
    }


@pytest.mark.seed("DBU-10")
def test_before_between_and_after_a_phase(evaluating: OpenRun) -> None:
    parts = ["before", "inside", "between", "after"]
    rows = evaluating.phase_intervals("train", part=parts).rows()
    assert [(r["part"], r["duration_ns"] // S) for r in rows] == [
        ("before", 1), ("inside", 2), ("between", 1), ("inside", 2), ("after", 2),
    ]  # fmt: skip
    assert rows[0]["rank"] == "rank 0"
    assert not len(evaluating.phase_intervals("predict", part=parts))
    with pytest.raises(UsageError, match="no phase 'warmup'; there are 'initialization'"):
        evaluating.phase_intervals("warmup")
    with pytest.raises(UsageError, match="no part 'middle'; there are 'before'"):
        evaluating.phase_intervals("train", part="middle")


@pytest.mark.seed("DBU-10")
def test_the_phases_of_steps_divide_the_mode_train(evaluating: OpenRun, run: OpenRun) -> None:
    for one in (evaluating, run):
        for rank in one._run.ranks:
            phases = find_step_phases(rank)
            assert {name: times.total_ns for name, times in phases.items()} == {
                name: int(times.sum()) for name, times in rank.steps.phase_ns.items()
            }
            total = sum(times.total_ns for times in phases.values())
            assert total == find_modes(rank)["train"].total_ns == int(rank.steps.wall_ns.sum())
    assert len(run.phase_intervals("backward", rank=0)) == STEPS


@pytest.mark.seed("DBU-10")
def test_utilization_by_phase(evaluating: OpenRun) -> None:
    """The samples are taken every half second: n-th is n/20 on the GPU, 1 - n/20 on the CPU."""
    seconds = {
        "initialization": (0, 1), "training": (1, 6), "finalization": (6, 8), "eval": (3, 4),
    }  # fmt: skip
    rows = evaluating.utilization(phase=list(seconds)).rows()
    assert len(rows) == 2 * len(seconds)
    period_s = METRIC_PERIOD_NS / S
    end_s = (evaluating.system().numpy()["t_ns"].max() - EPOCH_NS) / S
    for row in rows:
        first, last = seconds[row["phase"]]
        times = [n * period_s for n in range(math.ceil(end_s / period_s) + 1)]
        sample = np.array([t / 10 for t in times if first <= t < last and t <= end_s])
        if row["metric"] == "cpu_busy_ratio":
            sample = 1 - sample
        assert (row["count"], row["unit"]) == (len(sample), "ratio")
        expected = {
            "mean": sample.mean(),
            "standard_deviation": sample.std(),
            "min": sample.min(),
            "p50": np.percentile(sample, 50),
            "p95": np.percentile(sample, 95),
            "p99": np.percentile(sample, 99),
            "max": sample.max(),
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected)


@pytest.mark.seed("DBU-10")
def test_a_phase_without_samples_has_no_figures(run: OpenRun) -> None:
    rows = run.utilization("gpu_busy_ratio", phase="eval").rows()
    assert {row["device"] for row in rows} == {"0", "1", "mean"}
    assert {(row["count"], row["mean"], row["p95"]) for row in rows} == {(0, None, None)}
    (all_samples,) = run.utilization("cpu_busy_ratio", phase=None).rows()
    assert (all_samples["phase"], all_samples["count"]) == (
        None,
        len(run.system(metric="cpu_busy_ratio")),
    )


@pytest.mark.seed("DBU-10")
def test_spans_by_mode(evaluating: OpenRun) -> None:
    rows = {row["mode"]: row for row in evaluating.span_statistics(by="mode").rows()}
    # Of 40 steps, four phases each; of the evaluation, its mark and one forward pass.
    assert {mode: row["count"] for mode, row in rows.items()} == {"train": 160, "eval": 2}
    assert rows["train"]["total_ns"] == 40 * 97 * MS
