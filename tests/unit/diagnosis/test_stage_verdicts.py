"""Verdicts on jobs with pipeline stages: jobs with a known straggler, and published jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepscope.diagnosis import Verdict, diagnose
from stepscope.views.steps.ranks import show_ranks
from tests.support.imported_runs import REAL_TRACES, import_into
from tests.support.stage_jobs import Name, StageJob, play, write_parquet

JOB = StageJob(data_ranks=4, steps=8)
PUBLISHED = REAL_TRACES / "straggler_whatif"


def diagnose_job(
    directory: Path, job: StageJob, slow: object = None, noise: float = 0.02
) -> Verdict:
    times = job.draw_times(7, noise=noise) if slow is None else job.draw_times(7, slow=slow)
    write_parquet(play(job, times, delays_us=20).operations, directory / "job.parquet")
    return diagnose(import_into(directory / "run", directory / "job.parquet"))


def slow_worker(name: Name, step: int, data_rank: int) -> float:
    return 2.0 if (name[1], data_rank) == (2, 3) and "compute" in name[0] else 1.0


def slow_last_stage(name: Name, step: int, data_rank: int) -> float:
    return 1.6 if name[1] == 3 and "compute" in name[0] else 1.0


def slow_second_stage(name: Name, step: int, data_rank: int) -> float:
    return 1.6 if name[1] == 1 and "compute" in name[0] else 1.0


def uneven_inputs(name: Name, step: int, data_rank: int) -> float:
    long = (7 * name[2] + 5 * step + 3 * data_rank) % 8 == 0
    return (2.1 if long else 0.6) if "compute" in name[0] else 1.0


def slow_links(name: Name, step: int, data_rank: int) -> float:
    is_slow = (name[2] + step + data_rank) % 3 == 0
    return 40.0 if is_slow and name[0].endswith(("send", "recv")) else 1.0


@pytest.mark.parametrize(
    ("slow", "suspect", "cause", "headline"),
    [
        (slow_worker, "model", "slow_worker",
         "Cause: slow worker, rank 11 (data rank 3, stage 2)."),
        (slow_last_stage, "model", "last_stage", "Cause: last stage."),
        (slow_second_stage, "model", "slow_stage", "Cause: slow stage, stage 1."),
        (uneven_inputs, "model", "uneven_inputs", "Cause: uneven inputs."),
        (slow_links, "communication", "collectives", "Bottleneck: probably communication, "),
    ],
)  # fmt: skip
def test_the_cause_is_the_one_that_was_made(
    tmp_path: Path, slow: object, suspect: str, cause: str, headline: str
) -> None:
    verdict = diagnose_job(tmp_path, JOB, slow)
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    assert headline in verdict.headline
    assert verdict.fixes[0].prediction.saving_ratio == pytest.approx(verdict.share_ratio, abs=0.01)
    assert sum(verdict.phases.values()) == pytest.approx(1)


def test_the_view_of_ranks_leads_to_the_verdict(tmp_path: Path) -> None:
    write_parquet(play(JOB, JOB.draw_times(1)).operations, tmp_path / "job.parquet")
    payload = show_ranks(import_into(tmp_path / "run", tmp_path / "job.parquet"))
    assert "`stepscope diagnose RUN` replays to name a slow worker or stage" in payload.sentence


@pytest.mark.parametrize("chunks", [1, 2])
def test_an_even_job_names_no_one(tmp_path: Path, chunks: int) -> None:
    verdict = diagnose_job(tmp_path, replace(JOB, chunks=chunks))
    assert (verdict.suspect, verdict.cause) == ("healthy", "none")
    assert verdict.headline.startswith("No straggler found: steps take 1.0")
    assert verdict.fixes == []


def test_noise_has_no_single_cause(tmp_path: Path) -> None:
    verdict = diagnose_job(tmp_path, JOB, noise=0.4)
    assert verdict.cause == "uneven_ranks"
    assert "No single worker, stage or kind of operation explains half of it." in verdict.headline


def test_one_data_rank_cannot_tell_a_worker_from_a_stage(tmp_path: Path) -> None:
    verdict = diagnose_job(tmp_path, replace(JOB, data_ranks=1), slow_last_stage)
    assert verdict.cause == "last_stage"
    assert any("a slow worker and a stage with more work look alike" in n for n in verdict.notes)


def test_operations_that_cannot_be_replayed_have_no_verdict(tmp_path: Path) -> None:
    job = replace(JOB, steps=1)
    operations = play(job, job.draw_times(1)).operations
    write_parquet(operations.take(operations.stage != 1), tmp_path / "job.parquet")
    verdict = diagnose(import_into(tmp_path / "run", tmp_path / "job.parquet"))
    assert verdict.suspect == "insufficient_evidence"
    assert "cannot be replayed: stage 1 has no forward-compute." in verdict.headline


def test_notes_say_what_is_missing(tmp_path: Path) -> None:
    operations = play(JOB, JOB.draw_times(1)).operations
    present = np.random.default_rng(1).random(len(operations)) > 0.01
    write_parquet(operations.take(present), tmp_path / "job.parquet")
    verdict = diagnose(import_into(tmp_path / "run", tmp_path / "job.parquet"))
    assert any("of the times of operations are missing" in note for note in verdict.notes)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="../shared/traces/straggler_whatif is not here")
@pytest.mark.parametrize(
    ("job", "cause", "words"), [("AR", "slow_worker", "worker"), ("ST", "last_stage", "last stage")]
)
def test_published_slowdowns_are_reproduced(
    tmp_path: Path, job: str, cause: str, words: str
) -> None:
    """S, M_W and M_S as published with the traces."""
    verdict = diagnose(import_into(tmp_path / "run", PUBLISHED / f"trace-{job}.parquet"))
    published = {
        name: json.loads((PUBLISHED / f"{file}-{job}.json").read_text())[name]
        for name, file in (("blocking_slowdown", "result"), ("Mw", "mw"), ("Ms", "ms"))
    }
    values = {
        name: next(item.value for item in verdict.evidence if text in item.text)
        for name, text in (
            ("blocking_slowdown", "a slowdown S of"),
            ("Mw", "(M_W "),
            ("Ms", "(M_S "),
        )
    }
    assert values["blocking_slowdown"] == pytest.approx(published["blocking_slowdown"], rel=1e-4)
    assert values["Mw"] == pytest.approx(published["Mw"], abs=1e-4)
    assert values["Ms"] == pytest.approx(published["Ms"], abs=1e-4)
    assert verdict.cause == cause
    assert f"Cause: {'slow ' if words == 'worker' else ''}{words}" in verdict.headline
