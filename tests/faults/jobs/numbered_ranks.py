"""Ranks that announce every step in a file of their own before they take it.

    numbered_ranks.py TRUTH [--ranks N] [--train]

Each process has a number: its steps are number * STRIDE + 0, 1, 2, …, and the file
`TRUTH/<number>-<pid>` holds the count of the steps that it has finished, as eight bytes. A killed
rank is replaced by one with the next number, as an elastic launcher does. The job ends when
`TRUTH/end` exists. With --train, each step trains a small model with PyTorch.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STRIDE = 1_000_000
STEP_S = 0.002


def make_training_step() -> Callable[[], None]:
    """Return a function that trains a small model for one step."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 16)).sum().backward()
        optimizer.step()

    return train


def take_steps(truth: Path, number: int, train: Callable[[], None] | None) -> None:
    """Take steps until the job is to end."""
    import stepscope

    name = truth / f"{number}-{os.getpid()}"
    descriptor = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600)
    for count in range(STRIDE):
        os.pwrite(descriptor, count.to_bytes(8, "little"), 0)
        if train is not None:
            train()
        stepscope.step(number * STRIDE + count)
        if (truth / "end").exists():
            break
        time.sleep(STEP_S)


def supervise(truth: Path, rank_count: int, options: list[str]) -> None:
    """Run the ranks, and replace those that are killed."""
    ranks: list[subprocess.Popen[bytes]] = []
    number = 0
    while not (truth / "end").exists():
        ranks = [rank for rank in ranks if rank.poll() is None]
        while len(ranks) < rank_count:
            command = [sys.executable, __file__, str(truth), "--number", str(number), *options]
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
    parser.add_argument("--train", action="store_true")
    arguments = parser.parse_args()
    if arguments.number is None:
        supervise(arguments.truth, arguments.ranks, ["--train"] if arguments.train else [])
    else:
        train = make_training_step() if arguments.train else None
        take_steps(arguments.truth, arguments.number, train)


if __name__ == "__main__":
    main()
