# /// scenario
# suspect = "framework_overhead"
# cause = "small_batch"
# accept = ["model/optimizer"]
# fix = "a larger batch: give each operator more to do"
# severities = [0.75, 1.0, 1.5]  # 1 is sixteen samples a step
# ///
"""Regresses soil values from spectra with a wide perceptron, a few samples at a time."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

SAMPLES = 10_000


def main():
    args = arguments(__doc__)
    small = round(16 / args.severity)
    batch = 256 if args.fixed else small
    spectra = torch.randn(2048, 600)
    values = spectra[:, :1].tanh()
    model = perceptron(600, 512, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    meter = Throughput()
    for _ in range(max(60, SAMPLES // batch)):
        rows = torch.randint(0, 2048, (batch,))
        optimizer.zero_grad()
        loss = criterion(model(spectra[rows]), values[rows])
        loss.backward()
        optimizer.step()
        meter.update(batch)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
