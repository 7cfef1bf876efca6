"""Runs whose processes were recorded for a part of the job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stepscope.cli.status_line import pace_text
from stepscope.cost import report_cost
from stepscope.diagnosis import diagnose
from stepscope.run import Run, explain_recording_end, find_recording_end, job_statistics
from stepscope.schema import JobState
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.watch import measure_pace

S = 1_000_000_000
LIMIT_S = 4


def draw(path: Path, *, limit_s: float | None, job_s: float = 10) -> Run:
    """A job with steps of 100 ms for four seconds, on a node that may have a limit."""
    builder = RunBuilder(path)
    builder.rank().draw("wait 20 | forward 40 | backward 30 | optimizer 10", 40)
    end_ns = EPOCH_NS + round(job_s * S)
    builder.status(JobState.COMPLETED, started_ns=EPOCH_NS, ended_ns=end_ns, heartbeat_ns=end_ns)
    builder.write()
    (info,) = open_run(path).nodes().values()
    recording_end_ns = None if limit_s is None else EPOCH_NS + round(limit_s * S)
    info = msgspec.structs.replace(info, recording_end_ns=recording_end_ns)
    RunWriter(path, info.node).put_node(info)
    document = msgspec.json.decode((path / "run.json").read_bytes())
    document["options"]["cpu_profiling_duration_s"] = limit_s
    (path / "run.json").write_bytes(msgspec.json.encode(document))
    return Run(open_run(path))


def test_the_rest_of_the_job_is_neither_training_nor_finalization(tmp_path: Path) -> None:
    run = draw(tmp_path / "limited", limit_s=LIMIT_S)
    assert find_recording_end(run) == EPOCH_NS + LIMIT_S * S
    job = job_statistics(run)
    assert (job.initialization_ns, job.duration_ns) == (0, 10 * S)
    assert (job.training_ns, job.finalization_ns) == (None, None)
    assert report_cost(run).step_ns == diagnose(run).mean_step_ns
    unlimited = job_statistics(draw(tmp_path / "whole", limit_s=None))
    assert unlimited.training_ns is not None
    assert unlimited.finalization_ns == 10 * S - unlimited.training_ns


@pytest.mark.parametrize("limit_s", [None, 10, 11])
def test_a_limit_that_the_job_does_not_reach_changes_nothing(
    tmp_path: Path, limit_s: float | None
) -> None:
    run = draw(tmp_path / "run", limit_s=limit_s)
    assert find_recording_end(run) is None
    assert explain_recording_end(run) is None
    assert job_statistics(run).finalization_ns is not None
    assert not any("cpu-profiling-duration" in note for note in diagnose(run).notes)


def test_only_ranges_beyond_the_limit_are_incomplete(tmp_path: Path) -> None:
    run = draw(tmp_path / "run", limit_s=LIMIT_S)
    sentence = explain_recording_end(run)
    assert sentence is not None
    assert "only for the first 4 s of the job" in sentence
    assert explain_recording_end(run.within(0, LIMIT_S * S)) is None
    assert explain_recording_end(run.within(3 * S, LIMIT_S * S + 1)) == sentence
    assert explain_recording_end(run.within(6 * S, 7 * S)) == sentence


def test_a_running_job_shows_no_speed_after_the_limit(tmp_path: Path) -> None:
    unlimited = measure_pace(draw(tmp_path / "whole", limit_s=None))
    assert "40 steps" not in pace_text(unlimited)
    assert unlimited.steps_per_s == pytest.approx(10)
    limited = measure_pace(draw(tmp_path / "limited", limit_s=LIMIT_S))
    assert limited.steps_per_s is None
    assert pace_text(limited).startswith(f"recording ended at step {unlimited.step_count}")
