"""Sine-wave regression with L-BFGS, which evaluates its closure several times per step."""

import argparse

import torch
from torch import nn

EXPECTED_STEPS = 25  # calls of optimizer.step


def main():
    parser = argparse.ArgumentParser(description="Fits sine waves with L-BFGS.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    phase = torch.rand(64, 1) * 6.28
    waves = torch.sin(torch.arange(0, 40) / 5.0 + phase)
    inputs, targets = waves[:, :-1], waves[:, 1:]
    model = nn.Sequential(nn.Linear(39, 64), nn.Tanh(), nn.Linear(64, 39))
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)

    for i in range(args.steps):

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if i % 5 == 0:
            print(f"step {i} loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
