"""A drawn run for each cause. Times are milliseconds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.diagnosis import Verdict, diagnose
from stepscope.testing import RunBuilder

GET = "fetch > Rows.__getitem__"
LOOP = "main > train"
HOOKED_CALL = " > ".join(
    f"Module._call_impl{function}@torch/nn/modules/module.py"
    for function in ("", ".<locals>.inner")
)
"""Call of a module with hooks."""
CODE = {
    "read": f"{GET} > fetch_row > get@requests/api.py",
    "decode": f"{GET} > read_table@pyarrow/parquet/core.py",
    "augment": f"{GET} > Compose.__call__ > Mask.__call__",
    "tokenise": f"{GET} > encode@tiktoken/core.py",
    "lookup": f"{GET} > lookup",
    "collate": "fetch > collate_rows",
    "sync": f"{LOOP} # total += loss.item()",
    "log": f"{LOOP} # print(step, total)",
    "python": f"{LOOP} > schedule # rate = base / step",
    "sleep": f"{LOOP} > throttle<call 1> # time.sleep(max(0, remaining))",
    "hook": f"{LOOP} > {HOOKED_CALL} > record # output.std()",
    "batch": f"{LOOP} > get_batch # x = data[i : i + n]",
    "nodes": f"{LOOP} > LoaderIterator.next@torchdata/nodes/loader.py > Queue.get@python:queue.py",
    "queue": f"{LOOP} > Queue.get@python:queue.py > Condition.wait@python:threading.py",
    "pool": f"{LOOP} > Pool.map@python:multiprocessing/pool.py > Event.wait@python:threading.py",
    "service": f"{LOOP} > reward > urlopen@python:urllib/request.py > readinto@python:socket.py",
    "program": f"{LOOP} > score > run@python:subprocess.py > select@python:selectors.py",
    "coroutine": f"{LOOP} > select@python:selectors.py > answer > sleep@python:asyncio/tasks.py",
    "lock": f"{GET} # with self.lock:",
    "profile": f"{LOOP} > profile.events@torch/autograd/profiler.py",
    "model": f"{LOOP} > Module.__call__@torch/nn/modules/module.py",
}

SETTINGS: dict[str, Any] = {
    "step_count": 1,
    "anomaly_detection": False,
    "deterministic_algorithms": False,
    "cudnn_benchmark": False,
    "float32_matmul_precision": "highest",
    "intra_op_threads": 1,
    "inter_op_threads": 1,
    "trace_function": None,
    "profile_function": None,
    "traces_allocations": False,
    "variables": {},
}
"""Recorded settings of a job without debug switches."""
COMPUTE = "forward 20 | backward 15 | optimizer 5"
SMALL = " | ".join(["op:add 0.015"] * 300)
MEDIUM = " | ".join(["op:mm 0.03 | do 0.06"] * 200)


def draw_inline_batches(samples: str, *, share: float = 1.0) -> Callable[[RunBuilder], None]:
    """Draw a loader without workers that creates each batch in 60 ms."""

    def draw(run: RunBuilder) -> None:
        run.rank(workers=0).draw(f"wait ( fetch={share} 60 ( {samples} ) ) | {COMPUTE}", 60)

    return draw


def draw_steps(step: str, **facts: object) -> Callable[[RunBuilder], None]:
    def draw(run: RunBuilder) -> None:
        process = run.rank().draw(step, 60)
        for fact, fields in facts.items():
            process.fact(fact, **fields)  # type: ignore[arg-type]

    return draw


def draw_with_window(step: str, window: str) -> Callable[[RunBuilder], None]:
    def draw(run: RunBuilder) -> None:
        run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)

    return draw


def draw_small_batch(run: RunBuilder) -> None:
    draw_with_window(COMPUTE, f"forward 20 ( {SMALL} ) | optimizer ( op:step 1 )")(run)
    process = run.processes[0]
    process.fact("model", model=1, parameter_count=1000, dtypes=["float32"])
    for name, samples in (("x", 4), ("x", 2)):
        inputs = [{"name": name, "shape": [samples, 64], "dtype": "float32"}]
        process.fact("model_inputs", model=1, inputs=inputs)


def draw_padding(run: RunBuilder) -> None:
    """Draw passes with 80% of the step over rows of 48 positions, of which each batch needs 12."""
    window = "forward 40 ( op:mm 40 ) | backward 40 ( op:mm 40 ) | optimizer 20 ( op:add 20 )"
    draw_with_window("forward 40 | backward 40 | optimizer 20", window)(run)
    for batch in range(4):
        counts = {"rows": 8, "length": 48, "used_length": 12, "used_count": 80}
        run.processes[0].fact("padding", mask="attention_mask", batch=batch, **counts)


def draw_anomaly_detection(run: RunBuilder) -> None:
    """Draw 50 nodes, each with a capture of 0.4 ms and a check of 0.2 ms, in steps of 60 ms."""
    node = "op:autograd::engine::evaluate_function:Mm 0.5 ( op:mm 0.3 | op:aten::isnan 0.2 )"
    window = f"forward 30 ( op:mm 30 ) | backward 25 ( {' | '.join([node] * 50)} ) | optimizer 5"
    draw_with_window("forward 30 | backward 25 | optimizer 5", window)(run)
    capture = {"depth": 4, "capture_ns": 400_000, "frame_ns": 0}
    settings = {**SETTINGS, "anomaly_detection": True, "stack_capture": capture}
    run.processes[0].fact("settings", **settings)


def draw_too_few_workers(run: RunBuilder) -> None:
    process = run.rank(workers=1).draw(f"wait=0 60 | {COMPUTE}", 60)
    process.workers[0].draw("fetch 100", 60)
    run.metric("job_cpu_cores", 1.4).metric("outside_cpu_cores", 0)


def draw_too_many_workers(run: RunBuilder) -> None:
    """Draw 20 workers on 8 cores, each of which waits for a core for 75 of 100 ms per batch."""
    process = run.rank(workers=20).draw(f"wait=0 60 | {COMPUTE}", 60)
    worker = process.workers[0].draw("fetch 100", 60)
    worker.thread().draw("run_queue=75000000 100", 60)
    worker.fact("stack_sampler", period_ns=100_000_000, counts_delays=True)
    run.metric("job_cpu_cores", 8).metric("outside_cpu_cores", 0)


def draw_inline_preparation(run: RunBuilder) -> None:
    draw_steps(f"do:batch 60 | {COMPUTE}")(run)
    run.metric("job_cpu_cores", 1).metric("outside_cpu_cores", 0)


def draw_worker_startup(run: RunBuilder) -> None:
    process = run.rank(workers=2)
    for _ in range(20):
        process.draw(f"start 80 | wait 40 | {COMPUTE}").draw(f"wait=1 1 | {COMPUTE}", 2)
        process.draw("exhausted 5")
    process.workers[0].draw("fetch 10", 60)


def draw_batch_handover(run: RunBuilder) -> None:
    process = run.rank(workers=2).draw(f"wait=2 60 | {COMPUTE}", 60)
    process.workers[0].draw("fetch 10 | do 90", 60)


def draw_cpu_contention(run: RunBuilder) -> None:
    process = run.rank().draw(COMPUTE, 60)
    run.metric("outside_cpu_cores", 6).metric("job_cpu_cores", 2)
    run.metric("process_runqueue_ratio", 0.6, device=str(process.info.pid))


def draw_heavy(run: RunBuilder) -> None:
    step = "forward 100 | backward 200 | optimizer 10"
    draw_with_window(
        step, "forward ( op:mm 100 ) | backward ( op:mm 200 ) | optimizer ( op:a 10 )"
    )(run)
    run.metric("process_cpu_cores", 1, device=str(run.processes[0].info.pid))


def draw_gradient_exchange(run: RunBuilder) -> None:
    for rank in range(2):
        process = run.rank(rank).ddp(exchange_ms=40, hidden_ms=10, compute_ms=30)
        process.draw("forward 30 | backward 60 | optimizer 10", 60)


def draw_gradient_accumulation(run: RunBuilder) -> None:
    """Draw three exchanges of 20 ms per step, each with 10 ms of compute."""
    piece = "forward 10 | backward 30"
    for rank in range(2):
        process = run.rank(rank).ddp(
            exchange_ms=20,
            hidden_ms=0,
            compute_ms=10,
            pass_count=30,
            exchange_count=30,
            step_count=10,
        )
        process.draw(f"{piece} | {piece} | {piece} | optimizer 10", 60)


def draw_straggler(run: RunBuilder) -> None:
    """Draw rank 1 with 100 ms of compute, the other ranks with 40 ms."""
    for rank in range(3):
        passes = "forward 80 | backward 15" if rank == 1 else "forward 20 | backward 15"
        waiting = "" if rank == 1 else " | communication 60"
        run.rank(rank).draw(f"{passes}{waiting} | optimizer 5", 60)


def draw_uneven_ranks(run: RunBuilder) -> None:
    """Draw two ranks that alternate in having 40 ms more to compute."""
    for rank in range(2):
        process = run.rank(rank)
        for step in range(60):
            forward, waiting = (60, 10) if step % 2 == rank else (20, 50)
            process.draw(f"forward {forward} | communication {waiting} | optimizer 5")


def draw_cpu_limit(run: RunBuilder) -> None:
    process = run.rank().draw(COMPUTE, 60)
    run.metric("outside_cpu_cores", 0).metric("job_cpu_cores", 0.5)
    run.metric("cgroup_throttled_ratio", 0.6)
    run.metric("process_runqueue_ratio", 0.6, device=str(process.info.pid))


def draw_evaluation(run: RunBuilder) -> None:
    """Draw an evaluation of 300 ms after every ten steps of 40 ms."""
    process = run.rank()
    for _ in range(10):
        process.draw(f"wait 1 | {COMPUTE}", 10).draw("predict 300")


def draw_memory_leak(run: RunBuilder) -> None:
    """Draw Python after each step that takes 1 ms longer each time, with 1 MB more memory."""
    process = run.rank()
    for step in range(100):
        process.draw(f"{COMPUTE} | do:python {step}")
    run.metric("process_memory_bytes", lambda s: 1e9 + 20e6 * s, device=str(process.info.pid))


CAUSE_RUNS: dict[str, tuple[str, Callable[[RunBuilder], None]]] = {
    "slow_reads": (
        "data_pipeline",
        draw_inline_batches("samples ( do:read 50 | do:augment 10 )", share=0.1),
    ),
    "slow_decode": (
        "data_pipeline",
        draw_inline_batches("samples ( do:decode 50 | do:augment 10 )"),
    ),
    "slow_augmentation": (
        "data_pipeline",
        draw_inline_batches("samples ( do:decode 20 | do:augment 40 )"),
    ),
    "slow_tokenisation": ("data_pipeline", draw_inline_batches("samples ( do:tokenise 60 )")),
    "slow_collate": (
        "data_pipeline",
        draw_inline_batches("samples ( do:decode 20 ) | collate ( do:collate 40 )"),
    ),
    "slow_dataset": ("data_pipeline", draw_inline_batches("samples ( do:lookup 60 )")),
    "unknown": ("data_pipeline", draw_steps(f"wait=0 60 | {COMPUTE}")),
    "too_few_workers": ("data_pipeline", draw_too_few_workers),
    "too_many_workers": ("data_pipeline", draw_too_many_workers),
    "worker_startup": ("data_pipeline", draw_worker_startup),
    "batch_handover": ("data_pipeline", draw_batch_handover),
    "inline_data_preparation": ("data_pipeline", draw_inline_preparation),
    "slow_input_pipeline": ("data_pipeline", draw_steps(f"do:nodes 60 | {COMPUTE}")),
    "waiting_for_a_thread": ("data_pipeline", draw_steps(f"do:queue 60 | {COMPUTE}")),
    "waiting_for_a_process": ("data_pipeline", draw_steps(f"do:pool 60 | {COMPUTE}")),
    "waiting_for_a_lock": ("data_pipeline", draw_inline_batches("samples ( do:lock 60 )")),
    "host_to_device_copies": ("data_pipeline", draw_steps(f"wait 1 | h2d 30 | {COMPUTE}")),
    "small_batch": ("framework_overhead", draw_small_batch),
    "tiny_operators": (
        "framework_overhead",
        draw_with_window(COMPUTE, f"forward 20 ( {SMALL} ) | optimizer ( op:step 1 )"),
    ),
    "dispatch_overhead": (
        "framework_overhead",
        draw_with_window(COMPUTE, f"forward 20 ( {MEDIUM} )"),
    ),
    "host_sync": ("framework_overhead", draw_steps(f"{COMPUTE} | do:sync 40 | do:log 5")),
    "logging": ("framework_overhead", draw_steps(f"{COMPUTE} | do:sync 5 | do:log 40")),
    "garbage_collection": (
        "framework_overhead",
        draw_steps(f"{COMPUTE} | garbage_collection:train.py:9=2 40 | do:log 5"),
    ),
    "debug_switch": ("framework_overhead", draw_anomaly_detection),
    "job_profiler": ("framework_overhead", draw_steps(f"{COMPUTE} | do:profile 40 | do:log 5")),
    "python_overhead": ("framework_overhead", draw_steps(f"{COMPUTE} | do:python 40 | do:log 5")),
    "model_callbacks": (
        "framework_overhead",
        draw_steps("wait 5 | forward 60 ( do:hook 40 ) | backward 15 | optimizer 5"),
    ),
    "sleeping": ("framework_overhead", draw_steps(f"{COMPUTE} | do:sleep 40 | do:log 5")),
    "waiting_for_a_service": ("framework_overhead", draw_steps(f"{COMPUTE} | do:service 40")),
    "waiting_for_a_program": ("framework_overhead", draw_steps(f"{COMPUTE} | do:program 40")),
    "waiting_for_a_coroutine": ("framework_overhead", draw_steps(f"{COMPUTE} | do:coroutine 40")),
    "checkpoint": ("framework_overhead", draw_steps(f"{COMPUTE} | save=2000000 40 | do:log 5")),
    "cpu_contention": ("framework_overhead", draw_cpu_contention),
    "cpu_limit": ("framework_overhead", draw_cpu_limit),
    "recompilation": (
        "framework_overhead",
        draw_steps("forward 60 ( compile=1 40 ) | backward 15 | optimizer 5"),
    ),
    "evaluation": ("framework_overhead", draw_evaluation),
    "memory_leak": ("framework_overhead", draw_memory_leak),
    "straggler": ("model", draw_straggler),
    "uneven_ranks": ("model", draw_uneven_ranks),
    "gradient_accumulation": ("communication", draw_gradient_accumulation),
    "compute": ("model", draw_heavy),
    "padding": ("model", draw_padding),
    "optimizer": (
        "model",
        draw_steps(
            "wait 5 | forward 20 | backward 15 | optimizer 60",
            optimizer={"name": "Adam", "parameter_count": 1_000_000, "tensor_count": 7},
        ),
    ),
    "gradient_exchange": ("communication", draw_gradient_exchange),
    "collectives": ("communication", draw_steps(f"{COMPUTE} | communication 20")),
}
"""Suspect and drawn run of each cause."""


@pytest.fixture(scope="session")
def judge_cause(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Verdict]:
    """Diagnose the drawn run of a cause, once for all tests."""

    @functools.cache
    def judge(cause: str) -> Verdict:
        run = RunBuilder(tmp_path_factory.mktemp("cause") / "run", code=CODE)
        CAUSE_RUNS[cause][1](run)
        return diagnose(run.open())

    return judge
