# /// scenario
# suspect = "framework_overhead"
# cause = "cpu_contention"
# fix = "get the cores back: stop or move the other processes"
# severities = [3, 4, 6]  # processes of somebody else, each busy all the time
# neighbours = 1
# quick = true
# ///
"""Trains a CNN on images held in memory."""

import torch
from common import Throughput, arguments, convolutions
from torch import nn

BATCH = 32
STEPS = 90


def main():
    arguments(__doc__)
    images = torch.randn(1024, 3, 32, 32)
    labels = torch.randint(0, 10, (1024,))
    model = convolutions(3, 32, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, len(images), (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
