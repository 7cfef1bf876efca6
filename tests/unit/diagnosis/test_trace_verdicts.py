"""Verdicts on drawn traces: what the simulated job waits for, in three severities."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from stepscope.cli.writers.verdict import write_verdict
from stepscope.diagnosis import Verdict
from stepscope.testing.traces import TraceJob
from tests.support.drawn_verdicts import (
    ELEMENTWISE,
    GEMM,
    PLAIN_GEMM,
    STEPS,
    Draw,
    compute,
    draw_steps,
    judge,
)


def to_text(verdict: Verdict) -> str:
    """Write a verdict as the terminal does, on one line."""
    out = Console(file=io.StringIO(), width=1_000)
    write_verdict(out, verdict)
    return out.file.getvalue()


def fetch_alone(job: TraceJob, severity: float) -> None:
    job.wait()
    job.fetch(20_000 * severity)
    compute(job)


def fetch_on_host(job: TraceJob, severity: float) -> None:
    job.fetch(20_000 * severity)
    job.operator("aten::mm", 20_000)


def fetch_from_workers(job: TraceJob, severity: float) -> None:
    job.wait()
    job.fetch(20_000 * severity, workers=True)
    compute(job)


def read_values(job: TraceJob, severity: float) -> None:
    """After each read the host prepares the next kernels alone."""
    for _ in range(round(20 * severity)):
        compute(job, 1_000, 1)
        job.item()
        job.python(800)


def launch_tiny_kernels(job: TraceJob, severity: float) -> None:
    compute(job, 5_000, 5)
    job.wait()
    for _ in range(round(500 * severity)):
        job.operator("aten::add", 15, kernel=(ELEMENTWISE, 3))
    job.wait()


def think_between_tiny_kernels(job: TraceJob, severity: float) -> None:
    """Run Python of the script once, for longer than it takes to call all of the kernels."""
    launch_tiny_kernels(job, 1.0)
    job.python(15_000 * severity)


def update_one_by_one(job: TraceJob, severity: float) -> None:
    compute(job, 10_000, 10)
    job.wait()
    with job.optimizer():
        for _ in range(round(500 * severity)):
            job.operator("aten::mul_", 15, kernel=(ELEMENTWISE, 3))
    job.wait()


def copy_pageable(job: TraceJob, severity: float) -> None:
    """Copy half of a batch in the spelling of CUDA, half in that of Intel."""
    job.copy(7_500 * severity, route="HtoD (Pageable -> Device)")
    job.copy(7_500 * severity, route="M2D (MEMORY(Unknown) -> DEVICE)")
    compute(job)
    job.wait()


def copy_pinned(job: TraceJob, severity: float) -> None:
    """Copy weights before each layer on the stream of the layers; the host launches ahead."""
    for _ in range(10):
        job.copy(1_500 * severity)
        compute(job, 2_000, 1)
    job.item()


def copy_blocking(job: TraceJob, severity: float) -> None:
    """Copy in an operator that waits, and prepare as long as that before the next kernel."""
    job.blocking_copy(8_000 * severity, route="HtoD (Pinned -> Device)")
    job.python(8_000 * severity)
    compute(job)


def copy_out_pinned(job: TraceJob, severity: float) -> None:
    """Offload each layer on the stream of the layers; nothing waits but the read at the end."""
    for _ in range(10):
        compute(job, 2_000, 1)
        job.copy(1_500 * severity, route="DtoH (Device -> Pinned)")
    job.item()


def copy_out_before_batch(job: TraceJob, severity: float) -> None:
    """The copy of the next batch is behind the last offloaded layers, and the host waits for it."""
    job.blocking_copy(1_000, route="HtoD (Pageable -> Device)")
    compute(job, 10_000, 10)
    job.copy(10_000 * severity, route="DtoH (Device -> Pinned)")


def copy_out_and_wait(job: TraceJob, severity: float) -> None:
    for _ in range(10):
        compute(job, 2_000, 1)
        job.blocking_copy(1_500 * severity, route="DtoH (Device -> Pinned)")


def allocate(job: TraceJob, severity: float) -> None:
    for _ in range(10):
        compute(job, 1_000, 1)
        job.allocate(700 * severity)
        job.allocate(700 * severity, "cudaFree")


def pin_memory(job: TraceJob, severity: float) -> None:
    """Pin new memory in each step, which the device does not wait for."""
    compute(job, 10_000, 10)
    job.allocate(10_000 * severity, "cudaHostAlloc")


def recompile(job: TraceJob, severity: float) -> None:
    compute(job)
    job.wait()
    job.compile(20_000 * severity)


def exchange(job: TraceJob, severity: float) -> None:
    with job.range("DistributedDataParallel.forward"):
        compute(job)
    job.collective("AllReduce", 20_000 * severity)
    job.join()
    compute(job, 1_000, 1)


def compute_plain(job: TraceJob, severity: float) -> None:
    compute(job, 20_000 * severity, name=PLAIN_GEMM)


def compute_in_few_blocks(job: TraceJob, severity: float) -> None:
    for _ in range(20):
        job.operator("aten::mm", 20, kernel=(GEMM, 1_000 * severity), **{"blocks per SM": 0.1})


def read_on_host(job: TraceJob, severity: float) -> None:
    """Read a value of each row, which two operators compute."""
    job.operator("aten::mm", 5_000)
    for _ in range(round(500 * severity)):
        job.operator("aten::abs", 5)
        job.operator("aten::max", 5)
        job.operator("aten::item", 5)
        job.python(5)


def update_on_host_by_steps(job: TraceJob, severity: float) -> None:
    """Update each tensor by operators that take its step count from a tensor, as Adam does."""
    job.operator("aten::mm", 5_000)
    with job.optimizer():
        for _ in range(round(500 * severity)):
            job.operator("aten::item", 5)
            job.operator("aten::mul_", 5)
            job.operator("aten::add_", 5)


def exchange_on_host(job: TraceJob, severity: float) -> None:
    """Send gradients in the hook of a parameter, as a communication hook does."""
    with job.range("DistributedDataParallel.forward"):
        job.operator("aten::mm", 20_000)
    store_gradient(job, 20_000 * severity)
    with job.range("gloo:all_reduce"):
        job.python(500)


def store_gradient(job: TraceJob, duration: float) -> None:
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    job.operator(name, duration)


def compile_on_host(job: TraceJob, severity: float) -> None:
    """Compile, with an operator of the compiler that takes long itself."""
    job.operator("aten::mm", 20_000)
    with job.range("_compile.compile_inner (dynamo_timed)"):
        job.operator("create_aot_dispatcher_function", 20_000 * severity)


def update_large_on_host(job: TraceJob, severity: float) -> None:
    job.operator("aten::mm", 10_000)
    with job.optimizer():
        job.operator("aten::mul_", 15_000 * severity)


@pytest.mark.parametrize(
    "severity",
    [0.6, pytest.param(2.0, marks=pytest.mark.extended("a larger share of the same cause"))],
)
@pytest.mark.parametrize(
    ("draw", "suspect", "cause"),
    [
        (fetch_alone, "data_pipeline", "too_few_workers"),
        (fetch_on_host, "data_pipeline", "too_few_workers"),
        (fetch_from_workers, "data_pipeline", "unknown"),
        (copy_pageable, "data_pipeline", "host_to_device_copies"),
        (copy_pinned, "data_pipeline", "host_to_device_copies"),
        (copy_blocking, "data_pipeline", "host_to_device_copies"),
        (copy_out_pinned, "framework_overhead", "device_to_host_copies"),
        (copy_out_before_batch, "framework_overhead", "device_to_host_copies"),
        (copy_out_and_wait, "framework_overhead", "host_sync"),
        (read_values, "framework_overhead", "host_sync"),
        (launch_tiny_kernels, "framework_overhead", "tiny_operators"),
        (think_between_tiny_kernels, "framework_overhead", "unknown"),
        (update_one_by_one, "framework_overhead", "tiny_operators"),
        (allocate, "framework_overhead", "memory_allocation"),
        (pin_memory, "framework_overhead", "long_calls"),
        (recompile, "framework_overhead", "recompilation"),
        (exchange, "communication", "gradient_exchange"),
        (compute_plain, "model", "full_precision"),
        (compute_in_few_blocks, "model", "low_occupancy"),
        (read_on_host, "framework_overhead", "host_sync"),
        (update_on_host_by_steps, "framework_overhead", "tiny_operators"),
        (update_large_on_host, "model", "optimizer"),
        (compile_on_host, "framework_overhead", "recompilation"),
        (exchange_on_host, "communication", "gradient_exchange"),
    ],
)
def test_the_cause_of_a_drawn_job(
    tmp_path: Path, draw: Draw, suspect: str, cause: str, severity: float
) -> None:
    job = draw_steps(draw, severity)
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    assert verdict.step_count == STEPS
    has_device = any(event["cat"] == "kernel" for event in job.events)
    assert ("device" in to_text(verdict)) == has_device
    assert verdict.evidence_kind == "traced"
    assert sum(verdict.phases.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda job, _: compute(job), id="compute only"),
        pytest.param(lambda job, _: (job.fetch(300), compute(job)), id="fetches behind the device"),
        pytest.param(
            lambda job, _: (job.fetch(1_000, workers=True), compute(job), job.item()),
            id="one value per step",
        ),
        pytest.param(lambda job, _: store_gradient(job, 20_000), id="gradients of one process"),
        pytest.param(lambda job, _: copy_pinned(job, 0.2), id="short copies of weights"),
        pytest.param(lambda job, _: copy_out_pinned(job, 0.2), id="short copies to the host"),
    ],
)
def test_healthy_jobs(tmp_path: Path, draw: Draw) -> None:
    verdict = judge(tmp_path, draw_steps(draw, 1.0))
    assert (verdict.suspect, verdict.cause) == ("healthy", "none")


def test_shares_and_savings_of_fetches(tmp_path: Path) -> None:
    """A step waits 1 us, fetches 20 ms and computes 20 ms; its first kernel starts 25 us later."""
    verdict = judge(tmp_path, draw_steps(fetch_alone, 1.0))
    assert verdict.share_ratio == pytest.approx(0.5, abs=0.01)
    assert verdict.mean_step_ns == pytest.approx(40e6, rel=0.01)
    prediction = verdict.fixes[0].prediction
    assert prediction.is_bound
    assert prediction.saving_ratio == pytest.approx(0.5, abs=0.01)


def test_the_saving_of_reads_on_the_host(tmp_path: Path) -> None:
    """Each of the 500 reads of a step follows 20 us after the one before, except the first of all,
    and beside 5 ms of computation in the first of each step."""
    verdict = judge(tmp_path, draw_steps(read_on_host, 1.0))
    prediction = verdict.fixes[0].prediction
    reading, total = (500 * STEPS - 1) * 20, STEPS * (5_000 + 500 * 20)
    assert prediction.saving_ratio == pytest.approx(reading / total)


@pytest.mark.seed("DIAG-05")
def test_the_fix_of_copies_from_pinned_memory_is_a_stream(tmp_path: Path) -> None:
    """Pinning is the fix where the host waits for the copies."""
    pinned, pageable = tmp_path / "pinned", tmp_path / "pageable"
    pinned.mkdir()
    pageable.mkdir()
    assert "stream" in judge(pinned, draw_steps(copy_pinned, 1.0)).fixes[0].instructions
    assert "pin_memory" in judge(pageable, draw_steps(copy_pageable, 1.0)).fixes[0].instructions


def test_python_of_the_script_is_told_from_calls(tmp_path: Path) -> None:
    """Python takes 20 ms of each step in one gap; calls of 500 operators take 15 us each."""
    job = draw_steps(think_between_tiny_kernels, 4 / 3)
    verdict = judge(tmp_path, job)
    assert verdict.evidence[1].value == pytest.approx(20e6, rel=0.01)
    (calls,) = [cause for cause in verdict.also if cause.cause == "tiny_operators"]
    assert calls.share_ratio == pytest.approx(500 * 15 / (job.now / STEPS), rel=0.25)


def test_the_function_between_operators_is_named(tmp_path: Path) -> None:
    """The innermost with most of that time, and not one that it calls, or of another thread."""
    job = TraceJob()
    for _ in range(STEPS):
        with job.step(), job.function("train.py(3): train_step"):
            compute(job)
            job.wait()
            with job.function("data.py(7): augment"):
                for _ in range(3):
                    with job.function("data.py(9): flip"):
                        job.python(2_000)
                job.python(9_000)
    waiting = {"ph": "X", "cat": "python_function", "name": "queue.py(5): get", "tid": 5}
    job.events.append({**job.events[0], **waiting, "dur": job.now})
    verdict = judge(tmp_path, job)
    assert verdict.cause == "python_overhead"
    assert "15 ms of 35 ms per step lie in the function “data.py(7): augment”" in verdict.headline


def test_the_optimizer_is_named_where_it_has_the_overhead(tmp_path: Path) -> None:
    verdict = judge(tmp_path, draw_steps(update_one_by_one, 1.0))
    assert verdict.fixes[0].title == "Use a fused or foreach optimizer"


def test_steps_from_optimizer_steps(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(4):
        compute(job)
        with job.optimizer("SGD"):
            compute(job, 1_000, 1)
        job.wait()
        job.fetch(20_000)
    verdict = judge(tmp_path, job)
    assert verdict.step_count == 3
    assert verdict.suspect == "data_pipeline"
    assert "Optimizer.step#SGD.step" in " ".join(verdict.notes)


@pytest.mark.parametrize(
    ("name", "step_count"),
    [("iter {}", 5), ("epoch 3, iteration_{}/400", 5), ("iter {}0", 4), ("part {} of 7", 5)],
)
def test_steps_that_the_script_counts(tmp_path: Path, name: str, step_count: int) -> None:
    """Each fetches for 30 ms in a range of its own name and computes 20 ms in counted layers; steps
    of which only each tenth is a range are those between updates."""
    job = TraceJob()
    for number in range(5):
        with job.range(name.format(98 + number)):
            with job.range("get batch"):
                job.python(30_000)
            for layer in range(2):
                with job.range(f"layer_{layer}"):
                    compute(job, 10_000, 10)
            with job.optimizer("SGD"):
                compute(job, 400, 1)
            job.wait()
    verdict = judge(tmp_path, job)
    assert verdict.step_count == step_count
    assert ("The traces name no steps" in " ".join(verdict.notes)) == (step_count == 4)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "unknown")
    assert verdict.headline.endswith("per step lie in the range “get batch”, between operators.")
    assert verdict.evidence[-2].value == pytest.approx(30e6, rel=0.01)


def test_functions_of_another_tracer_explain_gaps(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(5):
        start = job.now
        job.python(30_000)
        times = {"ts": 1_700_000_000_000_000 + start, "dur": job.now - start}
        function = {"ph": "X", "pid": 100, "tid": 100, "name": "augment (data.py:5)"}
        job.events.append(function | times)
        job.operator("aten::mm", 10_000)
        with job.optimizer("SGD"):
            job.operator("aten::add_", 400)
    verdict = judge(tmp_path, job)
    assert verdict.cause == "python_overhead"
    assert "30 ms of 40.4 ms per step lie in the function “augment (data.py:5)”" in verdict.headline


def test_steps_from_a_repeated_range(tmp_path: Path) -> None:
    job = TraceJob()
    for number in range(4):
        with job.range(f"generate {number}"):
            compute(job)
            job.item()
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.step_count) == ("healthy", 3)
    assert "“generate *”" in " ".join(verdict.notes)


def test_without_any_step_the_whole_window_counts(tmp_path: Path) -> None:
    job = TraceJob()
    compute(job)
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.step_count) == ("healthy", 1)
    assert "start-up included" in " ".join(verdict.notes)


def test_a_fetch_of_another_thread_is_no_wait(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(6):
        with job.step():
            start = job.now
            compute(job)
            job.wait()
        fetch = {"ph": "X", "cat": "user_annotation", "pid": 100, "tid": 555, "args": {}}
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        times = {"ts": 1_700_000_000_000_000 + start, "dur": job.now - start}
        job.events.append(fetch | {"name": name} | times)
    assert judge(tmp_path, job).suspect == "healthy"


def test_what_starts_up_in_the_first_step_is_left_out(tmp_path: Path) -> None:
    job = TraceJob()
    for number in range(6):
        with job.step():
            if not number:
                job.compile(5_000_000)
            compute(job)
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.step_count) == ("healthy", 5)
    assert "left out as start-up" in " ".join(verdict.notes)


def test_an_optimizer_that_calls_a_closure_has_only_its_update(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(6):
        with job.step(), job.optimizer("Adam"):
            compute(job, 10_000, 10)
            job.operator(
                "autograd::engine::evaluate_function: MmBackward0", 40, kernel=(GEMM, 10_000)
            )
            job.operator("aten::_fused_adam_", 20, kernel=(ELEMENTWISE, 400))
    assert judge(tmp_path, job).cause == "none"


def test_two_optimizers_make_one_step(tmp_path: Path) -> None:
    """Only the last update before a fetch ends a step."""
    job = TraceJob()
    for _ in range(6):
        job.fetch(300)
        for _ in range(2):
            compute(job, 10_000, 10)
            with job.optimizer("Adam"):
                compute(job, 1_000, 1)
    verdict = judge(tmp_path, job)
    assert verdict.step_count == 5
    assert verdict.mean_step_ns == pytest.approx(22e6, rel=0.02)


def test_collectives_of_a_host_that_computes_meanwhile_are_hidden(tmp_path: Path) -> None:
    """gloo runs in a thread of its own below ten operators of 2 ms."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            start = job.now
            for _ in range(10):
                job.operator("aten::mm", 2_000)
        times = {"ts": 1_700_000_000_000_000 + start + 10_000, "dur": 9_900}
        gloo = {"ph": "X", "cat": "user_annotation", "pid": 100, "tid": 555, "args": {}}
        job.events.append(gloo | {"name": "gloo:all_reduce"} | times)
    verdict = judge(tmp_path, job)
    assert verdict.suspect == "healthy"
    assert verdict.share_ratio == pytest.approx(1, abs=0.01)
