"""The view `job-time`: a restarted job, an old run, a job that runs, a trace. Times in ms."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from stepscope.cli.writers.verdict_screen import write_screen
from stepscope.diagnosis import diagnose
from stepscope.run import Run, read_job_time
from stepscope.schema import JobState
from stepscope.testing import RunBuilder
from stepscope.testing.drawing import MS
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.job.job_time import JobTimeView, show_job_time
from stepscope.views.profiling_report import choose_report_rules, make_report
from stepscope.views.profiling_report.blocks import Table
from tests.support.drawn_trace import event
from tests.support.printed import print_text

STEP = "forward 10 | backward 20 | optimizer 10"
CODE = {
    "torch": "<module> > import@python:importlib/_bootstrap.py > <module>@torch/__init__.py",
    "load": "main > load_state",
    "upload": "main > upload > send # bucket.put(part)",
}
Imported = Callable[..., Run]


def draw_restart(
    path: Path, *, saves: str = "save:last.pt 4", loads: str = "load:last.pt 6"
) -> Run:
    """Draw a job of two ranks that is killed 13 steps after its checkpoint, and comes back."""
    builder = RunBuilder(path, code=CODE)
    for number in range(2):
        rank = builder.rank(number, world_size=2, launched_ns=EPOCH_NS, ready_ns=EPOCH_NS + 10 * MS)
        rank.pause(2 * number)  # its last step before the save ends after that has begun
        rank.draw("do 10 | do:torch 190").draw(STEP, 30).draw(saves or "do 4").draw(STEP, 13)
        rank.draw("do 500" if number else "do 3")  # the other rank waits for the one that died
    again = EPOCH_NS + 2_700 * MS
    for number in range(2):
        rank = builder.rank(
            number, world_size=2, incarnation=2, launched_ns=again, ready_ns=again + 10 * MS
        )
        rank.pause(2_700).draw("do 10 | do:torch 190 | do:load 50").draw(loads or "do 6")
        rank.draw(STEP, 20)
    return builder.open()


def class_ms(payload: JobTimeView) -> dict[str, float]:
    return {one.key: round(one.time_ns / MS, 2) for one in payload.classes}


def test_a_restarted_job(tmp_path: Path) -> None:
    run = draw_restart(tmp_path / "run")
    payload = show_job_time(run)
    died_ms = 200 + 43 * 40 + 4
    assert payload.duration_ns == (2_700 + 256 + 20 * 40) * MS
    assert class_ms(payload) == pytest.approx(
        {
            "launch": 20,
            "importing": 2 * 190,
            "preparing": 50,
            "steps": (30 + 20) * 40,
            "checkpoints": 4 + 6,
            "down": 2_700 - died_ms,
            "repeated": 13 * 40,
        },
        abs=3,  # the killed rank has records for so long after its last step
    )
    (restart,) = payload.restarts
    assert restart.died_ns == pytest.approx(died_ms * MS, abs=3 * MS)
    assert restart.notice_ns == pytest.approx((2_700 - died_ms) * MS, abs=3 * MS)
    assert (restart.return_ns, restart.steps_lost) == (256 * MS, 13)
    assert payload.steps_lost == 13
    report = make_report(run, choose_report_rules(["MaxInitializationTime"]))
    (section,) = [one for one in report.sections if one.id == "job-time"]
    tables = {one.title: one.rows for one in section.blocks if isinstance(one, Table)}
    (row,) = tables["Restarts"]
    times_s = [restart.died_ns / 1e9, restart.notice_ns / 1e9, 0.256]
    assert row == pytest.approx([2, *times_s, 13], rel=1e-5)
    assert payload.first_step_ns == 200 * MS
    assert payload.goodput_ratio == pytest.approx(2_000 / 3_756, abs=1e-6)
    for rank in payload.ranks:
        assert sum(rank.class_ns.values()) == payload.duration_ns
        assert sum(piece.duration_ns for piece in rank.intervals) == payload.duration_ns
    text = print_text(payload)
    assert "13 steps lost" in text
    assert "torch 380 ms" in text


@pytest.mark.parametrize(
    ("saves", "loads", "lost"),
    [
        ("", "", 43),
        ("save:last.pt 4", "", None),
        ("save:last.pt 4", "load:pretrained.pt 6", None),
        ("", "load:pretrained.pt 6", 43),
    ],
)
def test_steps_are_lost_as_far_as_the_checkpoint_tells(
    tmp_path: Path, saves: str, loads: str, lost: int | None
) -> None:
    assert (
        read_job_time(draw_restart(tmp_path / "run", saves=saves, loads=loads)).steps_lost == lost
    )


def test_programs_before_and_after_the_training_belong_to_its_rank(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", code=CODE)

    def add(start_ms: int, text: str, *, role: str = "program") -> None:
        launched_ns = EPOCH_NS + start_ms * MS
        process = builder.rank(launched_ns=launched_ns, ready_ns=launched_ns)
        process.info = replace(process.info, role=role)
        process.pause(start_ms).draw(text)

    add(100, "do:load 300")
    add(500, f"do:torch 100 | {' | '.join([STEP] * 30)}", role="main")
    add(1_900, "do:upload 200")
    payload = show_job_time(builder.open())
    expected = {"launch": 200, "importing": 100, "preparing": 300, "steps": 1_200, "finishing": 300}
    assert class_ms(payload) == pytest.approx(expected, abs=1)  # a sampling period
    functions = {one.key: [f.function for f in one.functions] for one in payload.classes}
    assert (functions["preparing"], functions["finishing"]) == (["load_state"], ["upload"])


def test_a_job_of_another_library_is_work_of_its_script(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", code=CODE)
    process = builder.rank(launched_ns=EPOCH_NS, ready_ns=EPOCH_NS)
    process.info = replace(process.info, role="program")
    process.draw("do:load 3000")
    run = builder.open()
    titles = {one.key: one.title for one in show_job_time(run).classes}
    assert titles["preparing"] == "work of the script"
    verdict = diagnose(run)
    assert verdict.headline == (
        "No verdict: no training step was recorded: nothing trained with PyTorch, TensorFlow, "
        "Keras, JAX or XGBoost; mark the steps of another library's loop with stepscope.step()."
    )
    out = io.StringIO()
    write_screen(Console(file=out, width=100), verdict, "/runs/a")
    assert "% (load_state train.py" in out.getvalue()


def test_an_old_run_tells_what_it_knows(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", code=CODE)
    builder.rank(started_ns=EPOCH_NS + 300 * MS).pause(400).draw(STEP, 30).draw("do:upload 90")
    payload = show_job_time(builder.open())
    assert class_ms(payload) == {"steps": 1_200, "finishing": 90, "not_seen": 400}
    assert payload.not_seen == [
        "no stack samples were recorded before the first step of the trainer, so that imports and "
        "preparation are unknown"
    ]
    (upload,) = next(one for one in payload.classes if one.key == "finishing").functions
    assert (upload.function, upload.is_user) == ("upload", True)


def test_a_job_that_runs_lasts_to_its_last_record(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", code=CODE)
    builder.rank(launched_ns=EPOCH_NS, ready_ns=EPOCH_NS).draw("do:torch 100").draw(STEP, 30)
    heartbeat_ns = builder.end_ns + 5_000 * MS
    builder.status(JobState.IN_PROGRESS, heartbeat_ns=heartbeat_ns)
    payload = show_job_time(builder.open())
    assert not payload.is_final
    assert class_ms(payload) == {"importing": 100, "steps": 1_200}
    assert "1.3 s so far" in print_text(payload)


def test_a_trace_holds_no_job(imported: Imported) -> None:
    payload = show_job_time(imported(one=[event("cpu_op", "aten::mm", 0, 10)]))
    assert payload.classes == []
    assert "a trace holds no job: it shows a few steps" in print_text(payload)
