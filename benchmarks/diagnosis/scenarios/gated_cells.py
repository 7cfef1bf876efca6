# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# fix = "replace loops over elements by tensor operations: one module for the sequence"
# severities = [0.7, 1.0, 1.5]  # time steps of the sequence
# quick = true
# ///
"""Trains a recurrent forecaster whose cell is written out gate by gate."""

import torch
from common import arguments, sampled, sgd, train
from torch import nn

FEATURES = 8
HIDDEN = 24


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


def compute_loss(model, series):
    """Forecast the next time step; the first dimension is the series."""
    series = series.transpose(0, 1)
    return nn.functional.mse_loss(model(series[:-1]), series[1:])


def main():
    args = arguments(__doc__)
    length = round(120 * args.severity)
    series = torch.randn(256, length + 1, FEATURES).cumsum(dim=1) / length**0.5
    cells = Recurrent(FEATURES, HIDDEN) if args.fixed else GatedCells()
    model = nn.Sequential(cells, nn.Linear(HIDDEN, FEATURES))
    train(model, sgd(model, 0.05, 0), sampled([series], 8, 120), compute_loss)


if __name__ == "__main__":
    main()
