"""Every cause from a run that has it, with advice. Times are milliseconds."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from stepscope.analysis.code_stages import STAGE_NAMES
from stepscope.analysis.host_work import HostCause
from stepscope.diagnosis import Signals, Verdict, advice, causes, diagnose
from stepscope.diagnosis.causes import STAGE_CAUSES, WorkerEstimate, estimate_workers
from stepscope.testing import RunBuilder

RunMaker = Callable[..., RunBuilder]

COMPUTE = "forward 20 | backward 15 | optimizer 5"
SMALL = " | ".join(["op:add 0.015"] * 10)
MEDIUM = " | ".join(["op:mm 0.1 | do 0.4"] * 20)


def inline(samples: str, *, share: float = 1.0) -> Callable[[RunBuilder], None]:
    """A loader without workers makes each batch in 60 ms."""

    def draw(run: RunBuilder) -> None:
        run.rank(workers=0).draw(f"wait ( fetch={share} 60 ( {samples} ) ) | {COMPUTE}", 60)

    return draw


def steps(step: str, **facts: object) -> Callable[[RunBuilder], None]:
    def draw(run: RunBuilder) -> None:
        process = run.rank().draw(step, 60)
        for fact, fields in facts.items():
            process.fact(fact, **fields)  # type: ignore[arg-type]

    return draw


def with_window(step: str, window: str) -> Callable[[RunBuilder], None]:
    def draw(run: RunBuilder) -> None:
        run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)

    return draw


def too_few_workers(run: RunBuilder) -> None:
    process = run.rank(workers=1).draw(f"wait=0 60 | {COMPUTE}", 60)
    process.workers[0].draw("fetch 100", 60)
    run.metric("job_cpu_cores", 1.4).metric("outside_cpu_cores", 0)


def worker_startup(run: RunBuilder) -> None:
    process = run.rank(workers=2)
    for _ in range(20):
        process.draw(f"start 80 | wait 40 | {COMPUTE}").draw(f"wait=1 1 | {COMPUTE}", 2)
        process.draw("exhausted 5")
    process.workers[0].draw("fetch 10", 60)


def batch_handover(run: RunBuilder) -> None:
    process = run.rank(workers=2).draw(f"wait=2 60 | {COMPUTE}", 60)
    process.workers[0].draw("fetch 10", 60)


def cpu_contention(run: RunBuilder) -> None:
    process = run.rank().draw(COMPUTE, 60)
    run.metric("outside_cpu_cores", 6).metric("job_cpu_cores", 2)
    run.metric("process_runqueue_ratio", 0.5, device=str(process.info.pid))


def heavy(run: RunBuilder) -> None:
    step = "forward 100 | backward 200 | optimizer 10"
    with_window(step, "forward ( op:mm 100 ) | backward ( op:mm 200 ) | optimizer ( op:a 10 )")(run)
    run.metric("process_cpu_cores", 1, device=str(run.processes[0].info.pid))


def gradient_exchange(run: RunBuilder) -> None:
    for rank in range(2):
        process = run.rank(rank).ddp(exchange_ms=40, hidden_ms=10)
        process.draw("forward 30 | backward 60 | optimizer 10", 60)


DRAWN: dict[str, tuple[str, Callable[[RunBuilder], None]]] = {
    "slow_reads": ("data_pipeline", inline("samples ( do:read 50 | do:augment 10 )", share=0.1)),
    "slow_decode": ("data_pipeline", inline("samples ( do:decode 50 | do:augment 10 )")),
    "slow_augmentation": ("data_pipeline", inline("samples ( do:decode 20 | do:augment 40 )")),
    "slow_tokenisation": ("data_pipeline", inline("samples ( do:tokenise 60 )")),
    "slow_collate": (
        "data_pipeline",
        inline("samples ( do:decode 20 ) | collate ( do:collate 40 )"),
    ),
    "slow_dataset": ("data_pipeline", inline("samples ( do:lookup 60 )")),
    "too_few_workers": ("data_pipeline", too_few_workers),
    "worker_startup": ("data_pipeline", worker_startup),
    "batch_handover": ("data_pipeline", batch_handover),
    "inline_data_preparation": ("data_pipeline", steps(f"do:batch 60 | {COMPUTE}")),
    "host_to_device_copies": ("data_pipeline", steps(f"wait 1 | h2d 30 | {COMPUTE}")),
    "tiny_operators": (
        "framework_overhead",
        with_window(COMPUTE, f"forward 20 ( {SMALL} ) | optimizer ( op:step 1 )"),
    ),
    "dispatch_overhead": ("framework_overhead", with_window(COMPUTE, f"forward 20 ( {MEDIUM} )")),
    "host_sync": ("framework_overhead", steps(f"{COMPUTE} | do:sync 40 | do:log 5")),
    "logging": ("framework_overhead", steps(f"{COMPUTE} | do:sync 5 | do:log 40")),
    "garbage_collection": ("framework_overhead", steps(f"{COMPUTE} | do:gc 40 | do:log 5")),
    "python_overhead": ("framework_overhead", steps(f"{COMPUTE} | do:python 40 | do:log 5")),
    "checkpoint": ("framework_overhead", steps(f"{COMPUTE} | save=2000000 40 | do:log 5")),
    "cpu_contention": ("framework_overhead", cpu_contention),
    "compute": ("model", heavy),
    "optimizer": (
        "model",
        steps(
            "wait 5 | forward 20 | backward 15 | optimizer 60",
            optimizer={"name": "Adam", "parameter_count": 1_000_000, "tensor_count": 7},
        ),
    ),
    "gradient_exchange": ("communication", gradient_exchange),
    "collectives": ("communication", steps(f"{COMPUTE} | communication 20")),
}
"""Every cause: its suspect and a run that has it."""


@pytest.mark.parametrize("cause", DRAWN)
def test_causes(new_run: RunMaker, cause: str) -> None:
    suspect, draw = DRAWN[cause]
    run = new_run()
    draw(run)
    verdict = diagnose(run.signals())
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    assert verdict.fixes
    assert all(fix.title and fix.how and fix.why for fix in verdict.fixes)
    assert cause.replace("_", " ") in verdict.headline
    owned = sum(stage.share_ratio for stage in verdict.stages)
    assert owned <= verdict.share_ratio + 0.01


def documented() -> dict[str, set[str]]:
    text = (Path(__file__).parents[3] / "docs/verdict.md").read_text()
    table = text.split("## The causes")[1].split("**")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", table, re.MULTILINE)
    return {suspect: set(re.findall(r"`(\w+)`", row)) for suspect, row in rows}


def returned() -> set[str]:
    """Causes that appear as constants in `causes`, or that an analysis hands it."""
    found = {*STAGE_CAUSES.values()} | {c for c in get_args(HostCause) if c != "data_preparation"}
    found = (found - {"python"}) | {"python_overhead"}
    for node in ast.walk(ast.parse(inspect.getsource(causes))):
        named = isinstance(node, ast.keyword) and node.arg == "cause"
        assigned = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cause"
        if named or assigned or isinstance(node, ast.Return):
            choices = node.value
            parts = [choices.body, choices.orelse] if isinstance(choices, ast.IfExp) else [choices]
            found |= {p.value for p in parts if isinstance(p, ast.Constant) and p.value}
    return {cause for cause in found if isinstance(cause, str) and " " not in cause}


def test_every_cause_is_drawn_documented_and_has_advice() -> None:
    assert set().union(*documented().values()) == set(DRAWN)
    for suspect, those in documented().items():
        assert {DRAWN[cause][0] for cause in those} == {suspect}
    assert returned() == set(DRAWN)
    assert set(STAGE_CAUSES) == set(STAGE_NAMES)
    # More workers are advised from the loader's settings, all else from the table.
    assert set(advice._OWN) == set(DRAWN) - {"too_few_workers"}
    assert set(DRAWN) >= advice._PIPELINE_CAUSES


# --- how many workers -------------------------------------------------------------------------


def estimate(
    run: RunBuilder, *, wait: float, fetch: str, job_cores: float, ranks: int = 1, batches: int = 1
) -> WorkerEstimate:
    for _ in range(ranks):
        process = run.rank(workers=1)
        process.draw(" | ".join([f"wait {wait}"] * batches) + f" | {COMPUTE}", 50)
        process.workers[0].draw(fetch, 50 * batches)
    run.metric("job_cpu_cores", job_cores).metric("outside_cpu_cores", 0)
    signals: Signals = run.signals()
    found = estimate_workers(signals, signals.ranks[0])
    assert found is not None
    return found


def test_enough_workers_to_hide_behind_the_rest(new_run: RunMaker) -> None:
    # 40 ms of computing, batches of 100 ms: three workers make one every 33 ms.
    found = estimate(new_run(cores=8), wait=60, fetch="fetch 100", job_cores=1.4)
    assert (found.workers, found.data_ratio) == (3, 0)
    assert found.step_ns == pytest.approx(40e6)


def test_the_cores_are_the_limit(new_run: RunMaker) -> None:
    # Per step of 100 ms: 90 ms of CPU for the batch, 140 - 90 for all else, two cores: 70 ms.
    found = estimate(new_run(cores=2), wait=60, fetch="fetch=0.9 100", job_cores=1.4)
    assert found.workers == 2
    assert found.step_ns == pytest.approx((90 + 50) / 2 * 1e6)
    assert found.data_ratio == pytest.approx(1 - 40 / 70)


def test_reads_that_wait_need_no_cores(new_run: RunMaker) -> None:
    found = estimate(new_run(cores=4), wait=60, fetch="fetch=0.01 160", job_cores=0.4)
    assert (found.workers, found.step_ns) == (4, pytest.approx(40e6))


def test_ranks_of_a_node_share_its_cores(new_run: RunMaker) -> None:
    # Each of two ranks has two cores for 100 ms of batch and 40 ms of the rest: 70 ms.
    found = estimate(new_run(cores=4), wait=60, fetch="fetch 100", job_cores=2.8, ranks=2)
    assert (found.workers, found.step_ns) == (2, pytest.approx(70e6))


def test_a_worker_that_waits_for_a_core_needs_one(new_run: RunMaker) -> None:
    # 60 ms of CPU and 30 ms of waiting for a core make 90; 120 - 90 for all else; two cores.
    run = new_run(cores=2)
    run.metric("process_runqueue_ratio", 0.3, device="1100")  # the worker's pid
    found = estimate(run, wait=60, fetch="fetch=0.6 100", job_cores=1.2)
    assert (found.workers, found.step_ns) == (2, pytest.approx((90 + 30) / 2 * 1e6))


def test_micro_batches_are_made_one_after_the_other(new_run: RunMaker) -> None:
    # Two batches of 50 ms for 40 ms of computing
    found = estimate(new_run(), wait=30, fetch="fetch 50", job_cores=1.4, batches=2)
    assert (found.workers, found.step_ns) == (3, pytest.approx(40e6))


def test_no_estimate_without_what_it_rests_on(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(workers=1).draw(f"wait 60 | {COMPUTE}", 50)
    signals = run.signals()
    assert estimate_workers(signals, signals.ranks[0]) is None


def test_the_fixes_name_the_settings_of_the_run(new_run: RunMaker) -> None:
    run = new_run()
    too_few_workers(run)
    verdict = diagnose(run.signals())
    first = verdict.fixes[0]
    assert first.title == "use 3 DataLoader workers instead of 1"
    assert "num_workers=3" in first.how
    assert "8 cores" in first.why
    assert "about 40 ms, 0% of it waiting" in first.why
    assert any("num_workers=1, prefetch_factor=2" in e.text for e in verdict.evidence)


def test_prefetching_and_persistence_where_they_help(new_run: RunMaker) -> None:
    run = new_run()
    worker_startup(run)
    titles = [fix.title for fix in diagnose(run.signals()).fixes]
    assert "persistent workers" in titles
    assert "prefetch more" in titles


def test_evidence_of_the_input_pipeline(new_run: RunMaker) -> None:
    run = new_run()
    process = run.rank(workers=1).draw(f"wait=0 60 | wait=1 0 | {COMPUTE}", 50)
    process.workers[0].draw("fetch=0.5 40 ( transform:Mask=10 ) | do 40", 50)
    texts = [evidence.text for evidence in diagnose(run.signals()).evidence]
    assert "50% of the requests found no batch ready" in texts
    assert "making a batch takes 40 ms, 50% of it on the CPU" in texts
    assert "the workers were making batches 51% of the time" in texts
    assert "the transform Mask takes 25% of the time a batch takes" in texts


def test_evidence_of_lines_and_saves(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"{COMPUTE} | save=2000000 10 | do:sync 30 | do:log 10", 60)
    verdict: Verdict = diagnose(run.signals())
    assert verdict.cause == "host_sync"
    assert verdict.evidence[1].text == (
        "train.py:7 takes 75% of the time between phases: total += loss.item()"
    )
