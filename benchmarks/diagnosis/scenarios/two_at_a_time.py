# /// scenario
# suspect = "framework_overhead"
# cause = "small_batch"
# fix = "a larger batch: give each operator more to do"
# severities = [0.5, 1.0, 2.0]  # 1 is four samples a step
# ///
"""Trains a small CNN with the batch size of the tutorial."""

import torch
from common import Throughput, arguments
from torch import nn

SAMPLES = 16_000


def main():
    args = arguments(__doc__)
    small = round(4 / args.severity)
    batch = 128 if args.fixed else small
    steps = max(60, min(SAMPLES // batch, 4000))
    images = torch.randn(2048, 1, 16, 16)
    labels = torch.randint(0, 10, (2048,))
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
        nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for _ in range(steps):
        rows = torch.randint(0, 2048, (batch,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        meter.update(batch)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
