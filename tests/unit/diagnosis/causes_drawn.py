"""A run for every cause. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.testing import RunBuilder

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
