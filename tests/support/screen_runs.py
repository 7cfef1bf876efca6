"""Runs whose screens have something to say: late ranks, outliers, a stuck job, a line of code."""

from __future__ import annotations

from pathlib import Path

from stepscope.schema import STUCK, CalledCollective, RankAccount, RankState, StuckNode
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder
from tests.support.boosted_runs import draw_boosted

JOBS = {
    "slow": ("wait 600 | forward 120 | backward 200 | optimizer 80", 0.4),
    "fixed": ("wait 50 | forward 300 | backward 480 | optimizer 170", 0.88),
}
"""Steps of one second, and the utilization of the GPU; the fixed job waits for 5% of each."""
SECOND_NS = 1_000_000_000
LINE = "images = augment(images)"
CODE = {"augment": f"main > augment # {LINE}", "main": "main"}
RUNS = {"late", "boosted", "outlier", *JOBS, "stuck", "lines"}
STEPS = 520
"""More samples are taken than LowGPUUtilization skips."""


def draw_runs(root: Path) -> None:
    """Draw all of them below a directory, each with its name."""
    run = RunBuilder(root / "late")
    for number in range(3):
        wait, exchange = (21, 19) if number == 1 else (10, 30)
        run.rank(number, node=f"n{number}").draw(
            f"wait {wait} | forward 30 | communication {exchange} | optimizer 10", 60
        )
    run.write()
    draw_boosted(root / "boosted")
    slow = RunBuilder(root / "outlier")
    for number in range(2):
        rank = slow.rank(number).draw(JOBS["fixed"][0], 40)
        rank.draw("wait 9000 | forward 300 | optimizer 170", number).draw(JOBS["fixed"][0], 40)
    slow.write()
    for name, (step, gpu) in JOBS.items():
        run = RunBuilder(root / name)
        run.rank(workers=2).draw(step, STEPS)
        run.metric("gpu_busy_ratio", gpu, device="0").write()
    draw_stuck(root / "stuck")
    run = RunBuilder(root / "lines", code=CODE)
    for number, late in enumerate((1, 60)):
        step = f"do:augment {late} | forward 10 ( do:main 8 ) | communication {70 - late}"
        run.rank(number, world_size=2).draw(f"{step} | optimizer 5", 60)
    run.write()


def draw_stuck(path: Path) -> None:
    """Draw a job that ended while rank 0 waited for rank 1 in its fifth collective."""
    run = RunBuilder(path)
    for number in range(2):
        run.rank(number).draw("forward 300 | communication 100 | optimizer 100", 60)
    run.write()
    ranks = [
        RankAccount(
            rank=rank,
            process="",
            pid=1,
            state=RankState.ANSWERED,
            calls=[
                CalledCollective(group="0", number=n, kind="all_reduce", has_ended=n < 5)
                for n in range(1, 6 - rank)
            ],
        )
        for rank in range(2)
    ]
    times = {"since_ns": 100 * SECOND_NS, "seen_ns": 700 * SECOND_NS, "limit_ns": SECOND_NS}
    account = StuckNode(node="n0", has_ended=True, groups={"0": [0, 1]}, ranks=ranks, **times)
    with RunWriter(path, "n0") as writer:
        writer.put_document(STUCK, "n0", account)
