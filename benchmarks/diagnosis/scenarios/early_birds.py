# /// scenario
# healthy = true
# severities = [0.75, 1.0, 1.5]  # width of the model
# ///
"""Trains on bird counts in micro-batches, and takes the next one before the backward pass."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 256
STEPS = 100
MICRO_BATCHES = 4


def main():
    args = arguments(__doc__)
    counts = torch.randn(MICRO_BATCHES * STEPS * BATCH // 8, 128)
    species = torch.randint(0, 20, (len(counts),))
    loader = DataLoader(TensorDataset(counts, species), batch_size=BATCH // 8, shuffle=True)
    model = perceptron(128, round(1024 * args.severity), 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    batches = iter(loader)
    rows, labels = next(batches)
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            loss = criterion(model(rows.repeat(8, 1)), labels.repeat(8)) / MICRO_BATCHES
            rows, labels = next(batches, (rows, labels))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        meter.update(MICRO_BATCHES * BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
