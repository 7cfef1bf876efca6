"""Division of a job's time: exact sums for any records, and each class in drawn jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from stepscope.analysis import Spans, find_steps
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.input_pipeline.code_stages import parse_stack
from stepscope.analysis.job.activities import CallTree
from stepscope.analysis.job.job_time import (
    JOB_CLASSES,
    JobProcess,
    Layer,
    RankDivision,
    divide_rank,
    paint,
)
from stepscope.analysis.steps.phases import PHASE_OF_KIND
from stepscope.intervals import Intervals, union
from stepscope.testing import Drawing
from stepscope.testing.drawing import MS, stack_text

STEP = "forward 10 | backward 10 | optimizer 10"
PERIOD_NS = 50 * MS
KINDS = (*PHASE_OF_KIND, "step", "mode", "window", "device")
END_NS = 60


def make_intervals(pairs: list[tuple[int, int]]) -> Intervals:
    starts, ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Intervals(np.minimum(starts, ends), np.maximum(starts, ends))


TIMES = st.lists(st.tuples(st.integers(-5, END_NS + 5), st.integers(-5, END_NS + 5)), max_size=6)
LAYERS = st.lists(st.tuples(st.sampled_from(JOB_CLASSES), TIMES), max_size=6)


@given(layers=LAYERS, extent=st.tuples(st.integers(0, END_NS), st.integers(0, END_NS)))
def test_each_nanosecond_has_the_class_of_the_first_layer_that_covers_it(
    layers: list[tuple[str, list[tuple[int, int]]]], extent: tuple[int, int]
) -> None:
    start, end = min(extent), max(extent)
    drawn = [Layer(key, make_intervals(pairs)) for key, pairs in layers]
    division = paint((start, end), drawn, rest="not_seen")

    def class_at(time: int) -> str:
        return next(
            (key for key, pairs in layers if any(min(p) <= time < max(p) for p in pairs)),
            "not_seen",
        )

    expected = [class_at(time) for time in range(start, end)]
    painted = np.repeat(division.classes, division.durations)
    assert [JOB_CLASSES[code] for code in painted] == expected
    assert (np.diff(division.classes) != 0).all()


@st.composite
def processes(draw: st.DrawFn) -> JobProcess:
    """Any spans and samples: overlapping, empty, unfinished, out of order, out of the process."""
    count = draw(st.integers(0, 14))
    times = st.integers(-5, END_NS + 5)
    start = np.sort(draw(st.lists(times, min_size=count, max_size=count)))
    length = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    row = st.integers(0, 255)
    kind = draw(st.lists(st.sampled_from(KINDS), min_size=count, max_size=count))
    flags = draw(st.lists(row, min_size=count, max_size=count))
    names = st.sampled_from(["", "PREDICT", "RECORDING"])
    start = start.astype(np.int64)
    spans = Spans.of_columns(
        start=start,
        end=start + np.array(length, dtype=np.int64),
        kind=kind,
        name=draw(st.lists(names, min_size=count, max_size=count)),
        thread=draw(st.lists(st.integers(1, 2), min_size=count, max_size=count)),
        flags=flags,
        unfinished=draw(st.lists(st.booleans(), min_size=count, max_size=count)),
        value=np.array(draw(st.lists(row, min_size=count, max_size=count)), dtype=np.int64),
    )
    spans = spans.take(np.lexsort((-spans.end, spans.start)))
    stacks = ["", "main", "main > validate > step", "main > save", IMPORT, "run@torch/a.py"]
    sampled = sorted(draw(st.lists(times, max_size=12)))
    return JobProcess(
        launched_ns=draw(times),
        ready_ns=draw(st.none() | times),
        end_ns=draw(times),
        spans=spans,
        samples=StackSamples(
            t_ns=np.array(sampled, dtype=np.int64),
            weight_ns=np.ones(len(sampled), dtype=np.int64),
            stack=np.array([draw(st.integers(0, 5)) for _ in sampled], dtype=np.int32),
            stacks=[stack_text(stack) if stack else "" for stack in stacks],
            user_line=np.ones(len(sampled), dtype=np.int32),
        ),
        steps=find_steps(spans, ("step", "optimizer", "backward", "dispatch")),
        is_sampled_from_start=draw(st.booleans()),
        ended_itself=draw(st.booleans()),
        has_completed=draw(st.booleans()),
        is_restart=draw(st.booleans()),
        trains_later=draw(st.booleans()),
        kept_until_ns=draw(st.none() | times),
        stuck=make_intervals(draw(TIMES)),
    )


IMPORT = "<module> > import@python:importlib/_bootstrap.py > <module>@torch/__init__.py"


@given(records=st.lists(processes(), max_size=3), unseen=TIMES)
def test_classes_divide_the_job_to_the_nanosecond_for_any_records(
    records: list[JobProcess], unseen: list[tuple[int, int]]
) -> None:
    result = divide_rank((0, END_NS), records, union(make_intervals(unseen)))
    division = result.division
    assert division.edges[0] == 0
    assert division.edges[-1] == END_NS
    assert (division.durations > 0).all()
    assert sum(division.totals.values()) == END_NS
    for key, functions in result.functions.items():
        assert 0 < sum(function.time_ns for function in functions) <= division.totals[key]


class DrawnJob:
    """Job of one process: a stack for each piece of time, and the spans in it."""

    def __init__(self) -> None:
        self.drawing = Drawing()
        self.pieces: list[tuple[str, int]] = []

    def do(self, stack: str, text: str = "", times: int = 1, *, ms: float = 0) -> DrawnJob:
        self.drawing.draw(text, times) if text else self.drawing.pause(ms)
        self.pieces.append((stack, self.drawing.now))
        return self

    def process(self, **fields: Any) -> JobProcess:
        ends = np.array([end for _, end in self.pieces], dtype=np.int64)
        stacks = list(dict.fromkeys(stack for stack, _ in self.pieces))
        t_ns = np.arange(PERIOD_NS // 2, self.drawing.now, PERIOD_NS, dtype=np.int64)
        piece = np.searchsorted(ends, t_ns, side="right").tolist()
        stack = np.array([stacks.index(self.pieces[i][0]) for i in piece], dtype=np.int32)
        spans = self.drawing.table()
        defaults: dict[str, Any] = {
            "launched_ns": 0,
            "ready_ns": 0,
            "end_ns": self.drawing.now,
            "is_sampled_from_start": True,
        }
        return JobProcess(
            spans=spans,
            samples=StackSamples(
                t_ns=t_ns,
                weight_ns=np.full(len(t_ns), PERIOD_NS),
                stack=stack,
                stacks=[stack_text(one) for one in stacks],
                user_line=stack + 1,
            ),
            steps=find_steps(spans),
            **(defaults | fields),
        )

    def divide(self, **fields: Any) -> RankDivision:
        return divide_rank((0, self.drawing.now), [self.process(**fields)])


def seconds(result: RankDivision) -> dict[str, float]:
    """Seconds by class, to the tenth: samples are 50 ms apart."""
    return {key: round(ns / 1e9, 1) for key, ns in result.division.totals.items() if ns > 30 * MS}


def main_functions(result: RankDivision) -> dict[str, str]:
    return {key: rows[0].function for key, rows in result.functions.items()}


def draw_whole_job() -> DrawnJob:
    job = DrawnJob().do(IMPORT, ms=5_000).do("<module> > read_index > work", ms=8_000)
    for _ in range(4):
        job.do("<module> > train", f"{STEP} | do 18", 90)
        job.do("<module> > validate > score > work", "do 40 | evaluate 2", 70)
        job.do("<module> > validate > summarize", ms=300)
        job.do("<module> > save > save@torch/serialization.py", "save 10")
        job.do("<module> > save > work", ms=1_200)
    return job.do("<module> > export_report > work", ms=2_000)


def test_whole_job() -> None:
    result = draw_whole_job().divide()
    expected = {
        "importing": 5.0,
        "preparing": 8.0,
        "steps": 17.28,
        "evaluation": 4 * (70 * 0.042 + 0.3),
        "checkpoints": 4.84,
        "finishing": 2.0,
    }
    assert seconds(result) == pytest.approx(expected, abs=0.1)
    assert main_functions(result) == {
        "importing": "torch",
        "preparing": "read_index",
        "steps": "train",
        "evaluation": "validate",
        "checkpoints": "save",
        "finishing": "export_report",
    }


def test_a_process_without_start_up_samples_is_not_seen_before_its_first_step() -> None:
    result = draw_whole_job().divide(ready_ns=None, is_sampled_from_start=False)
    assert seconds(result)["not_seen"] == 13.0
    assert {"importing", "preparing"}.isdisjoint(seconds(result))


def test_work_that_steps_do_not_have_is_between_them_and_work_that_they_have_is_not() -> None:
    job = DrawnJob().do("main", ms=100)
    for _ in range(3):
        job.do("main > fit > prepare", f"do 80 | {STEP}", 30)
        job.do("main > fit > on_epoch_end", ms=50).do("main > fit > on_epoch_end > upload", ms=900)
        job.do("main > fit > prepare", f"do 900 | {STEP}")  # a slow one
    result = job.divide()
    expected = {"preparing": 0.18, "steps": 12.63, "between_steps": 2.85}
    assert seconds(result) == pytest.approx(expected, abs=0.1)
    assert main_functions(result)["between_steps"] == "on_epoch_end"


def test_pauses_of_the_recording_are_a_class_without_functions() -> None:
    job = DrawnJob().do("main", ms=100).do("main > fit", STEP, 30)
    result = job.do("main > fit", "mode:RECORDING 800").do("main > fit", STEP, 30).divide()
    assert result.division.totals["recording"] == 800 * MS
    assert result.division.totals["between_steps"] == 0
    assert "recording" not in result.functions


def test_a_call_is_quoted_with_those_of_its_arguments() -> None:
    process = DrawnJob().do("main<call 1>", ms=500).do("main", STEP, 30).process()
    (file,) = {frame.file for frame in parse_stack(process.samples.stacks[0])}
    text = "save(sample.view(64), str(epoch))"
    samples = replace(process.samples, sources={(file, 1, 1): text})
    result = divide_rank((0, 1_400 * MS), [replace(process, samples=samples)])
    assert result.functions["preparing"][0].text == text


def test_batches_that_a_script_skips_are_no_first_step() -> None:
    """It fetches those that an earlier run has trained on."""
    job = DrawnJob().do("main > advance > read", "wait 20", 100)
    result = job.do("main > train", f"wait 5 | {STEP}", 60).divide()
    assert seconds(result)["preparing"] == 2.0
    assert main_functions(result)["preparing"] == "advance"


@pytest.mark.parametrize(("earlier", "key"), [("train", "finishing"), ("publish", "checkpoints")])
def test_an_upload_with_a_save_in_it_is_no_checkpoint(earlier: str, key: str) -> None:
    """After the last step, unless the same function has saved before."""
    job = DrawnJob().do("main > train", STEP, 30)
    job.do(f"main > {earlier} > save@torch/serialization.py", "save 60")
    job.do("main > train", STEP, 30)
    job.do("main > publish > save@torch/serialization.py", "save 60")
    result = job.do("main > publish > send", ms=2_000).divide()
    assert seconds(result)[key] >= 2.0
    assert main_functions(result)[key] == "publish"


def test_a_package_of_the_script_has_its_name() -> None:
    modules = "import@python:importlib/_bootstrap.py > <module>@/job/fields/__init__.py"
    job = DrawnJob().do(f"<module> > {modules}", ms=1_000).do("<module> > train", STEP, 60)
    assert main_functions(job.divide())["importing"] == "fields"


def test_functions_around_several_classes_are_not_named() -> None:
    job = DrawnJob().do("main > setup", ms=1_000)
    for _ in range(3):
        job.do("main > fit", STEP, 50)
        job.do("main > on_epoch_end > check", "evaluate 20", 40)
        job.do("main > on_epoch_end > upload", ms=700)
    result = job.do("main > fit", STEP, 50).divide()
    expected = {"preparing": 1.0, "steps": 6.0, "evaluation": 2.4, "between_steps": 2.1}
    assert seconds(result) == pytest.approx(expected, abs=0.15)
    names = main_functions(result)
    assert names["evaluation"] == "check"
    assert names["between_steps"] == "upload"


@pytest.mark.parametrize(
    ("calls", "function"),
    [
        ("NeuralNet.notify@skorch/net.py > Scoring.on_epoch_end@skorch/scoring.py", None),
        ("Engine._fire_event@ignite/engine.py > Checkpoint.__call__@ignite/handlers.py", None),
        (
            "Loop.run_evaluation@keras/trainer.py > Loop.make@keras/trainer.py",
            "Loop.run_evaluation",
        ),
    ],
)
def test_a_library_is_named_by_what_it_does_and_not_by_how_it_calls_that(
    calls: str, function: str | None
) -> None:
    job = DrawnJob().do("main > fit@keras/trainer.py", STEP, 50)
    job.do(f"main > fit@keras/trainer.py > {calls}", "evaluate 20", 40)
    process = job.do("main > fit@keras/trainer.py", STEP, 50).process()
    samples = replace(process.samples, user_line=np.ones_like(process.samples.user_line))
    names = main_functions(divide_rank((0, job.drawing.now), [replace(process, samples=samples)]))
    assert names["evaluation"] == (function or calls.rpartition(" > ")[2].partition("@")[0])


def test_time_between_short_pieces_of_other_work_is_that_of_its_function() -> None:
    """An agent acts several times within a sampling period, between the updates."""
    step = "forward:Net=32 10 | backward 10 | optimizer 10"
    job = DrawnJob().do("main", ms=0.5)
    for _ in range(4):
        job.do("main > fit > collect > save_best", "predict:Net=1 2 | do 5", 100)
        job.do("main > fit", step, 20)
    result = job.divide()
    (row,) = result.functions["between_steps"]
    assert row.function == "save_best"
    assert row.time_ns == pytest.approx(result.division.totals["between_steps"], rel=0.02)


def test_first_steps_warm_up_and_loaders_restart_between_epochs() -> None:
    step = f"wait 10 | {STEP}"
    job = DrawnJob().do("main", "start 500 | wait 300").do("main", "forward 2000 | backward 10")
    job.do("main", "optimizer 10").do("main", step, 30)
    for _ in range(2):
        job.do("main", "exhausted 100 | start 400 | wait 210").do("main", STEP)
        job.do("main", step, 30)
    totals = job.divide().division.totals
    assert totals["warm_up"] == (500 + 300 + 2020 - 40) * MS
    assert totals["between_epochs"] == 2 * (100 + 400 + 200) * MS
    assert totals["steps"] == (93 * 40) * MS


def test_a_killed_process_was_in_its_loop_or_is_stuck_there() -> None:
    job = DrawnJob().do("main > fit", STEP, 100).do("main > fit", "forward 20")
    assert set(seconds(job.divide(has_completed=False))) == {"steps"}
    job.do("main > fit > wait_for_batch", ms=12_000)
    assert seconds(job.divide()) == {"steps": 3.0, "finishing": 12.0}
    stuck = job.divide(has_completed=False)
    assert seconds(stuck) == {"steps": 3.0, "stuck": 12.0}
    assert main_functions(stuck)["stuck"] == "wait_for_batch"


def test_a_save_or_a_pass_over_the_data_before_training_is_in_no_step() -> None:
    job = DrawnJob().do("main > setup", "save 5").do("main > setup", ms=1_000)
    job.do("main > measure", "start 5 | wait 400 | exhausted 5")
    job.do("main > fit", "start 10 | wait 10").do("main > fit", STEP)
    for _ in range(30):
        job.do("main > fit", f"wait 10 | {STEP}")
    totals = job.divide().division.totals
    assert totals["steps"] + totals["warm_up"] == (31 * 40 + 10) * MS
    assert totals["preparing"] + totals["checkpoints"] == (5 + 1_000 + 410) * MS


def test_a_restart_is_down_and_its_lost_steps_are_repeated() -> None:
    first = DrawnJob().do("main > fit", STEP, 130)
    second = DrawnJob()
    second.drawing.now = start_ns = first.drawing.now + 2_000 * MS
    second.do("main > load", "checkpoint 300").do("main > fit", STEP, 170)
    killed = first.process(has_completed=False, kept_until_ns=100 * 30 * MS)
    process = second.process(launched_ns=start_ns, ready_ns=start_ns + 100 * MS, is_restart=True)
    totals = divide_rank((0, second.drawing.now), [killed, process]).division.totals
    assert totals["down"] == 2_000 * MS
    assert totals["repeated"] == 30 * 30 * MS
    assert totals["steps"] == (100 + 170) * 30 * MS


def test_wrappers_that_decorators_of_libraries_make_are_not_named() -> None:
    stack = stack_text("main > filter.<locals>.handler@keras/utils.py > evaluate@keras/trainer.py")
    tree = CallTree.build([stack, stack_text("main > make.<locals>.step")])
    assert [frame.function for frame in tree.frames] == ["main", "evaluate", "make.<locals>.step"]
