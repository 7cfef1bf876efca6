"""Payloads of the views of drawn runs, and their JSON. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stepscope.analysis import PHASES
from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.schema import METRIC_TYPES, JobState
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import VIEWS
from stepscope.views.job.overview import show_overview
from stepscope.views.steps.input_pipeline import NO_BATCHES, show_input_pipeline
from stepscope.views.steps.steps import show_steps
from stepscope.views.system import show_system
from tests.support.kineto_files import BASE_NS, trace, training

MS = 1_000_000
CODE = {
    "decode": "fetch > Rows.__getitem__ > read_table@pyarrow/parquet/core.py",
    "mask": "fetch > Rows.__getitem__ > Mask.__call__",
    "collate": "fetch > collate_rows",
}
STEP = "wait=0 60 | forward 12 | backward 20 | optimizer 8"


def full(path: Path) -> RunBuilder:
    """Two ranks with workers, evaluation, a window, metrics."""
    builder = RunBuilder(path, code=CODE, cores=4)
    for number in range(2):
        rank = builder.rank(number, workers=1, versions={"torch": "2.9"})
        rank.draw(STEP, 50).draw(f"window ( {STEP} | {STEP} )").evaluation(4, "wait 5 | predict 10")
        rank.draw(STEP, 47).draw("wait=0 500 | forward 12 | backward 20 | optimizer 8")
        rank.workers[0].draw(
            "fetch 100 ( samples ( do:decode 60 | do:mask 30 ) | transform:Mask=30 "
            "| collate ( do:collate 10 ) )",
            90,
        )
    builder.metric("gpu_busy_ratio", lambda s: 0.2 if s < 5 else 0.6, device="0")
    builder.metric("gpu_busy_ratio", 0.1, device="1").metric("cpu_busy_ratio", 0.75)
    builder.metric("memory_used_bytes", 1 << 30).metric("missed_samples", 0)
    builder.metric("outside_cpu_cores", 0).metric("job_cpu_cores", 2)
    return builder


def only_marks(path: Path) -> RunBuilder:
    builder = RunBuilder(path)
    builder.rank().draw("do 10 | mark", 30)
    return builder


def unmonitored(path: Path) -> RunBuilder:
    builder = RunBuilder(path)
    builder.rank().draw("wait 5 | h2d 5", 30)
    return builder


@pytest.fixture
def run(drawn_once: Callable[..., Run]) -> Run:
    return drawn_once(full)


@pytest.mark.parametrize("draw", [full, only_marks, unmonitored, RunBuilder])
def test_json_and_back(drawn_once: Callable[..., Run], draw: type[RunBuilder]) -> None:
    for name, view in VIEWS.items():
        if not view.needs:
            payload = view(drawn_once(draw))
            encoded = msgspec.json.encode(payload)
            assert msgspec.json.decode(encoded, type=type(payload)) == payload, name


@pytest.mark.seed("DBI-02")
def test_overview(run: Run) -> None:
    payload = show_overview(run)
    assert (payload.run_id, payload.command, payload.rank_count) == (
        "drawn",
        ["python", "train.py"],
        2,
    )
    assert payload.versions == {"stepscope": "0", "torch": "2.9"}
    (node,) = payload.nodes
    assert (node.state, node.exit_code) == (JobState.COMPLETED, 0)
    assert node.cpu_busy_ratio == pytest.approx(0.75)
    total = run.metrics["n0"].series("gpu_busy_ratio", "0")
    assert node.gpu_busy_ratio == pytest.approx((total.mean() + 0.1) / 2)
    assert payload.verdict == diagnose(run)


@pytest.mark.parametrize(
    ("state", "lost"), [(JobState.IN_PROGRESS, True), (JobState.FAILED, False)]
)
def test_a_monitor_that_fell_silent(tmp_path: Path, state: JobState, lost: bool) -> None:
    builder = RunBuilder(tmp_path / "run").status(state, heartbeat_ns=EPOCH_NS)
    (node,) = show_overview(builder.open()).nodes
    assert (node.state, node.monitor_lost) == (state, lost)


def test_without_gpus_their_use_is_unknown_not_zero(drawn_once: Callable[..., Run]) -> None:
    (node,) = show_overview(drawn_once(only_marks)).nodes
    assert node.gpu_busy_ratio is None
    assert node.cpu_busy_ratio is None


def test_steps(run: Run) -> None:
    payload = show_steps(run)
    assert [rank.rank for rank in payload.ranks] == ["rank 0", "rank 1"]
    rank = payload.ranks[0]
    assert (rank.source, rank.step_count, rank.profiled_count) == ("optimizer", 100, 2)
    assert rank.measured_count == 100 - 10 - 2
    assert rank.fetches_per_step == 1
    assert rank.evaluation_ns == (1 + 4 * 15 + 1) * MS
    assert rank.step_ns is not None
    assert rank.step_ns.p50 == 100 * MS
    assert rank.step_ns.maximum == 540 * MS
    assert rank.step_ns.mean == pytest.approx((87 * 100 + 540) / 88 * MS)
    assert rank.outlier_steps == [99]
    assert [phase.name for phase in rank.phases] == list(PHASES)
    assert sum(phase.share_ratio for phase in rank.phases) == pytest.approx(1)
    waiting = rank.phases[0]
    assert (waiting.p50_ns, waiting.mean_ns) == (60 * MS, pytest.approx((87 * 60 + 500) / 88 * MS))


def test_marked_steps(drawn_once: Callable[..., Run]) -> None:
    (rank,) = show_steps(drawn_once(only_marks)).ranks
    assert (rank.rank, rank.source, rank.step_count) == ("trainer", "marked", 29)
    assert rank.outlier_steps == []
    assert {phase.name: phase.share_ratio for phase in rank.phases}["other"] == 1


@pytest.mark.seed("DIAG-03")
def test_input_pipeline(run: Run) -> None:
    rank = show_input_pipeline(run).ranks[0]
    assert rank.loader is not None
    assert rank.loader["num_workers"] == 1
    assert rank.cores_available == 4
    waiting, making = rank.waiting, rank.making
    assert waiting.share_ratio == pytest.approx((87 * 60 + 500) / (87 * 100 + 540))
    parts = waiting.starting_ratio + waiting.handing_over_ratio + waiting.making_ratio
    assert parts == pytest.approx(waiting.share_ratio)
    assert waiting.starved_ratio == 1
    assert making is not None
    assert (making.mean_ns, making.stack_sample_count) == (100 * MS, 100 * making.batch_count)
    stages = {stage.name: stage for stage in making.stages}
    assert {name: stage.of_making_ratio for name, stage in stages.items()} == pytest.approx(
        {"decoding": 0.6, "augmentation": 0.3, "collating": 0.1}
    )
    assert stages["decoding"].of_step_ratio == pytest.approx(0.6 * waiting.making_ratio)
    assert making.transforms == pytest.approx({"Mask": 0.3})
    assert making.worker_busy_ratio == pytest.approx(0.99, abs=0.02)


@pytest.mark.seed("DBI-02")
def test_system(run: Run) -> None:
    (node,) = show_system(run).nodes
    assert (node.cores_available, node.missed_sample_count) == (4, 0)
    assert node.sample_count == len(run.metrics["n0"].series("memory_used_bytes"))
    shown = {(metric.metric, metric.device): metric for metric in node.metrics}
    assert ("missed_samples", "") not in shown
    gpu = shown["gpu_busy_ratio", "0"]
    assert (gpu.unit, gpu.doc) == ("ratio", METRIC_TYPES["gpu_busy_ratio"].doc)
    assert gpu.statistics is not None
    assert (gpu.statistics.minimum, gpu.statistics.maximum) == (0.2, 0.6)


def test_what_cannot_be_shown_says_why(drawn_once: Callable[..., Run]) -> None:
    run = drawn_once(unmonitored)
    advice = "no complete training step was recorded: mark each with `stepscope.step()`"
    assert show_steps(run).missing == advice
    assert show_input_pipeline(run).missing == advice
    (rank,) = show_input_pipeline(drawn_once(only_marks)).ranks
    assert rank.missing == NO_BATCHES


def test_a_run_of_recordings_that_show_no_work_has_no_verdict(imported: Callable[..., Run]) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
    payload = show_overview(
        imported(rank3=[{**event, "ts": 5, "dur": 7}, {**event, "ts": 20, "dur": 1}])
    )
    (recording,) = payload.recordings
    assert (recording.name, recording.rank, recording.event_count) == ("rank3.json", 3, 2)
    assert (recording.start_ns, recording.duration_ns) == (5_000, 16_000)
    assert payload.verdict.suspect == "insufficient_evidence"
    assert "neither device work nor operators that compute" in payload.verdict.headline
    assert payload.started_ns is None  # the file states no clock base


def test_a_recording_starts_when_it_was_recorded(imported: Callable[..., Run]) -> None:
    """And not when it was imported."""
    payload = show_overview(imported(trace=trace(*training())))
    assert payload.started_ns == BASE_NS
    assert payload.created_ns > BASE_NS
