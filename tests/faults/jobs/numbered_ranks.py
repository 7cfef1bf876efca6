"""Ranks that announce every step in a file of their own before they take it.

    numbered_ranks.py TRUTH [--ranks N]

Each process has a number: its steps are number * STRIDE + 0, 1, 2, …, and the file
`TRUTH/<number>-<pid>` holds the count of the steps that it has finished, as eight bytes. A killed
rank is replaced by one with the next number, as an elastic launcher does. The job ends when
`TRUTH/end` exists.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

STRIDE = 1_000_000
STEP_S = 0.002


def take_steps(truth: Path, number: int) -> None:
    """Take steps until the job is to end."""
    import stepscope

    name = truth / f"{number}-{os.getpid()}"
    descriptor = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600)
    for count in range(STRIDE):
        os.pwrite(descriptor, count.to_bytes(8, "little"), 0)
        stepscope.step(number * STRIDE + count)
        if (truth / "end").exists():
            break
        time.sleep(STEP_S)


def supervise(truth: Path, rank_count: int) -> None:
    """Run the ranks, and replace those that are killed."""
    ranks: list[subprocess.Popen[bytes]] = []
    number = 0
    while not (truth / "end").exists():
        ranks = [rank for rank in ranks if rank.poll() is None]
        while len(ranks) < rank_count:
            command = [sys.executable, __file__, str(truth), "--number", str(number)]
            ranks.append(subprocess.Popen(command))
            number += 1
        time.sleep(0.01)
    for rank in ranks:
        rank.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("truth", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--number", type=int)
    arguments = parser.parse_args()
    if arguments.number is None:
        supervise(arguments.truth, arguments.ranks)
    else:
        take_steps(arguments.truth, arguments.number)


if __name__ == "__main__":
    main()
