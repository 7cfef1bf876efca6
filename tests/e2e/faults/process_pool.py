"""Planted fault: a pool of processes decodes the batch of a step while the training waits for it.

The training thread waits in ``pool.map``; ``decode`` runs in the processes.
"""

import multiprocessing

import torch
from torch import nn

SUSPECT = "data_pipeline"
CAUSE = "waiting_for_a_process"

STEPS = 150
PROCESSES = 2
SUMS = 100_000


def decode(row):
    total = 0
    for number in range(SUMS):
        total += number & row
    return [float(total % 7)] * 32


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        for _ in range(STEPS):
            batch = torch.tensor(pool.map(decode, range(2 * PROCESSES)))
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
