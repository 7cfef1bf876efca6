# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# fix = "read values from tensors rarely"
# severities = [0.6, 1.0, 1.6]  # rows of weights that are looked at
# quick = true
# ///
"""Trains a classifier and keeps an eye on the gradient of every neuron."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

EXAMPLES = 4096
BATCH = 64
STEPS = 150


def weakest(model, limit):
    """Count neurons that hardly learn, and find the smallest gradient."""
    count, smallest = 0, float("inf")
    for parameter in model.parameters():
        for row in parameter.grad[:limit]:
            size = row.abs().max().item()
            count += size < 1e-6
            smallest = min(smallest, size)
    return count, smallest


def main():
    args = arguments(__doc__)
    images = torch.randn(EXAMPLES, 256)
    labels = torch.randint(0, 10, (EXAMPLES,))
    model = perceptron(256, 512, 10, depth=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    limit = round(512 * args.severity / 1.6)
    meter = Throughput()
    for step in range(STEPS):
        rows = torch.randint(0, EXAMPLES, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        if not args.fixed or step % 50 == 0:
            count, smallest = weakest(model, limit)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}, {count} idle, smallest {smallest:.1e}")
        meter.update(BATCH)
    meter.report()


if __name__ == "__main__":
    main()
