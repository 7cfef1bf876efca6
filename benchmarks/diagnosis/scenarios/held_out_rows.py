# /// scenario
# suspect = "framework_overhead"
# cause = "evaluation"
# fix = "look at the held-out rows less often"
# severities = [0.6, 1.0, 1.6]  # held-out rows
# ///
"""Trains a perceptron with an optimizer of its own, and tests it after every step."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 512
STEPS = 200


class Momentum:
    """Gradient descent with momentum, on the data of the parameters."""

    def __init__(self, parameters, rate=0.01, decay=0.9):
        self.parameters = list(parameters)
        self.speeds = [torch.zeros_like(p) for p in self.parameters]
        self.rate, self.decay = rate, decay

    def step(self):
        for parameter, speed in zip(self.parameters, self.speeds, strict=True):
            speed.mul_(self.decay).add_(parameter.grad)
            parameter.data.add_(speed, alpha=-self.rate)
            parameter.grad = None


def test(model, inputs, labels):
    """Return the share of rows that are classified right."""
    model.eval()
    with torch.inference_mode():
        right = (model(inputs).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return right


def main():
    args = arguments(__doc__)
    test_every = 100 if args.fixed else 1
    row_count = round(1024 * args.severity)
    inputs, labels = torch.randn(8192, 256), torch.randint(0, 10, (8192,))
    held_out, truth = torch.randn(row_count, 256), torch.randint(0, 10, (row_count,))
    model = perceptron(256, 512, 10)
    optimizer = Momentum(model.parameters())
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, 8192, (BATCH,))
        loss = criterion(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if step % test_every == 0:
            right = test(model, held_out, truth)
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}, {right:.1%} right")
    meter.report()


if __name__ == "__main__":
    main()
