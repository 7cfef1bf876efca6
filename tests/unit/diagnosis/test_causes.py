"""Each cause on a drawn run, its fixes and their parts. Milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis.input_pipeline.code_stages import STAGE_LABELS
from stepscope.analysis.input_pipeline.host_work import HostCause
from stepscope.diagnosis import Verdict, diagnose
from stepscope.diagnosis.causes.data_causes import STAGE_CAUSES
from stepscope.diagnosis.fixes import advice, fact_fixes
from stepscope.diagnosis.fixes.fact_fixes import FACT_FIXES
from stepscope.diagnosis.verdict import CAUSES
from stepscope.testing import RunBuilder
from stepscope.testing.drawing import MS
from tests.support.cause_runs import CAUSE_RUNS, CODE, COMPUTE
from tests.support.verdict_stages import check_stages

RunMaker = Callable[..., RunBuilder]
CauseJudge = Callable[[str], Verdict]


@pytest.mark.parametrize("cause", CAUSE_RUNS)
def test_causes(judge_cause: CauseJudge, cause: str) -> None:
    verdict = judge_cause(cause)
    assert (verdict.suspect, verdict.cause) == (CAUSE_RUNS[cause][0], cause)
    assert bool(verdict.fixes) == (cause != "unknown")
    assert all(fix.title and fix.instructions and fix.why for fix in verdict.fixes)
    words = {"unknown": "not found", "slow_augmentation": "slow transforms, mask"}
    name = words.get(cause, cause.replace("_", " "))
    assert name in verdict.headline.lower()
    check_stages(verdict)


CAUSES_IN_TRACES = frozenset(
    ["device_to_host_copies", "full_precision", "long_calls", "low_occupancy", "memory_allocation"]
)
"""Causes that only traces show; test_trace_verdicts draws them."""
CAUSES_OF_STAGES = frozenset(["slow_worker", "last_stage", "slow_stage", "uneven_inputs"])
"""Causes that only operations of pipeline stages show; test_stage_verdicts plays them, with their
fixes."""


def read_documented_causes() -> dict[str, set[str]]:
    text = (Path(__file__).parents[3] / "docs/verdict.md").read_text()
    table = text.split("## The causes")[1].split("**")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", table, re.MULTILINE)
    return {suspect: set(re.findall(r"`(\w+)`", row)) for suspect, row in rows}


def test_every_cause_is_drawn_documented_and_has_advice() -> None:
    assert read_documented_causes() == {suspect: set(causes) for suspect, causes in CAUSES.items()}
    drawn = {*CAUSE_RUNS, *CAUSES_IN_TRACES}
    documented = set().union(*read_documented_causes().values())
    assert documented == drawn | CAUSES_OF_STAGES
    assert all(cause in CAUSES[suspect] for cause, (suspect, _) in CAUSE_RUNS.items())
    assert set(STAGE_CAUSES.values()) <= set(CAUSES["data_pipeline"])
    renamed = {"data_preparation", "input_wait", "wait", "checkpoint", "framework", "python"}
    model = {"model", "optimizer"}
    assert set(get_args(HostCause)) - renamed - model <= set(CAUSES["framework_overhead"])
    assert set(STAGE_CAUSES) == set(STAGE_LABELS)
    # Fixes come from the table, except numbers of workers, which depend on the loader's settings.
    with_advice = drawn - {"too_few_workers", "too_many_workers", "unknown"}
    assert set(advice.CAUSE_FIXES) | set(FACT_FIXES) == with_advice
    assert not set(advice.CAUSE_FIXES) & set(FACT_FIXES)
    assert set(CAUSE_RUNS) >= advice._PIPELINE_CAUSES
    titles = {title for fixes in advice.CAUSE_FIXES.values() for title, _ in fixes}
    assert fact_fixes.OVERLAP in titles


# --- fixes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "facts"),
    [
        ("cpu_contention", [("outside_cpu_cores", 6)]),
        ("cpu_limit", [("outside_cpu_cores", 0), ("cgroup_throttled_ratio", 0.6)]),
    ],
)
def test_advice_on_cores_names_the_parameter_of_the_library(
    tmp_path: Path, cause: str, facts: list[tuple[str, float]]
) -> None:
    """A boosting round computes in the threads of XGBoost, which torch does not set."""
    instructions = {}
    for library, line in (("torch", COMPUTE), ("xgboost", "optimizer:XGBoost 40")):
        run = RunBuilder(tmp_path / library)
        process = run.rank().draw(line, 60)
        if library == "xgboost":
            process.fact("xgboost_model", number=1, objective="reg:squarederror")
        for metric, value in facts:
            run.metric(metric, value)
        run.metric("job_cpu_cores", 2 if cause == "cpu_contention" else 0.5)
        run.metric("process_runqueue_ratio", 0.6, device=str(process.info.pid))
        verdict = diagnose(run.open())
        assert verdict.cause == cause
        instructions[library] = verdict.fixes[0].instructions
    assert "torch.set_num_threads and num_workers" in instructions["torch"]
    assert "XGBoost's nthread" in instructions["xgboost"]
    assert "OMP_NUM_THREADS" in instructions["xgboost"]
    assert "torch" not in instructions["xgboost"]


@pytest.mark.seed("DIAG-05")
def test_the_fixes_name_the_settings_of_the_run(judge_cause: CauseJudge) -> None:
    verdict = judge_cause("too_few_workers")
    first = verdict.fixes[0]
    assert first.title == "Use 3 DataLoader workers instead of 1"
    assert "num_workers=3" in first.instructions
    assert "8 cores" in first.why
    assert "about 40 ms, 0% of it waiting for batches" in first.why
    assert any("num_workers=1, prefetch_factor=2" in e.text for e in verdict.evidence)


@pytest.mark.seed("DIAG-05")
def test_prefetching_and_persistence_where_they_help(judge_cause: CauseJudge) -> None:
    titles = [fix.title for fix in judge_cause("worker_startup").fixes]
    assert titles[:2] == ["Keep the workers alive between epochs", "Prefetch more"]


def test_evidence_of_the_input_pipeline(new_run: RunMaker) -> None:
    run = new_run()
    process = run.rank(workers=1).draw(f"wait=0 60 | wait=1 0 | {COMPUTE}", 50)
    process.workers[0].draw("fetch=0.5 40 ( transform:Mask=10 ) | do 40", 50)
    texts = [evidence.text for evidence in diagnose(run.open()).evidence]
    assert "The prefetch queue was empty for 50% of batch requests." in texts
    assert "Batch creation takes 40 ms on average, 50% of it CPU time." in texts
    assert "Workers spent 51% of the time creating batches." in texts
    assert "Transform Mask takes 25% of batch creation time." in texts


def test_evidence_of_lines_and_saves(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"{COMPUTE} | save=2000000 10 | do:sync 30 | do:log 10", 60)
    verdict: Verdict = diagnose(run.open())
    assert verdict.cause == "host_sync"
    assert verdict.evidence[1].text == ("train.py:7 takes 33% of step time: total += loss.item()")


COLLECTIONS = (
    "forward 20 ( garbage_collection:model.py:3=2 10 ) | backward 15 | optimizer 5 | "
    "garbage_collection:train.py:9=2 30"
)


def test_evidence_of_collections(new_run: RunMaker) -> None:
    """Two per step, 10 ms in the forward pass and 30 ms after the step; six warm-up steps."""
    run = new_run()
    run.rank().draw(COLLECTIONS, 60)
    verdict = diagnose(run.open())
    assert verdict.cause == "garbage_collection"
    # The last step ends with its optimizer.
    assert verdict.evidence[1].text == (
        "Python collected garbage 108 times in 54 steps, 20 ms on average, 75% of that time at "
        "train.py:9."
    )
    assert verdict.share_ratio == pytest.approx(40 / 70)


@pytest.mark.parametrize(
    ("step", "location"),
    [
        (COLLECTIONS, " (mostly at train.py:9)"),
        (f"{COMPUTE} | garbage_collection:train.py:9=2 40", " (at train.py:9)"),
        (f"{COMPUTE} | garbage_collection=2 40", ""),
    ],
)
def test_collections_beside_something_larger(new_run: RunMaker, step: str, location: str) -> None:
    run = new_run()
    run.rank().draw(f"{step} | do:log 100", 60)
    verdict = diagnose(run.open())
    assert verdict.cause == "logging"
    step_ms = verdict.mean_step_ns / MS
    assert [(cause.cause, cause.text) for cause in verdict.also] == [
        (
            "garbage_collection",
            f"Garbage collection{location} takes {40 / step_ms:.0%} of step time.",
        )
    ]


def test_evaluation_time_is_relative_to_the_steps(judge_cause: CauseJudge) -> None:
    """300 ms after every ten steps of 41 ms: nine times in the ninety measured steps."""
    verdict = judge_cause("evaluation")
    assert verdict.share_ratio == pytest.approx(9 * 300 / (9 * 300 + 90 * 41))
    assert verdict.suspect_step_ns == pytest.approx(verdict.mean_step_ns * 30 / 41)


@pytest.mark.parametrize(
    ("ms_per_action", "cause"),
    [(lambda step: 1, "python_overhead"), (lambda step: step / 40, "memory_leak")],
)
def test_longer_episodes_are_no_memory_leak(
    new_run: RunMaker, ms_per_action: Callable[[int], float], cause: str
) -> None:
    """An agent collects ten actions more in each step; its memory grows with them. It is a leak
    where an action takes longer as well."""
    run = new_run()
    process = run.rank()
    for step in range(1, 81):
        act = f"predict:Net=4 0.1 | do:python {ms_per_action(step)}"
        process.draw(act, 10 * step).draw("forward:Net=640 4 | backward 8 | optimizer 1")
    run.metric("process_memory_bytes", lambda s: 1e9 + 20e6 * s, device=str(process.info.pid))
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", cause)
    assert ("of equal work" in str(verdict.evidence)) == (cause == "memory_leak")


@pytest.mark.parametrize(("log", "save", "cause"), [(18, 12, "evaluation"), (28, 2, "logging")])
def test_evaluation_is_compared_with_each_other_cause_of_overhead(
    new_run: RunMaker, log: int, save: int, cause: str
) -> None:
    """250 ms of evaluation and 300 ms of logging and checkpoints in every 960 ms."""
    run = new_run()
    process = run.rank()
    for _ in range(10):
        process.draw(f"wait 1 | {COMPUTE} | save {save} | do:log {log}", 10).draw("predict 250")
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", cause)


# --- Python between operators --------------------------------------------------------------------


def test_python_between_forward_and_backward_is_overhead(new_run: RunMaker) -> None:
    """20 of 41 ms are Python between the passes; calling four operators takes less."""
    run = new_run()
    step = "forward 10 | do:python 20 | backward 10 | optimizer 1"
    window = "forward ( op:mm 10 ) | do:python 20 | backward ( op:mm 10 ) | optimizer ( op:a 1 )"
    run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "python_overhead")
    assert verdict.stages[0].name == "Python inside the time between forward and backward pass"
    assert verdict.stages[0].share_ratio == pytest.approx(20 / 41)
    assert verdict.stages[0].detail == "train.py:9"
    assert verdict.evidence[1].text == (
        "schedule (train.py:9) takes 49% of step time: rate = base / step"
    )
    assert verdict.fixes[0].instructions.startswith("train.py:9 runs Python")
    prediction = verdict.fixes[0].prediction
    assert prediction.step_ns == pytest.approx(21 * MS)


def test_a_loop_that_is_only_marked_may_train_in_its_python(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("do:python 60 | mark", 60)
    verdict = diagnose(run.open())
    assert verdict.suspect == "insufficient_evidence"
    assert "the training itself is not told from other work; schedule (train.py:9) takes" in (
        verdict.headline
    )
    assert not verdict.fixes


def test_extra_work_of_one_rank_is_a_straggler_beside_work_of_all_ranks(new_run: RunMaker) -> None:
    """Both spend 5 ms between phases; rank 0 spends 11 ms more, and rank 1 waits for it."""
    run = new_run()
    run.rank(0).draw("forward 5 | backward 7 | optimizer 1 | do 16", 60)
    run.rank(1).draw("forward 5 | backward 7 | communication 11 | optimizer 1 | do 5", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "straggler")
    assert verdict.share_ratio == pytest.approx((16 + 5 + 11) / 58, abs=0.01)


def test_hooks_that_pile_up_make_steps_grow(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", code=CODE)
    process = run.rank()
    for step in range(60):
        process.draw(f"forward {20 + 2 * step} ( do:hook {2 * step} ) | backward 15 | optimizer 5")
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "model_callbacks")
    assert any(entry.text.startswith("Steps grow from ") for entry in verdict.evidence)


def test_a_large_optimizer_is_a_contributing_cause(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 40 | forward 10 | backward 20 | optimizer 30", 60)
    verdict = diagnose(run.open())
    assert verdict.suspect == "data_pipeline"
    (optimizer,) = [cause for cause in verdict.also if cause.cause == "optimizer"]
    assert optimizer.share_ratio == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("in_tables", "titles"),
    [
        (900, ["Update only what changed", "Use a fused or foreach optimizer"]),
        (100, ["Use a fused or foreach optimizer", "Update only what changed"]),
        (0, ["Use a fused or foreach optimizer", "Step less often"]),
        (None, ["Use a fused or foreach optimizer", "Update only what changed"]),
    ],
)
def test_sparse_updates_are_for_lookup_tables(
    new_run: RunMaker, in_tables: int | None, titles: list[str]
) -> None:
    run = new_run()
    rank = run.rank().draw("wait 5 | forward 20 | backward 15 | optimizer 60", 60)
    counts = {} if in_tables is None else {"embedding_parameter_count": in_tables}
    rank.fact("model", model=1, parameter_count=1000, dtypes=["float32"], **counts)
    verdict = diagnose(run.open())
    assert verdict.cause == "optimizer"
    assert [fix.title for fix in verdict.fixes][:2] == titles
    assert ("90% of the parameters are embedding" in verdict.fixes[0].why) == (in_tables == 900)


@pytest.mark.parametrize(("log_ms", "suspect"), [(19, "healthy"), (21, "framework_overhead")])
def test_overhead_without_a_cause_worth_a_fix_is_not_accused(
    new_run: RunMaker, log_ms: int, suspect: str
) -> None:
    """Steps of 100 ms: logging beside 12 ms of checkpoints."""
    run = new_run()
    passes = f"forward {68 - log_ms} | backward 18 | optimizer 2"
    run.rank().draw(f"{passes} | save=2000000 12 | do:log {log_ms}", 60)
    assert diagnose(run.open()).suspect == suspect


Phase = tuple[int, int, int]
"""Duration of a phase, of the operator in it, and of the Python after it."""
PHASES = st.tuples(st.integers(1, 60), st.integers(0, 60), st.integers(0, 40))
STEPS = st.tuples(PHASES, PHASES, PHASES)


def draw_step(durations: tuple[Phase, Phase, Phase], *, operators: bool) -> str:
    parts = []
    names = ("forward", "backward", "optimizer")
    for name, (duration, work, python) in zip(names, durations, strict=True):
        inside = f" ( op:mm {min(work, duration)} )" if operators and work else ""
        parts.append(f"{name} {duration}{inside} | do {python}")
    return " | ".join(parts)


@settings(max_examples=15)
@given(measured=STEPS, profiled=STEPS, wait=st.integers(0, 60))
def test_stages_of_any_steps_and_any_window(
    measured: tuple[Phase, Phase, Phase], profiled: tuple[Phase, Phase, Phase], wait: int
) -> None:
    """A profiler may slow down each phase by another factor."""
    with TemporaryDirectory() as directory:
        run = RunBuilder(Path(directory) / "run")
        step = f"wait {wait} | {draw_step(measured, operators=False)}"
        window = f"window ( {draw_step(profiled, operators=True)} )"
        run.rank().draw(step, 20).draw(window).draw(step, 20)
        check_stages(diagnose(run.open()))


def test_dispatch_in_a_phase_is_no_larger_than_the_phase() -> None:
    """The optimizer takes 31% of the measured steps and, without operators, 60% of the window."""
    with TemporaryDirectory() as directory:
        run = RunBuilder(Path(directory) / "run")
        step = "forward 34 | backward 35 | optimizer 31"
        small = " | ".join(["op:add 0.015"] * 10)
        window = f"window ( forward 20 ( {small} ) | backward 20 ( {small} ) | optimizer 60 )"
        run.rank().draw(step, 20).draw(window).draw(step, 20)
        verdict = diagnose(run.open())
    stages = {stage.name: round(stage.share_ratio, 2) for stage in verdict.stages}
    assert max(stages.values()) == 0.35
    assert [share for name, share in stages.items() if name.endswith("optimizer")] == [0.31]
    check_stages(verdict)
