# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a CNN, accumulating gradients over micro-batches that are as large as memory allows."""

import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 16
PIECES = 3
STEPS = 70


def main():
    args = arguments(__doc__)
    images = Images(STEPS * BATCH * PIECES, 32, args.seed)
    loader = DataLoader(images, batch_size=BATCH, shuffle=True, num_workers=1)
    model = convolutions(3, 32, 8 * round(4 * args.severity))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput(warm_up=7)
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(loader, start=1):
        loss = criterion(model(images), labels) / PIECES
        loss.backward()
        if number % PIECES == 0:
            optimizer.step()
            optimizer.zero_grad()
            meter.update(len(labels) * PIECES)
    print(f"final loss {PIECES * loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
