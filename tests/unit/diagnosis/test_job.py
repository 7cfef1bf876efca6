"""Account of a whole job, against times that are added up by hand. Seconds."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope import analysis
from stepscope.analysis import ClassFunction
from stepscope.diagnosis import diagnose
from stepscope.diagnosis.job import _Account, _save_in_job
from stepscope.diagnosis.job_account import JobAccount, JobFix
from stepscope.diagnosis.job_measures import measure_compilation
from stepscope.diagnosis.verdict import LOOP_SHARE, STEP_SHARE, Fix, Prediction
from stepscope.run import JobTime, RankJobTime, RestartTime, Run, read_job_time
from stepscope.testing import RunBuilder

S = 1_000_000_000
STEPS = 100
STEP = "wait 1 | save 50 | do 1200 | forward:Net=32 20 | backward 15 | optimizer 5"
TEST = "evaluate:Net=128 5"


def function(
    name: str,
    seconds: float,
    line: int = 3,
    file: str = "/job/train.py",
    total: float | None = None,
) -> ClassFunction:
    time_ns = round(seconds * S)
    return ClassFunction(
        function=name,
        file=file,
        line=line,
        text="",
        is_line=False,
        is_user=bool(file),
        time_ns=time_ns,
        total_ns=time_ns if total is None else round(total * S),
    )


def job_time(
    classes: dict[str, float],
    functions: dict[str, list[ClassFunction]],
    restarts: int = 0,
    ranks: int = 1,
    first_step: int | None = None,
) -> JobTime:
    """Make the time of a job whose ranks all spend these seconds by class, one after the other,
    checkpoints first.

    Args:
        first_step: seconds until the first step; None where that is unknown.
    """
    totals = dict.fromkeys(analysis.JOB_CLASSES, 0)
    totals |= {key: round(seconds * S) for key, seconds in classes.items()}
    order = sorted(totals, key=lambda key: key != "checkpoints")
    edges = np.concatenate([[0], np.cumsum([totals[key] for key in order])])
    codes = np.array([analysis.JOB_CLASSES.index(key) for key in order], dtype=np.int8)
    rank = RankJobTime(
        rank=0,
        name="rank 0",
        node="node",
        division=analysis.Division(edges=edges, classes=codes),
        totals=totals,
        functions=functions,
        reasons=[],
    )
    restart = RestartTime(
        incarnation=2, died_ns=0, launched_ns=0, first_step_ns=None, steps_lost=None
    )
    return JobTime(
        start_ns=0,
        end_ns=int(edges[-1]),
        ranks=[rank] * ranks,
        functions=functions,
        first_step_ns=None if first_step is None else first_step * S,
        restarts=[restart] * restarts,
        device_busy_ratio=0.8,
        is_final=True,
        totals={key: ranks * time_ns for key, time_ns in totals.items()},
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(versions={"torch": "2.13.0"}).draw(f"{STEP} | {TEST}", STEPS)
    return builder.open()


def account(run: Run, time: JobTime, planned: int | None = None) -> JobAccount:
    return _Account.of(run, time, planned).build()


def fix_of(job: JobAccount, words: str) -> JobFix:
    (fix,) = [fix for fix in job.fixes if words in fix.title]
    return fix


WHOLE = {
    "importing": 5.0,
    "preparing": 8.0,
    "steps": 17.0,
    "evaluation": 12.0,
    "checkpoints": 5.0,
    "finishing": 2.0,
}
FUNCTIONS = {
    "importing": [function("numpy", 2.5, 0, ""), function("torch", 2.0, file="", total=4.5)],
    "preparing": [function("read_index", 8.0, line=22)],
    "evaluation": [function("validate", 12.0, line=37)],
    "checkpoints": [function("save", 5.0, line=44)],
    "finishing": [function("export_report", 2.0, line=49)],
}


def test_a_job_that_is_less_than_half_steps(run: Run) -> None:
    job = account(run, job_time(WHOLE, FUNCTIONS))
    assert job.is_first
    assert job.headline == (
        "Of 49 s, 17 s are steps. 13 s pass before the first: read_index (train.py:22) 8 s, "
        "importing torch 4.5 s. Evaluation takes 12 s: validate (train.py:37)."
    )
    assert sum(part.time_ns for part in job.parts) == job.duration_ns
    assert job.goodput_ratio == pytest.approx(17 / 49)
    savings = {
        "Keep what read_index prepares": 8,
        "Evaluate half": 6,
        "Save beside": 5,
        "Do the work of export_report": 2,
    }
    assert {words: fix_of(job, words).saving_ns / S for words in savings} == savings
    # The training itself needs torch.
    assert len(job.fixes) == len(savings)
    assert fix_of(job, "Evaluate").saving_ratio == pytest.approx(6 / 49)
    # A verdict with these causes has fixes for them itself.
    rest = job.omit_fixes({"evaluation", "checkpoint"}).fixes
    assert {fix.title for fix in job.fixes} - {fix.title for fix in rest} == {
        fix_of(job, "Evaluate half").title,
        fix_of(job, "Save beside").title,
    }


def test_functions_of_classes_without_a_fix_of_their_own_have_one(run: Run) -> None:
    """Code of the script alone: the work of a library between the steps has no fix."""
    classes = {"preparing": 8.0, "steps": 9.0, "between_epochs": 3.0, "finishing": 4.0}
    functions = {
        "preparing": [function("<module>", 7.0, line=49)],
        "between_steps": [replace(function("stop", 2.0), is_user=False)],
        "between_epochs": [function("draw", 3.0, line=5)],
        "finishing": [function("test", 4.0, line=9)],
    }
    time = job_time(classes | {"between_steps": 2.0}, functions)
    job = account(run, replace(time, device_busy_ratio=None))
    assert "8 s pass before the first: train.py:49 7 s." in job.headline
    assert {fix.title: fix.saving_ratio for fix in job.fixes} == {
        "Shorten the preparation before the first step, train.py:49": pytest.approx(7 / 26),
        "Shorten the work after the last step, test (train.py:9)": pytest.approx(4 / 26),
        "Shorten the work between the epochs, draw (train.py:5)": pytest.approx(3 / 26),
    }


@pytest.mark.parametrize(("share_of", "denominator_s"), [(STEP_SHARE, 21), (LOOP_SHARE, 27)])
def test_a_fix_of_the_step_saves_its_share_of_what_is_between_steps(
    run: Run, share_of: str, denominator_s: int
) -> None:
    """Saves and evaluations before the first step, and after the last one, are not part of it."""
    pieces = [("checkpoints", 3), ("evaluation", 2), ("warm_up", 5), ("steps", 9)]
    pieces += [
        ("checkpoints", 4),
        ("evaluation", 6),
        ("steps", 8),
        ("checkpoints", 5),
        ("evaluation", 13),
    ]
    classes = {key: sum(time for name, time in pieces if name == key) for key, _ in pieces}
    time = job_time(classes, {})
    edges = np.cumsum([0, *(time * S for _, time in pieces)])
    codes = np.array([analysis.JOB_CLASSES.index(key) for key, _ in pieces], dtype=np.int8)
    time.ranks[0] = replace(time.ranks[0], division=analysis.Division(edges=edges, classes=codes))
    half = Prediction(
        step_ns=5, measured_ns=10, saving_ratio=0.5, share_of=share_of, condition="", text=""
    )
    fix = _save_in_job(
        time, account(run, time), Fix(title="", instructions="", why="", prediction=half), 1, {}
    )
    assert fix.job_saving_ratio == pytest.approx(0.5 * denominator_s / 55)
    # Upper bounds have more outside of the steps.
    beside_ns = {"warm_up": 4 * S, "evaluation": 7 * S}
    for cause, seconds in (("", 0), ("recompilation", 4), ("slow_decode", 7)):
        bound = replace(fix, prediction=replace(half, cause=cause, is_bound=True))
        saved = _save_in_job(time, account(run, time), bound, 1, beside_ns)
        assert saved.job_saving_ratio == pytest.approx((0.5 * denominator_s + seconds) / 55)


def test_recompilation_in_the_first_steps_is_saved_as_well(tmp_path: Path) -> None:
    """The first step compiles for 900 ms, the second one recompiles for 740 ms, later ones for 40:
    the first two take 1,640 ms longer than others."""
    run = RunBuilder(tmp_path)
    rank = run.rank().draw("forward 920 ( compile=0 900 ) | optimizer 80")
    rank.draw("forward 760 ( compile=1 740 ) | optimizer 80")
    rank.draw("forward 60 ( compile=1 40 ) | optimizer 40", 58)
    opened = run.open()
    time = read_job_time(opened)
    again_ns = measure_compilation(opened, time, again=True)
    assert again_ns == 740e6
    assert measure_compilation(opened, time) == 900e6 + again_ns
    (fix, *_) = diagnose(opened).fixes
    assert fix.prediction is not None
    assert fix.prediction.saving_ratio == pytest.approx(0.4)
    saved_ns = 0.4 * 60 * 100e6 + again_ns
    assert fix.job_saving_ratio == pytest.approx(saved_ns / time.duration_ns)


def test_a_trial_of_a_long_job_is_judged_at_its_length(run: Run) -> None:
    """A hundred times the steps: what happens once stays 15 s, all else grows."""
    job = account(run, job_time(WHOLE | {"evaluation": 10}, FUNCTIONS), planned=100 * STEPS)
    assert job.planned_ns is not None
    assert job.planned_ns / S == pytest.approx(15 + 100 * 32)
    assert not job.is_first
    assert [fix.title.split()[0] for fix in job.fixes] == ["Evaluate", "Save"]
    assert fix_of(job, "Evaluate").saving_ns / S == pytest.approx(500)
    assert "With 10,000 steps, 53% of about 53 min 35 s would be." in job.headline


@pytest.mark.parametrize("planned", [None, STEPS, 1])
def test_a_job_of_its_planned_length_is_no_trial(run: Run, planned: int | None) -> None:
    assert account(run, job_time(WHOLE, FUNCTIONS), planned).planned_ns is None


def test_times_are_means_over_ranks(run: Run) -> None:
    job = account(run, job_time(WHOLE, FUNCTIONS, ranks=4))
    assert {part.key: part.time_ns / S for part in job.parts} == WHOLE
    assert job.parts[1].functions[0].time_ns / S == 2  # the sum over four ranks is 8 s


def test_the_interval_between_checkpoints_follows_the_failures(run: Run) -> None:
    """Young: sqrt(2 x 0.05 s x 49 s / 2), with 100 checkpoints in 5 s."""
    job = account(run, job_time(WHOLE, FUNCTIONS, restarts=2))
    best_s = math.sqrt(2 * 0.05 * 49 / 2)
    assert f"one every {best_s:.2f} s costs least (Young)" in fix_of(job, "Save").instructions


def test_a_restart_costs_the_time_until_the_job_runs_again(run: Run) -> None:
    job = account(run, job_time(WHOLE | {"down": 6}, FUNCTIONS, restarts=2))
    fix = fix_of(job, "Restart sooner")
    assert fix.saving_ns == pytest.approx(6 * S)
    assert fix.why == "The job was down for 6 s before 2 restarts."


def test_a_package_that_the_script_imports_itself(run: Run) -> None:
    functions = {
        "importing": [
            function("torch", 3, file=""),
            function("sympy", 1.5, line=0, file=""),  # which torch imports
            function("pandas", 1, file=""),
        ]
    }
    job = account(run, job_time({"importing": 6, "steps": 4}, functions))
    assert [fix.title for fix in job.fixes] == ["Import pandas where it is used"]


def test_a_job_without_steps_has_no_preparation_and_no_fix_of_its_imports(tmp_path: Path) -> None:
    functions = {"importing": [function("pandas", 1, file="")], "preparing": [function("fit", 8)]}
    time = job_time({"importing": 1, "preparing": 8, "finishing": 1}, functions)
    job = account(RunBuilder(tmp_path / "run").open(), time)
    assert [part.title for part in job.parts] == ["imports", "work of the script", "end"]
    assert job.fixes == []


def test_what_happens_once_before_the_steps_does_not_grow_with_them(run: Run) -> None:
    """A load of weights for 4 s, a save for 1 s per 100 steps."""
    time = job_time({"checkpoints": 5, "steps": 20}, {})
    early = job_time({"checkpoints": 5, "steps": 20}, {}, first_step=4)
    assert account(run, time, 10 * STEPS).planned_ns == pytest.approx(250 * S)
    job = account(run, early, 10 * STEPS)
    assert job.planned_ns == pytest.approx((4 + 10 * 21) * S)
    assert fix_of(job, "Save").saving_ns == pytest.approx(10 * S)


def test_a_job_that_is_mostly_unknown_has_no_goodput(run: Run) -> None:
    job = account(run, job_time({"steps": 4, "not_seen": 6}, {}))
    assert (job.goodput_ratio, job.is_first) == (None, False)
