"""Planted fault: one thread makes the batches, and computes for longer than a step.

The training thread waits in ``queue.get()``; ``make_batch`` runs in the other thread.
"""

import queue
import threading

import torch
from torch import nn

SUSPECT = "data_pipeline"
CAUSE = "waiting_for_a_thread"

STEPS = 150
BATCH = 64
SUMS = 100_000


def make_batch():
    total = 0
    for number in range(SUMS):
        total += number & 7
    return torch.randn(BATCH, 32) + total % 2


def fill(batches):
    for _ in range(STEPS):
        batches.put(make_batch())
    batches.put(None)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = queue.Queue(4)
    threading.Thread(target=fill, args=(batches,), daemon=True).start()
    while (batch := batches.get()) is not None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
