# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# fix = "replace loops over elements by tensor operations: one module for the sequence"
# severities = [0.7, 1.0, 1.5]  # time steps of the sequence
# quick = true
# ///
"""Trains a recurrent forecaster whose cell is written out gate by gate."""

import torch
from common import Throughput, arguments
from torch import nn

FEATURES = 8
HIDDEN = 24
BATCH = 8
STEPS = 130


class GatedCells(nn.Module):
    def __init__(self):
        super().__init__()
        self.reset = nn.Linear(FEATURES + HIDDEN, HIDDEN)
        self.update = nn.Linear(FEATURES + HIDDEN, HIDDEN)
        self.candidate = nn.Linear(FEATURES + HIDDEN, HIDDEN)

    def forward(self, sequence):
        state = sequence.new_zeros(sequence.shape[1], HIDDEN)
        states = []
        for values in sequence:
            both = torch.cat([values, state], dim=1)
            reset, update = torch.sigmoid(self.reset(both)), torch.sigmoid(self.update(both))
            fresh = torch.tanh(self.candidate(torch.cat([values, reset * state], dim=1)))
            state = update * state + (1 - update) * fresh
            states.append(state)
        return torch.stack(states)


class Recurrent(nn.GRU):
    def forward(self, sequence):
        return super().forward(sequence)[0]


def main():
    args = arguments(__doc__)
    length = round(160 * args.severity)
    series = torch.randn(length + 1, 256, FEATURES).cumsum(dim=0) / length**0.5
    cells = Recurrent(FEATURES, HIDDEN) if args.fixed else GatedCells()
    model = nn.Sequential(cells, nn.Linear(HIDDEN, FEATURES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    meter = Throughput()
    for _ in range(STEPS):
        batch = series[:, torch.randint(0, 256, (BATCH,))]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[:-1]), batch[1:])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
