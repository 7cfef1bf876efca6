# /// scenario
# suspect = "model"
# cause = "compute"
# fix = "a smaller model"
# severities = [1.0, 1.2, 1.4]  # width
# quick = true
# ///
"""Trains a wide CNN on images held in memory."""

import torch
from common import Throughput, arguments
from torch import nn

BATCH = 48
STEPS = 36


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def main():
    args = arguments(__doc__)
    width = 24 if args.fixed else 8 * round(6 * args.severity)
    images = torch.randn(512, 3, 32, 32)
    labels = torch.randint(0, 10, (512,))
    model = nn.Sequential(
        block(3, width), block(width, 2 * width), block(2 * width, 4 * width),
        nn.Flatten(), nn.Linear(64 * width, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput(warm_up=4)
    for _ in range(STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
