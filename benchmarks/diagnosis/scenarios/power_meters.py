# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# accept = ["framework_overhead/dispatch_overhead", "framework_overhead/small_batch"]
# fix = "fewer and larger operators: batch the heads into one"
# severities = [0.6, 1.0, 1.6]  # households
# ///
"""Forecasts the load of every household of a street, each with a head of its own."""

import argparse

import torch
from common import Throughput
from torch import nn

PAST, AHEAD = 48, 12
BATCH = 32
STEPS = 220


class Street(nn.Module):
    def __init__(self, households, width=24):
        super().__init__()
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(PAST, width), nn.Tanh(), nn.Linear(width, AHEAD))
            for _ in range(households)
        )

    def forward(self, past):
        return torch.stack([head(past[:, i]) for i, head in enumerate(self.heads)], dim=1)


class BatchedStreet(nn.Module):
    """The same heads, one after another in one tensor."""

    def __init__(self, households, width=24):
        super().__init__()
        self.first = nn.Parameter(torch.randn(households, PAST, width) / PAST**0.5)
        self.first_bias = nn.Parameter(torch.zeros(households, 1, width))
        self.second = nn.Parameter(torch.randn(households, width, AHEAD) / width**0.5)
        self.second_bias = nn.Parameter(torch.zeros(households, 1, AHEAD))

    def forward(self, past):
        hidden = torch.baddbmm(self.first_bias, past.transpose(0, 1), self.first).tanh()
        return torch.baddbmm(self.second_bias, hidden, self.second).transpose(0, 1)


def windows(load, rows):
    past = torch.stack([load[:, row : row + PAST] for row in rows.tolist()])
    ahead = torch.stack([load[:, row + PAST : row + PAST + AHEAD] for row in rows.tolist()])
    return past, ahead


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    households = round(180 * args.severity)
    load = torch.rand(households, 5000)
    model = (BatchedStreet if args.fixed else Street)(households)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.SmoothL1Loss()
    meter = Throughput()
    running = 0.0
    for step in range(STEPS):
        past, ahead = windows(load, torch.randint(5000 - PAST - AHEAD, (BATCH,)))
        optimizer.zero_grad()
        loss = criterion(model(past), ahead)
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
        if step % 50 == 0:
            running = loss.item()
    print(f"loss {running:.4f}")
    meter.report()


if __name__ == "__main__":
    main()
