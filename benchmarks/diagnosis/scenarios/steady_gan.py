# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of both models
# ///
"""Trains a generator against a critic, each with an optimizer of its own."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 128
NOISE = 64
STEPS = 170


def main():
    args = arguments(__doc__)
    width = 64 * round(10 * args.severity)
    images = torch.randn(4096, 784)
    generator, model = perceptron(NOISE, width, 784), perceptron(784, width, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    generator_optimizer = torch.optim.SGD(generator.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    real, forged = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 4096, (BATCH,))
        forgeries = generator(torch.randn(BATCH, NOISE))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), real) + criterion(model(forgeries.detach()), forged)
        loss.backward()
        optimizer.step()
        generator_optimizer.zero_grad()
        criterion(model(forgeries), real).backward()
        generator_optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
