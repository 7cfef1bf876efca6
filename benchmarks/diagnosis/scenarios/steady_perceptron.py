# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# quick = true
# ///
"""Trains a perceptron on features held in memory; logs now and then and saves at the end."""

import tempfile
from pathlib import Path

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 128
STEPS = 240


def main():
    args = arguments(__doc__)
    inputs = torch.randn(8192, 256)
    labels = torch.randint(0, 10, (8192,))
    model = perceptron(256, 64 * round(14 * args.severity), 10, depth=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for step in range(STEPS):
        rows = torch.randint(0, 8192, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        meter.update(BATCH)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder) / "model.pt")
    meter.report()


if __name__ == "__main__":
    main()
