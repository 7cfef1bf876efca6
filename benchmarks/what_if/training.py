"""One training loop with and without its fix, in turn: timed without a profiler, and recorded.

    python -m benchmarks.what_if.training NAME DIRECTORY --rounds N

Writes the mean steps of each round into DIRECTORY/steps.json, and the trace of each round of the
loop without the fix into DIRECTORY/ROUND/rankR.json. `torchrun` starts it for several ranks.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from benchmarks.what_if.jobs import JOBS, Job

WARM_UP_STEPS = 8
TIMED_STEPS = 40
RECORDED_STEPS = 20


class TimedRound(msgspec.Struct, frozen=True, kw_only=True):
    """Mean steps of a round, in milliseconds."""

    before_ms: float
    fixed_ms: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=JOBS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = JOBS[arguments.name]
    if job.ranks > 1:
        dist.init_process_group("gloo")
    rounds = [
        _run_round(job, arguments.directory / str(number), number)
        for number in range(arguments.rounds)
    ]
    if int(os.environ.get("RANK", "0")) == 0:
        (arguments.directory / "steps.json").write_bytes(msgspec.json.encode(rounds))
    if job.ranks > 1:
        dist.barrier()
        os._exit(0)  # "terminate called without an active exception": some ends of gloo abort


def _run_round(job: Job, directory: Path, number: int) -> TimedRound:
    """Time the loop with and without its fix, and record it without, in random order."""
    directory.mkdir(parents=True, exist_ok=True)
    times: dict[str, float] = {}
    parts = ["before", "fixed", "record"]
    random.Random(number).shuffle(parts)  # the same order in all ranks
    for part in parts:
        if job.ranks > 1:
            dist.barrier()
        with closing(job.run(part == "fixed")) as loop:
            if part == "record":
                _record(loop, directory)
            else:
                times[f"{part}_ms"] = _time(loop)
    return TimedRound(**times)


def _time(loop: Iterator[None]) -> float:
    for _ in range(WARM_UP_STEPS):
        next(loop)
    start_s = time.perf_counter()
    for _ in range(TIMED_STEPS):
        next(loop)
    return (time.perf_counter() - start_s) / TIMED_STEPS * 1000


def _record(loop: Iterator[None], directory: Path) -> None:
    path = directory / f"rank{os.environ.get('RANK', '0')}.json"

    def export(profiler: Any) -> None:
        profiler.export_chrome_trace(str(path))

    # Otherwise threads that were started by the script are not recorded.
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WARM_UP_STEPS - 2, warmup=2, active=RECORDED_STEPS, repeat=1),
        on_trace_ready=export,
        experimental_config=config,
    ) as profiler:
        for _ in range(WARM_UP_STEPS + RECORDED_STEPS):
            next(loop)
            profiler.step()


if __name__ == "__main__":
    main()
