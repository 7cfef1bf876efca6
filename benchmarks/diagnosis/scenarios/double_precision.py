# /// scenario
# suspect = "model"
# cause = "compute"
# fix = "make the arithmetic cheaper: single precision instead of double"
# severities = [0.8, 1.0, 1.3]  # width
# ///
"""Trains a simulator's surrogate on the numbers as the simulator wrote them."""

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 1024
STEPS = 40


def main():
    args = arguments(__doc__)
    width = 64 * round(14 * args.severity)
    inputs = torch.from_numpy(np.random.standard_normal((8192, 64)))
    targets = torch.from_numpy(np.random.standard_normal((8192, 8)))
    if args.fixed:
        inputs, targets = inputs.float(), targets.float()
    model = perceptron(64, width, 8, depth=4).to(inputs.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    meter = Throughput(warm_up=5)
    for _ in range(STEPS):
        rows = torch.randint(0, 8192, (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
