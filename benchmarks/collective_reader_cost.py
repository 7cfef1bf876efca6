"""Cost of reading PyTorch's flight recorder, for the training thread of a job with 1,000
collectives per second.

Ranks exchange a small tensor over gloo, about 1,000 times per second. In each the reader is
switched on and off in turn, in pairs of blocks in random order, so that both meet the same load of
the machine; a block is long enough for two dumps of the recorder. The figures are the CPU time of
the training thread and the wall time per collective, on against off: the median of the pairs, with
the interval that contains nine tenths of the medians of resampled pairs. On a machine with other
work, only the CPU time counts, and that of one rank (`--ranks 1`) has the least noise, as it waits
for no other.

python -m benchmarks.collective_reader_cost [--blocks 40] [--block-s 2.5] [--ranks 2]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

RATE_HZ = 1000
RESAMPLINGS = 2000


def main() -> None:
    """Run the ranks, and print the ratio of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--block-s", type=float, default=2.5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as-rank", action="store_true")
    options = parser.parse_args()
    if options.as_rank:
        print(json.dumps(measure_rank(options.blocks, options.block_s)))
        return
    environment = {
        **os.environ,
        "WORLD_SIZE": str(options.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(random.randint(20000, 40000)),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", __spec__.name, "--as-rank"]
    command += ["--blocks", str(options.blocks), "--block-s", str(options.block_s)]
    ranks = [
        subprocess.Popen(
            command, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(options.ranks)
    ]
    try:
        results = [json.loads(rank.communicate()[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    summary = [summarize(result) for result in results]
    for number, figures in enumerate(summary):
        rate_hz = 1 / median(block["wall"] for block in results[number])
        print(f"rank {number}  {rate_hz:.0f} collectives per second")
        for name, (ratio, low, high) in figures.items():
            print(f"rank {number}  {name:<9} {ratio - 1:+.2%}  [{low - 1:+.2%}, {high - 1:+.2%}]")
    if options.json is not None:
        options.json.write_text(json.dumps({"blocks": results, "ratios": summary}, indent=1))


def measure_rank(block_count: int, block_s: float) -> list[dict[str, float]]:
    """Measure the blocks of one rank; all ranks have the same order."""
    import torch
    import torch.distributed as dist

    from stepscope.capture import session
    from stepscope.capture.frameworks.pytorch.flight_recorder import reader

    spool = tempfile.mkdtemp(prefix="stepscope-reader-")
    session.attach(spool)
    dist.init_process_group("gloo")
    order = random.Random(1)
    tensor, weights = torch.ones(64), torch.ones(160, 160)
    torch.set_num_threads(1)
    repetitions = _count_products(weights)
    blocks = []
    for number in range(2 * block_count):
        if number % 2 == 0:
            first = order.random() < 0.5
        is_on = first == (number % 2 == 0)
        if is_on:
            reader.keep_reading()
        dist.barrier()
        count = round(RATE_HZ * block_s)
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        for _ in range(count):
            for _ in range(repetitions):
                weights @ weights
            dist.all_reduce(tensor)
        wall_s, cpu_s = time.perf_counter() - wall_s, time.thread_time() - cpu_s
        reader._stop()
        for path in Path(spool).glob("*/*.dump"):
            path.unlink()
        blocks.append({"is_on": is_on, "wall": wall_s / count, "cpu": cpu_s / count})
    shutil.rmtree(spool)
    return blocks


def _count_products(weights: Any) -> int:
    """Return how many products take six tenths of the time of a collective at `RATE_HZ`."""
    cpu_s, count = time.thread_time(), 500
    for _ in range(count):
        weights @ weights
    return max(1, round(0.6 / RATE_HZ * count / (time.thread_time() - cpu_s)))


def summarize(blocks: list[dict[str, float]]) -> dict[str, tuple[float, float, float]]:
    """Return the ratio of on to off of each figure, with the ends of its interval."""
    figures = {}
    for name in ("cpu", "wall"):
        pairs = []
        for first, second in zip(blocks[::2], blocks[1::2], strict=True):
            on, off = (first, second) if first["is_on"] else (second, first)
            pairs.append(on[name] / off[name])
        generator = random.Random(2)
        resampled = sorted(
            median(generator.choices(pairs, k=len(pairs))) for _ in range(RESAMPLINGS)
        )
        low, high = resampled[RESAMPLINGS // 20], resampled[-RESAMPLINGS // 20]
        figures[name] = (median(pairs), low, high)
    return figures


if __name__ == "__main__":
    main()
