# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a compiled CNN on batches of one shape."""

import torch
from common import Throughput, arguments, convolutions
from torch import nn

BATCH = 24
STEPS = 120


def main():
    args = arguments(__doc__)
    images = torch.randn(512, 3, 32, 32)
    labels = torch.randint(0, 10, (512,))
    model = torch.compile(convolutions(3, 32, 8 * round(4 * args.severity)), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
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
