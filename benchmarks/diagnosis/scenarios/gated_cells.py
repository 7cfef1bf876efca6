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
STEPS = 120


class GatedCells(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(FEATURES + HIDDEN, HIDDEN)
        self.forget = nn.Linear(FEATURES + HIDDEN, HIDDEN)
        self.show = nn.Linear(FEATURES + HIDDEN, HIDDEN)
        self.candidate = nn.Linear(FEATURES + HIDDEN, HIDDEN)

    def forward(self, sequence):
        hidden = sequence.new_zeros(sequence.shape[1], HIDDEN)
        cell = torch.zeros_like(hidden)
        states = []
        for values in sequence:
            both = torch.cat([values, hidden], dim=1)
            enter, forget = torch.sigmoid(self.enter(both)), torch.sigmoid(self.forget(both))
            cell = forget * cell + enter * torch.tanh(self.candidate(both))
            hidden = torch.sigmoid(self.show(both)) * torch.tanh(cell)
            states.append(hidden)
        return torch.stack(states)


class Recurrent(nn.LSTM):
    def forward(self, sequence):
        return super().forward(sequence)[0]


def main():
    args = arguments(__doc__)
    length = round(120 * args.severity)
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
