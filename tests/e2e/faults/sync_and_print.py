"""Planted fault: every step reads the gradients back one number at a time and prints a table.

Each ``.item()`` is a synchronisation; there are tens of thousands of them per step.
"""

import argparse
import math

import torch
from torch import nn

SUSPECT = "framework_overhead"
CAUSE = "host_sync"

BATCH = 32


def gradient_table(model):
    """For every parameter: the mean log10 of its gradient's entries, and how many are zero."""
    lines = []
    for name, parameter in model.named_parameters():
        logs = []
        zeros = 0
        for row in parameter.grad.reshape(len(parameter), -1):
            for entry in row:
                value = abs(entry.item())
                if value > 0:
                    logs.append(math.log10(value))
                else:
                    zeros += 1
        mean = sum(logs) / max(len(logs), 1)
        lines.append(f"{name:<12} mean log10 |g| {mean:7.3f}   zeros {zeros:6d}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Trains a CNN and watches its gradients.")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images = torch.randn(256, 3, 32, 32)
    labels = torch.randint(0, 10, (256,))
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for step in range(args.steps):
        rows = torch.randint(0, len(images), (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        print(f"step {step} loss {loss.item():.4f}")
        print(gradient_table(model))
        optimizer.step()


if __name__ == "__main__":
    main()
