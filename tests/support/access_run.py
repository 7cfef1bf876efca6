"""A run whose every number is known: two ranks with a worker each, forty steps of 100 ms."""

from __future__ import annotations

from pathlib import Path

from stepscope.testing import RunBuilder

STEP = "wait=0 50 | forward 12 | do:loss 3 | backward 20 | optimizer 10 | do:log 5"
MS = 10**6
STEPS = 40


def draw(path: Path) -> RunBuilder:
    """Rank 1's steps are ten milliseconds longer, and its eighth wait is a slow one."""
    run = RunBuilder(
        path,
        code={
            "decode": "fetch > Rows.__getitem__ > decode",
            "loss": "main > train > loss",
            "log": "main > train > log",
        },
    )
    for number in range(2):
        rank = run.rank(number, workers=1)
        longer = STEP.replace("wait=0 50", "wait=0 60")
        if number == 0:
            rank.draw(STEP, STEPS)
        else:
            rank.draw(longer, 7).draw(longer.replace("wait=0 60", "wait=0 600"))
            rank.draw(longer, STEPS - 8)
        rank.workers[0].draw("fetch 80 ( samples ( do:decode 70 ) | collate 10 )", STEPS)
    run.metric("gpu_busy_ratio", lambda s: 0.2 if s < 2 else 1.0, device="0")
    run.metric("gpu_busy_ratio", 0.99, device="1")
    run.metric("cpu_busy_ratio", 0.5).metric("memory_used_bytes", 1 << 30)
    return run
