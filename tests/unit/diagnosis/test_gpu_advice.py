"""Advice and targets that need a GPU are given only where one was seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.diagnosis import Fix, Verdict, diagnose
from stepscope.diagnosis.advice import CAUSE_FIXES
from stepscope.diagnosis.fact_fixes import FACT_FIXES
from stepscope.diagnosis.job_facts import JobFacts
from stepscope.diagnosis.traces import trace_fixes
from stepscope.diagnosis.verdict import CAUSES
from stepscope.testing import RunBuilder
from tests.support.cause_runs import CAUSE_RUNS, COMPUTE

RunMaker = Callable[..., RunBuilder]
GPU_WORDS = re.compile(
    r"\bGPU|cuda|\bdevice\b|pin_memory|non_blocking|pinned|kornia|DALI|multiprocessor|tensor cores",
    re.IGNORECASE,
)
DEVICE_CAUSES = {
    "device_to_host_copies",
    "full_precision",
    "host_to_device_copies",
    "low_occupancy",
    "memory_allocation",
}
"""Causes that are times of a device: copies, kernels, allocations."""
DATA_RUN = CAUSE_RUNS["slow_augmentation"][1]


def speaks_of_gpu(texts: Iterable[Sequence[str]]) -> list[str]:
    return [part for text in texts for part in text if GPU_WORDS.search(part)]


def make_facts(*, has_gpus: bool) -> JobFacts:
    """Make the facts of a job of which nothing else is known."""
    unknown: dict[str, Any] = dict.fromkeys(JobFacts.__dataclass_fields__)
    flags = {"has_loop": True, "has_fused_attention": False}
    return JobFacts(**(unknown | flags | {"has_gpus": has_gpus}))


@pytest.mark.seed("DIAG-05")
def test_every_fix_of_the_catalogue_that_speaks_of_a_gpu_requires_one() -> None:
    for cause, fixes in CAUSE_FIXES.items():
        assert cause in DEVICE_CAUSES or not speaks_of_gpu(fixes), cause
    on_host, on_gpu = make_facts(has_gpus=False), make_facts(has_gpus=True)
    for cause, list_texts in FACT_FIXES.items():
        assert not speaks_of_gpu(list_texts(on_host)), cause
    assert speaks_of_gpu(text for make in FACT_FIXES.values() for text in make(on_gpu))


def test_fixes_for_traces_of_the_host_speak_of_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_fixes, "is_overhead_in_optimizer", lambda inputs: True)
    inputs: Any = SimpleNamespace(on_host=True, copies_without_waits=False)
    for cause in set().union(*CAUSES.values()) - DEVICE_CAUSES:
        assert not speaks_of_gpu(trace_fixes._list_texts(cause, inputs)), cause


def texts_of(fixes: Iterable[Fix]) -> list[tuple[str, str, str]]:
    changes = ((fix, " ".join(change.name for change in fix.changes)) for fix in fixes)
    return [(fix.title, fix.instructions, names) for fix, names in changes]


def test_no_verdict_without_a_gpu_advises_one(judge_cause: Callable[[str], Verdict]) -> None:
    for cause in CAUSE_RUNS.keys() - DEVICE_CAUSES:
        verdict = judge_cause(cause)
        assert not speaks_of_gpu(texts_of(verdict.fixes)), cause
        assert not verdict.targets, cause


@pytest.mark.parametrize(
    ("devices", "is_sampled", "has_targets"),
    [(None, True, True), (["cuda"], False, True), (["cpu"], True, False), (None, False, False)],
)
@pytest.mark.seed("DIAG-08")
def test_targets_of_a_slow_pipeline_where_the_job_uses_a_gpu(
    new_run: RunMaker, devices: list[str] | None, is_sampled: bool, has_targets: bool
) -> None:
    """The parameters say where they are; only where they do not, the GPUs of the node count."""
    run = new_run()
    DATA_RUN(run)
    if devices is not None:
        run.processes[0].fact(
            "optimizer", name="SGD", parameter_count=9, tensor_count=1, devices=devices
        )
    if is_sampled:
        run.metric("gpu_busy_ratio", 0.4, device="0")
    verdict = diagnose(run.open())
    texts = [target.text for target in verdict.targets]
    expected = [
        "GPU utilization of 85% to 90% while training",
        "data loading below 20% of step time",
        "no issue found by DataloaderBottleneck and LowGPUUtilization",
    ]
    assert texts == (expected if has_targets else [])
    titles = [fix.title for fix in verdict.fixes]
    assert ("Move augmentation to the GPU" in titles) is has_targets


def test_other_suspects_have_no_targets(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"wait 2 | {COMPUTE} | communication 40", 60)
    run.metric("gpu_busy_ratio", 0.4, device="0")
    verdict = diagnose(run.open())
    assert verdict.suspect == "communication"
    assert not verdict.targets
