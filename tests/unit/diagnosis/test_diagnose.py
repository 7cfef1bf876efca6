"""Verdicts on drawn runs: suspects, confidence and abstentions. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stepscope.diagnosis import Verdict, diagnose
from stepscope.diagnosis.causes.attribution import THRESHOLDS, AttributionThresholds
from stepscope.diagnosis.measured import estimate_accuracy
from stepscope.diagnosis.verdict import STEP_SHARE, SUSPECTS
from stepscope.schema import JobState
from stepscope.testing import RunBuilder
from stepscope.testing.drawing import MS

RunMaker = Callable[..., RunBuilder]

HEALTHY = "wait 5 | forward 30 | backward 45 | optimizer 20"
KEYS = {"suspect", "cause", "share_ratio", "confidence_ratio", "evidence", "ruled_out", "fixes"}


def diagnose_steps(run: RunBuilder, step: str, times: int = 100) -> Verdict:
    run.rank().draw(step, times)
    return diagnose(run.open())


def list_stages(verdict: Verdict) -> dict[str, float]:
    return {stage.name: stage.share_ratio for stage in verdict.stages}


def list_reasons(verdict: Verdict) -> dict[str, str]:
    return {suspect.suspect: suspect.why for suspect in verdict.ruled_out}


# --- the recommender: 60 % loading, of which 22 points decode parquet and 28 augment ---------


def diagnose_recommender(run: RunBuilder) -> Verdict:
    """Four workers on four cores each create a batch in 360 ms, every 400 ms."""
    rank = run.rank(workers=4)
    rank.draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100)
    for worker in rank.workers:
        worker.draw(
            "fetch 360 ( samples ( do:decode 132 | do:augment 168 | do:lookup 60 ) ) | do 40", 25
        )
    run.metric("job_cpu_cores", 4).metric("outside_cpu_cores", 0)
    run.metric("gpu_busy_ratio", lambda s: 0.55 if int(s * 2) % 2 else 0.25, device="0")
    return diagnose(run.open())


def compute_stability(verdict: Verdict) -> float:
    """Compute the confidence without the accuracy of such verdicts on public programs."""
    accuracy = estimate_accuracy(verdict.cause, verdict.evidence_kind)
    return verdict.confidence_ratio / accuracy


@pytest.mark.seed("DIAG-02", "DIAG-03", "DIAG-05")
def test_the_recommender_waits_for_its_data_pipeline(new_run: RunMaker) -> None:
    verdict = diagnose_recommender(new_run(cores=4))
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "slow_augmentation")
    assert verdict.share_ratio == pytest.approx(0.60)
    phases = {phase: share for phase, share in verdict.phases.items() if share}
    expected = {"data_wait": 0.60, "forward": 0.12, "backward": 0.20, "optimizer": 0.08}
    assert phases == pytest.approx(expected)
    assert list_stages(verdict) == pytest.approx(
        {"augmentation": 0.28, "parquet decode": 0.22, "other dataset code": 0.10}
    )
    assert (verdict.mean_step_ns, verdict.step_count) == (100_000_000, 90)
    assert compute_stability(verdict) >= 0.9
    assert list_reasons(verdict)["model"] == "compute takes 40% of step time."
    assert "data wait 60%, forward 12%, backward 20%, optimizer 8%" in verdict.evidence[0].text
    assert verdict.headline.endswith("Cause: slow transforms, Mask 47% of batch creation.")
    assert verdict.evidence[1].text == "Transforming samples takes 47% of batch creation: Mask 47%."
    # It gets fixes for both causes.
    fixes = {fix.title: fix.why for fix in verdict.fixes}
    both = ["Move augmentation to the GPU", "Decode once and cache the result"]
    assert [title for title in fixes if title in both] == both
    reasons = {"Augmentation takes 28% of step time.", "Parquet decode takes 22% of step time."}
    assert reasons <= set(fixes.values())
    encoded = msgspec.json.encode(verdict)
    assert set(msgspec.json.decode(encoded)) >= KEYS
    assert msgspec.json.decode(encoded, type=Verdict) == verdict


def test_the_same_run_twice_gives_the_same_verdict(new_run: RunMaker) -> None:
    builder = new_run()
    builder.rank().draw("wait 20 | forward 80 | optimizer 1", 100, jitter=0.5)
    run = builder.open()
    assert diagnose(run) == diagnose(run)


# --- suspects ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "suspect", "share"),
    [
        ("wait 20 | forward 60 | optimizer 20", "data_pipeline", 0.20),
        ("wait 10 | h2d 15 | forward 55 | optimizer 20", "data_pipeline", 0.25),
        ("wait 19 | forward 61 | optimizer 20", "healthy", 0.81),
        ("forward 60 | communication 20 | optimizer 20", "communication", 0.20),
        ("forward 60 | optimizer 15 | do 25", "framework_overhead", 0.25),
        ("forward 61 | optimizer 15 | do 24", "healthy", 0.76),
        ("forward 55 | optimizer 20 | save 25", "framework_overhead", 0.25),
        ("forward 20 | backward 20 | optimizer 41 | wait 19", "model", 0.81),
        ("forward 21 | backward 20 | optimizer 40 | wait 19", "healthy", 0.81),
        (HEALTHY, "healthy", 0.95),
        ("wait 25 | forward 40 | optimizer 5 | do 30", "framework_overhead", 0.30),
        ("wait 30 | forward 40 | optimizer 5 | do 25", "data_pipeline", 0.30),
    ],
)
def test_thresholds(new_run: RunMaker, step: str, suspect: str, share: float) -> None:
    verdict = diagnose_steps(new_run(), step)
    assert verdict.suspect == suspect
    assert verdict.share_ratio == pytest.approx(share, abs=0.003)  # steps end with the optimizer
    shares = {entry.suspect: entry.share_ratio for entry in verdict.suspects}
    causes = {suspect, *(cause.suspect for cause in verdict.also)}
    small = set(SUSPECTS) - causes - {max(shares, key=lambda name: shares[name])}
    assert {entry.suspect for entry in verdict.ruled_out} == small
    assert {name for name in small if shares[name] > THRESHOLDS.by_suspect[name]} == set()
    is_smaller = suspect not in {"model", "healthy"} and shares["model"] > verdict.share_ratio
    assert verdict.headline.startswith("Model compute: ") == is_smaller
    assert ("Bottleneck of the rest: " in verdict.headline) == is_smaller


@pytest.mark.parametrize(
    ("step", "basis"),
    [
        ("wait 20 | forward 60 | optimizer 20", ""),
        (
            "wait 60 | h2d 4 | forward 26 | optimizer 10",
            "The 64% are waiting for batches 60%, copies to the device 4%.",
        ),
        ("forward 61 | optimizer 39", "The 100% are forward 61%, optimizer 39%."),
    ],
)
def test_a_share_of_several_phases_names_its_parts(
    new_run: RunMaker, step: str, basis: str
) -> None:
    assert diagnose_steps(new_run(), step).share_basis == basis


def test_a_share_of_another_phase_names_its_only_part(
    judge_cause: Callable[[str], Verdict],
) -> None:
    """Preparation between the phases, 60 of 100 ms, is all of `other`."""
    verdict = judge_cause("inline_data_preparation")
    parts = "data preparation and waits for batches in the training thread"
    assert verdict.share_basis == f"The 60% are {parts}."


def test_shares_of_the_four_suspects_sum_to_the_step(new_run: RunMaker) -> None:
    verdict = diagnose_steps(
        new_run(), "wait 30 | forward 37 | communication 3 | optimizer 5 | save 25"
    )
    assert verdict.suspect == "data_pipeline"
    assert sum(entry.share_ratio for entry in verdict.suspects) == pytest.approx(1)
    assert verdict.get_share("data_pipeline") == pytest.approx(verdict.share_ratio)
    assert [cause.suspect for cause in verdict.also] == ["framework_overhead"]
    assert list(list_reasons(verdict)) == ["communication"]


def test_a_second_cause_is_judged_by_the_step_that_the_first_leaves(new_run: RunMaker) -> None:
    """4% of the step are 40% of what is left without the first cause."""
    verdict = diagnose_steps(new_run(), "wait 4 | forward 6 | communication 90")
    assert verdict.suspect == "communication"
    assert [cause.suspect for cause in verdict.also] == ["data_pipeline"]


def test_other_thresholds(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("forward 60 | optimizer 25 | do 15", 100)
    opened = run.open()
    assert diagnose(opened).suspect == "healthy"
    limits = AttributionThresholds(framework_overhead=0.1, overhead_cause=0.1)
    strict = diagnose(opened, limits)
    assert (strict.suspect, strict.cause) == ("framework_overhead", "unknown")


def test_exposed_gradient_exchange_is_communication(new_run: RunMaker) -> None:
    run = new_run()
    for rank in range(2):
        run.rank(rank).ddp(exchange_ms=40, hidden_ms=10, compute_ms=30).draw(
            "wait 5 | forward 30 | backward 60 | optimizer 5", 50
        )
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("communication", "gradient_exchange")
    assert verdict.share_ratio == pytest.approx(0.30)
    assert list(list_reasons(verdict)) == ["framework_overhead"]


# --- compute: the model, or overhead inside it --------------------------------------------------

LARGE = "window ( forward ( op:linear 100 ) | backward ( op:mm 150 ) | optimizer 10 )"
TINY = " | ".join(["op:add 0.01 | do 0.09"] * 100)


def diagnose_window(
    run: RunBuilder, step: str, window: str, cores: float | None = None, **model: object
) -> Verdict:
    """Diagnose steps before and after a profiler window."""
    rank = run.rank().draw(step, 30).draw(window).draw(step, 30)
    if cores is not None:
        run.metric("process_cpu_cores", cores, device=str(rank.info.pid))
    if model:
        rank.fact("model", model=1, parameter_count=9, tensor_count=1, **model)
    return diagnose(run.open())


@pytest.mark.parametrize(("cores", "suspect"), [(0.9, "model"), (0.81, "model"), (0.79, "healthy")])
def test_a_model_is_heavy_by_the_core_time_of_its_own_share(
    new_run: RunMaker, cores: float, suspect: str
) -> None:
    """Its share is 250 of 260 ms: 202.5 ms of core time, or 197.5 ms."""
    verdict = diagnose_window(
        new_run(), "forward 100 | backward 150 | optimizer 10", LARGE, cores=cores
    )
    cause = "compute" if suspect == "model" else "none"
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    assert verdict.share_ratio == pytest.approx(250 / 260)
    assert verdict.notes == []


@pytest.mark.parametrize(("dtypes", "suspect"), [(["float64"], "model"), (["float32"], "healthy")])
def test_double_precision_makes_a_small_model_the_suspect(
    new_run: RunMaker, dtypes: list[str], suspect: str
) -> None:
    step = "forward 10 | backward 15 | optimizer 1"
    verdict = diagnose_window(new_run(), step, LARGE, cores=1, dtypes=dtypes)
    assert verdict.suspect == suspect
    assert any("float64" in entry.text for entry in verdict.evidence) == (suspect == "model")
    if suspect == "healthy":
        assert (verdict.cause, verdict.fixes) == ("none", [])
        assert {entry.suspect for entry in verdict.ruled_out} == {*SUSPECTS} - {"model"}


@pytest.mark.parametrize(
    "optimizers",
    ["optimizer 2", "optimizer:A ( optimizer:A 1 ) | optimizer:B 1"],  # a GradScaler, two of them
)
def test_many_small_operators_are_overhead(new_run: RunMaker, optimizers: str) -> None:
    """They are counted by step, not by optimizer span."""
    window = f"window ( forward ( {TINY} ) | {optimizers} )"
    verdict = diagnose_window(new_run(), f"forward 10 | backward 10 | {optimizers}", window)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "tiny_operators")
    assert verdict.share_ratio == pytest.approx(1)
    assert any("100 operators per step" in evidence.text for evidence in verdict.evidence)


def test_only_the_first_window_counts(new_run: RunMaker) -> None:
    """A later window, whose events are another trace, must not dilute the first."""
    run = new_run()
    step = "wait 1 | forward 10 | backward 20 | optimizer 2"
    first = "window ( forward ( op:linear 10 ) | backward 20 | optimizer 2 )"
    later = f"window=1 ( {step} | {step} | {step} )"
    run.rank().draw(step, 30).draw(first).draw(step, 5).draw(later).draw(step, 30)
    profile = run.open().ranks[0].compute_profile
    assert (profile.step_count, profile.compute_ns) == (1, 32 * MS)


def test_without_a_window_a_verdict_on_compute_counts_half(new_run: RunMaker) -> None:
    verdict = diagnose_steps(new_run(), HEALTHY)
    assert compute_stability(verdict) == pytest.approx(0.5 * 90 / 95, abs=3e-3)
    assert any("No profiler window" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("optimizers", "per_step"),
    [
        ("optimizer:Adam | forward 10 | optimizer:SGD", "2"),
        ("optimizer:Adam | forward 10 | optimizer:Adam", None),
        ("mark", None),
    ],
)
def test_guessed_rounds_of_several_optimizers_are_stated(
    new_run: RunMaker, optimizers: str, per_step: str | None
) -> None:
    run = new_run()
    marks = " | mark 0.1" if optimizers == "mark" else ""
    line = "optimizer:Adam | forward 10 | optimizer:SGD" if marks else optimizers
    run.rank().draw(f"forward 60 | {line} 20{marks}", 60)
    notes = [note for note in diagnose(run.open()).notes if note.startswith("The steps are gue")]
    expected = f"2 optimizers (Adam, SGD) in turn are one round, {per_step} updates each."
    assert [expected in note for note in notes] == ([True] if per_step else [])


@pytest.mark.parametrize(
    ("step", "share"),
    [
        ("wait 1 | predict:Backbone 60 | forward:Head 4 | backward 10 | optimizer 5", "75%"),
        # Pseudo labels of the trained model change with it.
        ("wait 1 | predict:Head 60 | forward:Head 4 | backward 10 | optimizer 5", None),
        # An agent acts; no batch is fetched for it.
        ("predict:Policy 60 | forward:Head 4 | backward 10 | optimizer 5", None),
    ],
)
def test_passes_of_a_module_that_is_not_trained(
    new_run: RunMaker, step: str, share: str | None
) -> None:
    run = new_run()
    run.rank().draw(step, 60)
    expected = (
        f"Backbone, which is not trained, takes {share} of step time: for inputs that are the same "
        "in every epoch, compute its outputs once and store them."
    )
    texts = [evidence.text for evidence in diagnose(run.open()).evidence]
    assert [text for text in texts if "which is not trained" in text] == [expected] * bool(share)


# --- contention -------------------------------------------------------------------------------


def diagnose_contention(run: RunBuilder, step: str, *, outside: float, waiting: float) -> Verdict:
    run.rank().draw(step, 100)
    pid = str(run.processes[0].info.pid)
    run.metric("outside_cpu_cores", outside).metric("job_cpu_cores", 2)
    run.metric("process_runqueue_ratio", waiting, device=pid)
    return diagnose(run.open())


@pytest.mark.parametrize(
    ("step", "outside", "waiting", "suspect", "cause"),
    [
        (HEALTHY, 2.0, 0.51, "framework_overhead", "cpu_contention"),
        (HEALTHY, 1.9, 0.51, "healthy", "none"),
        (HEALTHY, 2.0, 0.5, "healthy", "none"),
        ("wait 60 | forward 35 | optimizer 5", 6.0, 0.51, "framework_overhead", "cpu_contention"),
        ("wait 30 | forward 65 | optimizer 5", 6.0, 0.4, "data_pipeline", "unknown"),
        ("forward 65 | do 30 | optimizer 5", 6.0, 0.4, "framework_overhead", "unknown"),
    ],
)
def test_processes_outside_the_job_use_the_cores(
    new_run: RunMaker, step: str, outside: float, waiting: float, suspect: str, cause: str
) -> None:
    verdict = diagnose_contention(new_run(), step, outside=outside, waiting=waiting)
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    titles = [fix.title for fix in verdict.fixes]
    if cause == "cpu_contention":
        assert verdict.share_ratio == pytest.approx(waiting)
        assert titles[0] == "Get the cores back"
    elif outside >= 2:
        assert "Get the cores back" in titles
        (load,) = [entry for entry in verdict.also if entry.cause == "cpu_contention"]
        assert (load.share_ratio, load.share_of) == (pytest.approx(waiting), STEP_SHARE)
        waits = f"waits for a core {100 * waiting:.0f}% of its time."
        assert verdict.headline.endswith(waits) == (suspect == "healthy")


# --- confidence -------------------------------------------------------------------------------


def test_confidence_grows_with_the_number_of_steps(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 60 | forward 30 | optimizer 10", 20)
    assert compute_stability(diagnose(run.open())) == pytest.approx(18 / 23, abs=3e-3)


def test_confidence_falls_when_the_share_straddles_the_threshold(new_run: RunMaker) -> None:
    run = new_run()
    rank = run.rank()
    for seed in range(50):
        rank.draw("wait 20", jitter=1, seed=seed).draw("forward 60 | optimizer 20")
        rank.draw("wait 20", jitter=1, seed=seed + 1000).draw("forward 60 | optimizer 20")
    verdict = diagnose(run.open())
    assert compute_stability(verdict) < 0.9
    assert verdict.phases["data_wait"] == pytest.approx(0.2, abs=0.03)


# --- abstentions -------------------------------------------------------------------------------


def is_abstention(verdict: Verdict) -> bool:
    assert verdict.ruled_out == []
    assert verdict.confidence_ratio == 0
    return verdict.suspect == verdict.cause == "insufficient_evidence"


def test_twenty_steps_are_needed(tmp_path: Path) -> None:
    under_profiler = f"window ( {' | '.join([HEALTHY] * 20)} )"
    for number, (counts, window) in enumerate((([19], ""), ([100, 5], ""), ([2], under_profiler))):
        run = RunBuilder(tmp_path / str(number))
        for rank, count in enumerate(counts):
            run.rank(rank).draw(HEALTHY, count).draw(window)
        verdict = diagnose(run.open())
        assert is_abstention(verdict)
        if counts == [19]:
            assert "19 complete steps recorded" in verdict.headline
            assert verdict.step_count == 19
    enough = diagnose_steps(RunBuilder(tmp_path / "enough"), HEALTHY, 20)
    assert enough.suspect != "insufficient_evidence"


@pytest.mark.parametrize(("dropped", "abstains"), [(4, False), (5, True)])
def test_lost_records(new_run: RunMaker, dropped: int, abstains: bool) -> None:
    run = new_run()
    run.rank(dropped_count=dropped).draw(HEALTHY, 100)  # 400 records: 1% are 4
    verdict = diagnose(run.open())
    assert (verdict.suspect == "insufficient_evidence") is abstains
    assert any(f"{dropped} records dropped" in note for note in verdict.notes)


def test_no_step_was_recorded(new_run: RunMaker) -> None:
    verdict = diagnose_steps(new_run(), "wait 5 | h2d 10")
    assert is_abstention(verdict)
    assert "stepscope.step()" in verdict.headline


def test_a_failed_probe_explains_missing_steps(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(notes=["optimizer steps: switched off by an error"]).draw("predict 1", 50)
    run.status(JobState.STOPPED, notes=["the GPU cannot be sampled"])
    verdict = diagnose(run.open())
    assert "switched off by an error" in verdict.headline
    notes = {"Process 1000: optimizer steps: switched off by an error", "the GPU cannot be sampled"}
    assert notes <= set(verdict.notes)


def test_a_job_that_was_killed(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 60 | forward 30 | optimizer 10", 50).draw("wait 60 | forward ?")
    verdict = diagnose(run.open())
    assert verdict.suspect == "data_pipeline"
    assert verdict.share_ratio == pytest.approx(0.6)


def test_evaluation_during_training_contributes_to_a_healthy_job(new_run: RunMaker) -> None:
    run = new_run()
    rank = run.rank().evaluation(100, "wait 5 | predict 45")
    rank.draw(HEALTHY, 20).evaluation(10, "wait 5 | predict 44").draw(HEALTHY, 20)
    rank.evaluation(100, "wait 5 | predict 45")
    verdict = diagnose(run.open())
    share = (1 + 490 + 1) / (36 * 100 + 492)
    assert verdict.suspect == "healthy"
    (cause,) = verdict.also
    assert (cause.cause, cause.share_ratio) == ("evaluation", pytest.approx(share))
    assert f"Evaluation takes {share:.0%} of step and evaluation time" in cause.text
    fix = next(fix for fix in verdict.fixes if fix.title == "Evaluate less often")
    assert fix.prediction.saving_ratio == pytest.approx(0.9 * share, abs=1e-3)


@pytest.mark.parametrize(("step_count", "suspect"), [(12, "healthy"), (8, "framework_overhead")])
def test_evaluation_is_accused_where_evaluating_less_often_saves_much(
    new_run: RunMaker, step_count: int, suspect: str
) -> None:
    """200 ms after every so many steps of 100 ms: 14% or 20% of the time."""
    run = new_run()
    rank = run.rank()
    for _ in range(96 // step_count):
        rank.draw(HEALTHY, step_count).evaluation(6, "wait 5 | predict 28")
    assert diagnose(run.open()).suspect == suspect


# --- several ranks --------------------------------------------------------------------------------


def test_ranks_count_by_the_time_of_their_steps(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(0).draw("wait 10 | forward 80 | optimizer 10", 50)
    run.rank(1).draw("wait 130 | forward 60 | optimizer 10", 50)
    verdict = diagnose(run.open())
    assert verdict.phases["data_wait"] == pytest.approx(140 / 300)
    assert verdict.step_count == 90


def test_the_rank_that_waits_longest_is_the_one_to_fix(new_run: RunMaker) -> None:
    run = new_run(cores=8)
    for rank, wait in enumerate((1, 100)):
        process = run.rank(rank, workers=1).draw(f"wait {wait} | forward 30 | optimizer 10", 50)
        process.workers[0].draw(f"fetch {wait + 40}", 50)
    run.metric("job_cpu_cores", 2.2).metric("outside_cpu_cores", 0)
    opened = run.open()
    verdict = diagnose(opened)
    assert [rank.name for rank in opened.ranks] == ["rank 0", "rank 1"]
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "too_few_workers")
    # 140 ms of fetching behind 40 ms of other work
    assert verdict.fixes[0].title == "Use 4 DataLoader workers instead of 1"
    assert verdict.evidence[1].text.startswith("4 workers instead of 1")


def test_only_the_training_threads_of_all_nodes_make_steps(new_run: RunMaker) -> None:
    run = new_run()
    for rank, node in enumerate(("n0", "n1")):
        process = run.rank(rank, node=node).draw(HEALTHY, 30)
        process.thread().draw("forward 3 | communication 5", 300)
    opened = run.open()
    verdict = diagnose(opened)
    assert sorted(opened.nodes) == ["n0", "n1"]
    assert (verdict.step_count, verdict.phases["communication"]) == (54, 0)
