# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# quick = true
# ///
"""Trains a CNN on images that two workers prepare well ahead."""

import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 24
STEPS = 130


def main():
    args = arguments(__doc__)
    loader = DataLoader(
        Images(STEPS * BATCH, 32, args.seed), batch_size=BATCH, shuffle=True, num_workers=2
    )
    model = convolutions(3, 32, 8 * round(4 * args.severity))
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
