"""Planted fault: of two trainings in one process, the second waits for slow reads.

It takes most of the time; the first one only computes.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "slow_reads"

STEPS = 200
BATCH = 8
READ_S = 0.004


class Records(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        time.sleep(READ_S)
        return torch.full((64,), float(index % 7))


def update(model, optimizer, batch):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def pretrain():
    model = nn.Sequential(*[nn.Linear(384, 384) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        update(model, optimizer, torch.randn(32, 384))


def finetune():
    model = nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in DataLoader(Records(), BATCH):
        update(model, optimizer, batch)


def main():
    torch.set_num_threads(1)
    pretrain()
    finetune()


if __name__ == "__main__":
    main()
