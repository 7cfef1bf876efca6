# /// scenario
# suspect = "framework_overhead"
# cause = "cpu_contention"
# fix = "get the cores back: stop or move the other processes"
# severities = [3, 4, 6]  # processes of somebody else, each busy all the time
# neighbours = 1
# ///
"""Trains a CNN on images that two workers prepare."""

import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 32
STEPS = 90


def main():
    args = arguments(__doc__)
    loader = DataLoader(
        Images(STEPS * BATCH, 32, args.seed), batch_size=BATCH, shuffle=True, num_workers=2
    )
    model = convolutions(3, 32, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
