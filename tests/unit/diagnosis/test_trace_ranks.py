"""Verdicts on drawn traces of several ranks: waits for the slowest, and their collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.diagnosis import diagnose, report_late_traces
from stepscope.quantities import percent
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing.traces import TraceJob
from stepscope.views import VIEWS
from tests.support.drawn_verdicts import GEMM, STEPS, compute, draw_steps, judge
from tests.support.imported_runs import import_into


def slow_rank(job: TraceJob, extra: float, longest: float) -> None:
    """Compute longer than the other ranks; the exchange ends at the same time on all of them."""
    with job.range("DistributedDataParallel.forward"):
        compute(job, 20_000 + extra)
    job.collective("AllReduce", 1_000 + longest - extra)
    job.join()


@pytest.mark.parametrize(
    ("now", "first", "suspect"),
    [
        (0, 0, "model"),
        (10**7, 0, "model"),
        (10**7, 20, "insufficient_evidence"),
        (10**8, 0, "insufficient_evidence"),
    ],
)
def test_ranks_recorded_at_different_times(
    tmp_path: Path, now: int, first: int, suspect: str
) -> None:
    """Rank 0 waits 15 ms of 36 for rank 1, unless they share neither time nor steps, or numbers of
    steps at times that are further apart than clocks differ."""
    jobs = [
        draw_steps(
            lambda job, extra: slow_rank(job, extra, 15_000),
            15_000 * rank,
            rank=rank,
            world_size=2,
            now=now * rank,
            _step=first * rank,
        )
        for rank in range(2)
    ]
    verdict = judge(tmp_path, *jobs)
    assert verdict.suspect == suspect
    run = Run(open_run(tmp_path / "run"))
    (window,) = VIEWS["distributed"](run).windows
    assert [rank.matched_count for rank in window.ranks] == [STEPS * (suspect == "model")] * 2
    assert bool(verdict.doubts) == (suspect != "model")
    if suspect != "model":
        apart = (
            "up to 100 s apart, although they share step numbers"
            if not first
            else ("at different times and share no step")
        )
        assert f"were recorded {apart} (rank 0; rank 1)" in verdict.doubts[0]
        assert "Rank 0 alone: exposed communication takes 4" in verdict.notes[0]


@pytest.mark.parametrize("form", ["numbers", "other numbers", "no ranks", "windows"])
def test_a_straggler_is_one_however_the_ranks_are_matched(tmp_path: Path, form: str) -> None:
    """Rank 0 waits 15 ms of 36 for rank 1. Their steps have equal numbers, or others, or the traces
    state no rank, or only rank 0 has an earlier window, too."""

    def draw(extra: float, **more: Any) -> TraceJob:
        more = {"now": 10**7} | more
        return draw_steps(lambda job, extra: slow_rank(job, extra, 15_000), extra, **more)

    ranks: list[dict[str, int]] = [{"rank": n, "world_size": 2} for n in range(2)]
    if form == "no ranks":
        ranks = [{}, {}]
    if form == "other numbers":
        ranks[1]["_step"] = 100
    jobs = {"w_1.2": draw(0, **ranks[0]), "w_2.2": draw(15_000, **ranks[1])}
    if form == "windows":
        jobs["w_1.1"] = draw(0, now=0, _step=20, **ranks[0])
    files = [tmp_path / f"{name}000000000000.pt.trace.json" for name in jobs]
    for file, job in zip(files, jobs.values(), strict=True):
        file.write_bytes(job.encode())
    run = import_into(tmp_path / "run", *files)
    verdict = diagnose(run)
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")
    assert verdict.stages[0].name == ("rank 1" if form != "no ranks" else "w_2")
    assert verdict.evidence[1].value == pytest.approx(15e6, rel=0.02)
    note = {"other numbers": "number their steps differently", "no ranks": "do not state their"}
    assert any(note.get(form, "steps are compared by time") in n for n in verdict.notes) == (
        form in note
    )
    waits = [[rank.waiting_ns for rank in w.ranks] for w in VIEWS["distributed"](run).windows]
    assert waits[-1] == pytest.approx([STEPS * 15e6, 0], rel=0.1)
    assert waits[:-1] == [[None]] * (form == "windows")
    if form != "no ranks":
        assert "Rank 1 is late in 6 of 6 steps" in report_late_traces(run).sentence


def test_a_slow_rank_is_the_model_s(tmp_path: Path) -> None:
    """Three ranks wait 15 ms of 36 for the fourth."""
    jobs = [
        draw_steps(
            lambda job, extra: slow_rank(job, extra, 15_000),
            15_000 if rank == 2 else 0,
            rank=rank,
            world_size=4,
        )
        for rank in range(4)
    ]
    verdict = judge(tmp_path, *jobs)
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")
    assert verdict.stages[0].name == "rank 2"


def test_the_share_of_waiting_for_a_slow_rank_is_explained(tmp_path: Path) -> None:
    """Python takes rank 1 16 ms of 37, for which rank 0 waits: 8 ms on the mean of both ranks."""

    def draw(job: TraceJob, extra: float) -> None:
        job.python(extra)
        compute(job)
        job.collective("AllReduce", 17_000 - extra)
        job.join()
        job.wait()

    jobs = [draw_steps(draw, 16_000 * rank, rank=rank, world_size=2) for rank in range(2)]
    verdict = judge(tmp_path, *jobs)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "straggler")
    alone, waiting = 8 / 37, 8 / 37
    assert verdict.share_ratio == pytest.approx(alone + waiting, abs=0.01)
    assert f"are {percent(alone)} on the ranks themselves and {percent(waiting)} of waiting" in (
        verdict.share_basis
    )
    assert f"would save {percent(verdict.stages[0].share_ratio)}, " in verdict.share_basis
    report = check_rules(open_run(tmp_path / "run"), choose_rules(("RankStraggler",)))
    assert report.fired == ["RankStraggler"]
    assert report.findings[0].evidence == ["steps"]  # there are no samples of the system


@pytest.mark.parametrize(
    ("issuer", "cause", "words"),
    [
        ("DistributedDataParallel.forward", "gradient_exchange", "model.no_sync()"),
        ("FSDP::pre_forward (0)", "collectives", "reshard_after_forward"),
        ("my range", "collectives", "async_op=True"),
    ],
)
def test_the_fix_of_collectives_fits_their_issuer(
    tmp_path: Path, issuer: str, cause: str, words: str
) -> None:
    def draw(job: TraceJob, _: float) -> None:
        with job.range(issuer):
            compute(job)
        job.collective("AllReduce", 20_000)
        job.join()

    verdict = judge(tmp_path, draw_steps(draw, 1.0))
    assert (verdict.suspect, verdict.cause) == ("communication", cause)
    assert words in verdict.fixes[0].instructions


def test_waiting_for_a_rank_is_limited_by_its_excess(tmp_path: Path) -> None:
    """Rank 0 waits 400 ms in one step, and rank 1 has 8 us more to do per step."""
    jobs = []
    for rank in range(2):
        job = TraceJob(rank=rank, world_size=2)
        for number in range(6):
            with job.step():
                for _ in range(10):
                    job.operator("aten::mm", 20 + 0.4 * rank, kernel=(GEMM, 2_000 + rank))
                job.collective("AllReduce", 400_000 if number == 2 and not rank else 500)
                job.join()
        jobs.append(job)
    verdict = judge(tmp_path, *jobs)
    assert verdict.cause != "straggler"
    assert all(fix.prediction is None or fix.prediction.step_ns >= 0 for fix in verdict.fixes)


@pytest.mark.parametrize(
    ("backend", "kernel", "suspect"),
    [
        ("cuda:zccl", "zcclKernel_RingAR_f32", "communication"),
        ("zork", "zorkKernel_RingAR_f32", "insufficient_evidence"),
        ("zork", "ncclDevKernel_AllReduce", "communication"),
    ],
)
def test_collectives_of_a_library_of_the_backend(
    tmp_path: Path, backend: str, kernel: str, suspect: str
) -> None:
    """The name of the library is that of its kernels; without any collective of several ranks,
    nothing is known to be computation."""

    def draw(job: TraceJob, severity: float) -> None:
        compute(job, 10_000)
        job.operator("aten::mm", 20, kernel=(kernel, 10_000))
        job.wait()

    job = draw_steps(draw, 1.0, rank=0, world_size=2)
    content = msgspec.json.decode(job.encode())
    content["distributedInfo"]["backend"] = backend
    path = tmp_path / "0.json"
    path.write_bytes(msgspec.json.encode(content))
    verdict = diagnose(import_into(tmp_path / "run", path))
    assert verdict.suspect == suspect
    sentence = (
        "The job has 2 ranks (backend zork), and no collective was found in its traces: what "
        "counts as computation may be communication."
    )
    assert verdict.doubts == [sentence] * (suspect == "insufficient_evidence")


@pytest.mark.parametrize(
    ("rank", "operator", "suspect"),
    [
        ({}, "aten::mm", "healthy"),
        ({"rank": 0, "world_size": 1}, "aten::mm", "healthy"),
        ({"rank": 0, "world_size": 2}, "aten::mm", "communication"),
        ({}, "c10d::alltoall_", "communication"),
    ],
)
def test_a_kernel_with_the_word_of_a_collective(
    tmp_path: Path, rank: dict[str, int], operator: str, suspect: str
) -> None:
    """Half of the work of a process is such a kernel: it communicates if there are other ranks."""

    def draw(job: TraceJob, severity: float) -> None:
        compute(job, 10_000)
        job.operator(operator, 20, kernel=("my_all_to_all_transpose_kernel", 10_000))
        job.wait()

    verdict = judge(tmp_path, draw_steps(draw, 1.0, **rank))
    assert verdict.suspect == suspect
    (trace,) = VIEWS["activity"](Run(open_run(tmp_path / "run"))).traces
    counts = {activity.kind: activity.count for activity in trace.activities}
    assert counts["communication"] == STEPS * (suspect == "communication")
