"""Planted fault, from outside: other processes keep the cores busy while this plain job trains.

The caller of this script starts ``BURNERS`` busy processes next to it.
"""

import argparse

import torch
from torch import nn

SUSPECT = "framework_overhead"
CAUSE = "cpu_contention"
BURNERS = 4

BATCH = 32


def main():
    parser = argparse.ArgumentParser(description="Trains a CNN on images held in memory.")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images = torch.randn(1024, 3, 32, 32)
    labels = torch.randint(0, 10, (1024,))
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for _ in range(args.steps):
        rows = torch.randint(0, len(images), (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
